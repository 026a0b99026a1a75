"""Files on their way to a directory of this machine that is an origin. Only an uploader has one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from hcfs.options.schemes import local_path
from hcfs.origin.access import Access
from hcfs.origin.beneath import closing, open_beneath, open_root
from hcfs.origin.directory import TEMPORARY, etag_of, told
from hcfs.origin.errors import NotAtOrigin, OriginError
from hcfs.origin.uploader import Outgoing, Uploaded

NAME_MAX = 255
"""Bytes of a name: Linux's."""

NEW_FILE = 0o644
NEW_DIRECTORY = 0o755


class DirectoryWriter:
    """OriginWriter of a directory. Each name is given and taken in a directory that is open, so that none of them
    is written to, made or removed outside the origin. No symlink is followed on the way: who owns a directory there may
    put one in its place at any time, and it would lead to directories in which only the daemon may write."""

    conditional = False

    def __init__(self, url: str) -> None:
        """url: of a directory, or its path. Nothing is asked yet."""
        self._url = url
        self._directory = local_path(url) or ""

    @staticmethod
    def can_be_key(path: str, url: str) -> bool:  # noqa: ARG004  # the same below every directory
        """What Linux takes as names, but for those of files on their way."""
        return not any(len(part.encode()) > NAME_MAX or part.startswith(TEMPORARY) for part in path.split("/"))

    def put(self, outgoing: Outgoing, base: str | None) -> Uploaded:  # noqa: ARG002  # it isn't asked what it replaces
        """Write a file whole, durably, and give it its name in place of what had that. Its owner, group and mode, and
        those of directories that are made for it, are given as root alone can. OriginError, and nothing changed but
        for these."""
        key, access = outgoing.key, outgoing.access or _new(NEW_FILE)
        with told(key, self._url), closing(self._root()) as root:
            head, _, name = key.rpartition("/")
            with closing(self._made(root, head, outgoing.directories)) as parent:
                etag = self._store_in(parent, name, key, outgoing.size, outgoing.pieces, access)
        return Uploaded(etag, outgoing.size)

    def delete(self, key: str) -> None:
        """Remove a name; nothing where there is none."""
        with suppress(NotAtOrigin), told(key, self._url), closing(self._root()) as root:
            head, _, name = key.rpartition("/")
            with closing(open_beneath(root, head or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)) as parent:
                os.unlink(name, dir_fd=parent)
                os.fsync(parent)

    def _root(self) -> int:
        """A descriptor of the origin itself. Where that is away, as a share that isn't mounted, nothing is known of its
        files: OriginError."""
        with told("", self._url):
            return open_root(self._directory)

    def _store_in(
        self, parent: int, name: str, key: str, size: int, pieces: Callable[[], Iterator[bytes]], access: Access
    ) -> str:
        temporary = TEMPORARY + uuid.uuid4().hex
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing(os.open(temporary, flags, 0o600, dir_fd=parent)) as fd:
            try:
                sent = 0
                for piece in pieces():
                    sent += len(piece)
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(fd, view) :]
                if sent != size:
                    raise OriginError(f"{key}: {sent} bytes were read instead of {size}")
                _give(fd, access)
                os.fsync(fd)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            os.fsync(parent)
            return etag_of(os.fstat(fd))

    def _made(self, root: int, path: str, directories: Sequence[Access]) -> int:
        """A descriptor of a directory beneath the origin, made as far as it is absent."""
        parts = path.split("/") if path else []
        for depth in range(len(parts)):
            try:
                os.close(open_beneath(root, "/".join(parts[: depth + 1]), os.O_PATH | os.O_DIRECTORY, links=False))
            except FileNotFoundError:
                access = directories[depth] if depth < len(directories) else _new(NEW_DIRECTORY)
                above = "/".join(parts[:depth]) or "."
                with closing(open_beneath(root, above, os.O_RDONLY | os.O_DIRECTORY, links=False)) as parent:
                    _make(parent, parts[depth], access)
        return open_beneath(root, path or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)


def _make(parent: int, name: str, access: Access) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return
    with closing(open_beneath(parent, name, os.O_RDONLY | os.O_DIRECTORY, links=False)) as fd:
        # Whoever may rename in this directory could have put another one of ours there since.
        status = os.fstat(fd)
        if status.st_uid == os.geteuid() and status.st_mode & 0o777 == 0o700 and not os.listdir(fd):
            _give(fd, access)
        os.fsync(parent)


def _new(mode: int) -> Access:
    return Access(mode, os.geteuid(), os.getegid())


def _give(fd: int, access: Access) -> None:
    """Owner, group and mode; without root the owner stays, and nobody else gains by that."""
    mode = access.mode
    try:
        os.fchown(fd, access.uid, access.gid)
    except PermissionError:
        status = os.fstat(fd)
        mode = mode if status.st_gid == access.gid else mode & 0o707
    os.fchmod(fd, mode)
