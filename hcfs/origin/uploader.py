"""What hcfs sends to an origin, and the only way there.

An uploader exists for a namespace whose write policy lets files go out, and for no other. It takes `Outgoing` alone,
which can't be made without one and only of what is stored in its own namespace. How a kind of origin is written, its
writer says, by the row of `hcfs.options.schemes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn, Protocol

from hcfs.options.schemes import load, scheme_of
from hcfs.origin.access import Access
from hcfs.origin.errors import OriginRefused

CONFLICT = "was written by somebody else since this device knew it"
"""What every UploadConflict says."""


class Uploaded(NamedTuple):
    """What reached the origin."""

    etag: str
    size: int


class Outgoing:
    """One object on its way out: its key, and how its bytes are read, verified, in pieces and in order."""

    __slots__ = ("access", "directories", "key", "pieces", "size", "token")

    def __init__(
        self,
        uploader: OriginUploader,
        *,
        namespace: int,
        key: str,
        size: int,
        token: str,
        pieces: Callable[[], Iterator[bytes]],
        access: Access | None = None,
        directories: Sequence[Access] = (),
    ) -> None:
        """namespace: where the store has it. token: what tells this device's content from everybody else's: that of
        the store, a colon, and that of the content. access, directories: who may do what with it and with the
        directories of its key, from the outermost on, for an origin that has such rights. OriginRefused for what is
        stored elsewhere than in the uploader's namespace."""
        if namespace != uploader.namespace or not namespace:
            raise OriginRefused(f"{key} isn't in the namespace whose origin it was to go to")
        self.key = key
        self.size = size
        self.token = token
        self.pieces = pieces
        self.access = access
        self.directories = directories


class OriginWriter(Protocol):
    """Writes to one origin; called with its URL, when nothing is asked yet. Thread-safe; every method blocks, at most
    for its time limits and, with parts, for as many of them. Raises OriginError. Retries are the caller's."""

    conditional: bool
    """Whether the origin can be told which content an upload is to replace."""

    def put(self, outgoing: Outgoing, base: str | None) -> Uploaded:
        """Send an object. base: the ETag of the content that it replaces, "" where there is to be none; None: whatever
        there is. UploadConflict when somebody else has written other content there. What this device wrote itself, as
        by a request whose answer was lost, is no conflict, nor is nothing, which nobody loses."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing when there is none."""

    @staticmethod
    def can_be_key(path: str, url: str) -> bool:
        """Whether the origin's keys can be so long, and be spelled so, below its URL. Asks nobody."""


class RefusedWriter:
    """An OriginWriter whose every answer is the reason why there is none."""

    conditional = True

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def put(self, outgoing: Outgoing, base: str | None) -> NoReturn:  # noqa: ARG002  # whatever it is
        """OriginRefused."""
        raise OriginRefused(self._reason)

    def delete(self, key: str) -> NoReturn:  # noqa: ARG002  # whatever it is
        """OriginRefused."""
        raise OriginRefused(self._reason)

    @staticmethod
    def can_be_key(path: str, url: str) -> bool:  # noqa: ARG004  # whatever they are
        """Nobody knows."""
        return True


class OriginUploader:
    """Sends to one origin, for one namespace. Thread-safe; its methods are the writer's."""

    def __init__(self, url: str, namespace: int, *, fault: str | None = None) -> None:
        """url, fault: as open_origin's; namespace: the id of its directory. Nothing is asked yet."""
        self.namespace = namespace
        self._writer = _writer(url, fault)

    @property
    def conditional(self) -> bool:
        """Whether the origin can be told which content an upload is to replace: a directory can't."""
        return self._writer.conditional

    def put(self, outgoing: Outgoing, base: str | None) -> Uploaded:
        """As OriginWriter's."""
        return self._writer.put(outgoing, base)

    def delete(self, key: str) -> None:
        """As OriginWriter's."""
        self._writer.delete(key)


def can_be_key(path: str, url: str) -> bool:
    """Whether a path below a namespace can be an object's key below the prefix of an origin. Asks nobody."""
    scheme = scheme_of(url)
    writer = RefusedWriter if scheme is None or scheme.writer is None else load(scheme.writer)
    return writer.can_be_key(path, url) and all(
        part not in ("", ".", "..") and not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in part)
        for part in path.split("/")
    )


def _writer(url: str, fault: str | None) -> OriginWriter:
    scheme = scheme_of(url)
    if fault is not None:
        return RefusedWriter(f"{url}: {fault}")
    if scheme is None or scheme.writer is None:
        return RefusedWriter(f"{url}: nothing can be sent to such an origin")
    writer: OriginWriter = load(scheme.writer)(url)
    return writer
