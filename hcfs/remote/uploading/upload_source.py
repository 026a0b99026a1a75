"""What may leave the device: objects of a namespace whose write policy lets them go, and nothing else.

Only an origin's uploader makes an `Outgoing`, and where the bytes are stored is asked of the store itself: so there is
none for what belongs to a local-only namespace, whoever asks for it."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator

from hcfs.filesystem.calls import CallError
from hcfs.options.namespace_options import ORIGIN
from hcfs.origin import Access, OriginError, OriginUploader, Outgoing, can_be_key
from hcfs.store import ROOT_ID, Attributes, Pin, SealedPin, Staged, Store

PIECE = 1 << 20
"""Bytes read, and verified, at once."""


def key_of(store: Store, parent: int, name: bytes) -> str:
    """The key of a name, below the origin's prefix. CallError: EILSEQ for what isn't UTF-8, EINVAL for what else can't
    be a key."""
    path = (store.path_of(parent) + b"/" + name).partition(b"/")[2]
    url = store.get_xattr(store.namespace_of(parent), ORIGIN) or b""
    try:
        key = path.decode()
    except UnicodeDecodeError:
        raise CallError(errno.EILSEQ, f"{path!r} isn't UTF-8, as the keys of an origin are") from None
    if not can_be_key(key, url.decode()):
        raise CallError(errno.EINVAL, f"{key!r} can't be a key at an origin")
    return key


def outgoing_object(
    uploader: OriginUploader, store: Store, pin: Pin, key: str, on_piece: Callable[[int], None]
) -> Outgoing:
    """A committed object, which the caller has pinned. on_piece: called with the bytes read so far; it may raise."""
    names = store.names_of(pin.oid)
    return Outgoing(
        uploader,
        namespace=store.namespace_of(pin.oid),
        key=key,
        size=pin.size,
        token=f"{store.superblock.uuid}:{pin.oid}.{pin.generation}",
        pieces=lambda: _pieces(store, pin, on_piece),
        access=_access(store.attributes(pin.oid)),
        directories=_directories(store, names[0][0]) if names else (),
    )


def outgoing_version(
    uploader: OriginUploader,
    store: Store,
    staged: Staged,
    number: int,
    key: str,
    on_piece: Callable[[int], None],
    *,
    parent: int = 0,
) -> Outgoing:
    """A sealed version that isn't published. number: of this sealing among the version's. parent: the directory of its
    name; 0 where those of its key are told nothing of."""
    pin = SealedPin(staged.id, staged.size, staged.sealed_extents, staged.sealed_checksums, number)
    return Outgoing(
        uploader,
        namespace=staged.namespace,
        key=key,
        size=pin.size,
        token=f"{store.superblock.uuid}:{uuid.uuid4()}",
        pieces=lambda: _pieces(store, pin, on_piece),
        access=_access(staged.attributes()),
        directories=_directories(store, parent) if parent else (),
    )


def _access(attributes: Attributes) -> Access:
    return Access(attributes.mode & 0o777, attributes.uid, attributes.gid)


def _directories(store: Store, directory: int) -> list[Access]:
    """Of those between a namespace's and this one, the outermost first."""
    namespace, found = store.namespace_of(directory), []
    while directory not in (namespace, ROOT_ID):
        found.append(_access(store.attributes(directory)))
        directory = store.parent_of(directory)
    return found[::-1]


def _pieces(store: Store, pin: Pin, on_piece: Callable[[int], None]) -> Iterator[bytes]:
    """Verified bytes, copied: an upload may go on with them after it has failed, when a buffer of the pool already
    holds something else. Raises DamagedGranule."""
    for at in range(0, pin.size, PIECE):
        on_piece(at)
        piece = bytes(store.read(pin, at, PIECE))
        if len(piece) != min(PIECE, pin.size - at):
            raise OriginError("an object's end came too early")
        yield piece
