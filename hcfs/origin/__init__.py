"""What hcfs reads from an origin: a client of object stores that can list and fetch, and nothing else. It has no way to
send an object anywhere, so nothing that is kept on a device can leave it here."""

from hcfs.origin.client import Listed, OriginClient
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused, WrongContent
from hcfs.origin.object_store import ObjectStoreClient
from hcfs.origin.retrying import Patience
from hcfs.origin.transfer import transfer

__all__ = [
    "Listed",
    "NotAtOrigin",
    "ObjectStoreClient",
    "OriginChanged",
    "OriginClient",
    "OriginError",
    "OriginRefused",
    "Patience",
    "WrongContent",
    "transfer",
]
