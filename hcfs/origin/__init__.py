"""What hcfs reads from an origin, by a client that can list and fetch and nothing else, and what it sends there, by an
uploader that exists only where a namespace's write policy asks for one."""

from hcfs.origin.access import Access
from hcfs.origin.client import Listed, OriginClient
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused, UploadConflict, WrongContent
from hcfs.origin.opening import open_origin, problem_of_client
from hcfs.origin.redact import redacted
from hcfs.origin.refused_client import RefusedClient
from hcfs.origin.retrying import Patience
from hcfs.origin.transfer import transfer
from hcfs.origin.uploader import CONFLICT, OriginUploader, Outgoing, Uploaded, can_be_key

__all__ = [
    "CONFLICT",
    "Access",
    "Listed",
    "NotAtOrigin",
    "OriginChanged",
    "OriginClient",
    "OriginError",
    "OriginRefused",
    "OriginUploader",
    "Outgoing",
    "Patience",
    "RefusedClient",
    "UploadConflict",
    "Uploaded",
    "WrongContent",
    "can_be_key",
    "open_origin",
    "problem_of_client",
    "redacted",
    "transfer",
]
