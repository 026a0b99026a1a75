"""A directory of this machine as origin: listed and read beneath it, whatever is put there meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hcfs.options.schemes import local_path
from hcfs.origin.access import Access, has_acl
from hcfs.origin.beneath import NoOpenat2, closing, follow, open_beneath, open_root, reopened
from hcfs.origin.client import Listed
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused

CHUNK = 256 << 10
"""Bytes read at once."""

PAGE = 1000

LEVELS_MAX = 128
"""Directories in one another that are listed: each has two descriptors meanwhile."""

DIRECTORIES_MAX = 200_000
"""Directories that are listed: symlinks to directories can make very many of a few."""

TEMPORARY = ".hcfs-upload-"
"""How names of files begin that are on their way there. They aren't listed, and can't be written."""

_REFUSED = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG)
"""What concerns one path only. All else may be the whole directory's failure, as of a server that it comes from."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def etag_of(status: os.stat_result) -> str:
    """What a content is called: its inode, its time of modification in microseconds, and its size."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


@contextmanager
def told(where: str, url: str) -> Iterator[None]:
    """The kernel's errors as an origin's. where: what is named in them, if it is a path below; "" for the origin."""
    name = f"{url.rstrip('/')}/{where}" if where else url
    try:
        yield
    except NoOpenat2 as error:
        raise OriginRefused(f"{url}: {error.strerror}") from None
    except OSError as error:
        if error.errno in _GONE and where:
            raise NotAtOrigin(f"{name} isn't at the origin") from None
        if error.errno in _REFUSED:
            raise OriginRefused(f"{name}: {_reason(error)}") from None
        raise OriginError(f"{name}: {error.strerror}") from None


class _Level(NamedTuple):
    """A directory that is being listed."""

    fd: int
    entries: Iterator[os.DirEntry[str]]
    prefix: str
    """Of the keys in it: empty, or with a slash at its end."""
    identity: tuple[int, int]


class DirectoryClient:
    """OriginClient of a directory."""

    def __init__(self, url: str) -> None:
        """url: of a directory, or its path. Nothing is asked yet."""
        self._url = url
        self._directory = local_path(url) or ""

    def list(self) -> Iterator[list[Listed]]:
        with told("", self._url), closing(self._root()) as root:
            page: list[Listed] = []
            for listed in _Walk(self._url, root).run():
                page.append(listed)
                if len(page) == PAGE:
                    yield page
                    page = []
            yield page

    def fetch(self, listed: Listed, start: int, end: int) -> Iterator[memoryview]:
        with told(listed.key, self._url), closing(self._opened(listed)) as fd:
            yield memoryview(b"")
            while start < end:
                chunk = os.pread(fd, min(CHUNK, end - start), start)
                if not chunk:
                    break
                start += len(chunk)
                yield memoryview(chunk)
            if etag_of(os.fstat(fd)) != listed.etag:
                raise OriginChanged(f"{self._where(listed)} has changed while it was read")

    def _where(self, listed: Listed) -> str:
        return f"{self._url.rstrip('/')}/{listed.key}"

    def _root(self) -> int:
        try:
            return open_root(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            raise OriginError(f"{self._url} can't be listed: there is no such directory") from None

    def _opened(self, listed: Listed) -> int:
        """The content that was listed. Nothing else is opened: a path that leads to another inode by now, as to a
        device or a pipe, or to what fewer may read, is OriginChanged."""
        with closing(self._root()) as root, closing(open_beneath(root, listed.key, os.O_PATH)) as fd:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or etag_of(status) != listed.etag:
                raise OriginChanged(f"{self._where(listed)} has changed since it was listed")
            opened = reopened(fd, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            access = _access(status, acl=has_acl(opened))
            if listed.access is not None and not listed.access.grants_no_more_than(access):
                raise OriginChanged(f"{self._where(listed)} has another owner or mode than it was listed with")
        except BaseException:
            os.close(opened)
            raise
        return opened


class _Walk:
    """One listing. Each directory is opened in the one that it was found in, so that nobody can slip another one in
    between."""

    def __init__(self, url: str, root: int) -> None:
        self._url = url
        self._root = root
        self._levels: list[_Level] = []
        self._directories = 0

    def run(self) -> Iterator[Listed]:
        try:
            self._enter(os.dup(self._root), "")
            while self._levels:
                entry = next(self._levels[-1].entries, None)
                if entry is None:
                    self._leave()
                else:
                    yield from self._entry(self._levels[-1], entry)
        finally:
            while self._levels:
                self._leave()

    def _enter(self, fd: int, prefix: str) -> None:
        """Takes the descriptor over."""
        try:
            status = os.fstat(fd)
            entries = os.scandir(fd)
        except OSError:
            os.close(fd)
            raise
        self._levels.append(_Level(fd, entries, prefix, (status.st_dev, status.st_ino)))

    def _leave(self) -> None:
        level = self._levels.pop()
        level.entries.close()  # type: ignore[attr-defined]  # scandir's iterator has it
        os.close(level.fd)

    def _entry(self, level: _Level, entry: os.DirEntry[str]) -> Iterator[Listed]:
        key = level.prefix + entry.name
        if entry.name.startswith(TEMPORARY):
            return
        if not _can_be_shown(entry.name):
            yield _refused(key, "its name isn't UTF-8 or has characters that can't be shown; rename it at the origin")
            return
        try:
            if entry.is_symlink():
                yield from self._link(key)
                return
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                acl = has_acl(f"/proc/self/fd/{level.fd}/{entry.name}", links=False)
                yield _listed(key, status, self._narrowed(level, _access(status, acl=acl)))
            elif stat.S_ISDIR(status.st_mode):
                fd = open_beneath(level.fd, entry.name, os.O_RDONLY | os.O_DIRECTORY, links=False)
                yield from self._directory(fd, key, None)
        except NoOpenat2:
            raise
        except OSError as error:
            if error.errno in _REFUSED:
                yield _refused(key, _reason(error))
            elif error.errno not in _GONE:
                raise

    def _link(self, key: str) -> Iterator[Listed]:
        """What a symlink leads to, with the rights that its place leaves."""
        found, above = follow(self._root, key)
        with closing(found) as fd:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                yield _listed(key, status, _access(status, acl=has_acl(f"/proc/self/fd/{fd}")).within(above))
            elif stat.S_ISDIR(status.st_mode):
                yield from self._directory(reopened(fd, os.O_RDONLY | os.O_DIRECTORY), key, above)

    def _directory(self, fd: int, key: str, above: list[os.stat_result] | None) -> Iterator[Listed]:
        """Its own entry, and what is in it next. Takes the descriptor over. above: the directories that it really lies
        in, where a symlink led to it."""
        try:
            status = os.fstat(fd)
            access = _access(status, acl=has_acl(fd))
            identity = (status.st_dev, status.st_ino)
            problem = ""
            if any(level.identity == identity for level in self._levels):
                problem = "it leads to a directory above itself; remove that symlink"
            elif len(self._levels) >= LEVELS_MAX:
                problem = f"there are more than {LEVELS_MAX} directories in one another"
            self._directories += 1
            if self._directories > DIRECTORIES_MAX:
                raise OriginRefused(f"{self._url} has more than {DIRECTORIES_MAX} directories; name a smaller one")
        except BaseException:
            os.close(fd)
            raise
        if problem:
            os.close(fd)
            yield _refused(key, problem)
            return
        access = self._narrowed(self._levels[-1], access) if above is None else access.within(above)
        self._enter(fd, f"{key}/")
        yield Listed(f"{key}/", 0, status.st_mtime_ns, "", access)

    def _narrowed(self, level: _Level, access: Access) -> Access:
        """The origin's own directory isn't shown, since the namespace's is in its place; what it forbids is forbidden
        for what is in it."""
        return access.within([os.fstat(level.fd)]) if len(self._levels) == 1 else access


def _access(status: os.stat_result, *, acl: bool) -> Access:
    access = Access.of(status)
    return access.owner_only() if acl else access


def _can_be_shown(name: str) -> bool:
    """Whether a name is UTF-8 without control characters."""
    return not any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or 0xD800 <= ord(each) <= 0xDFFF for each in name)


def _listed(key: str, status: os.stat_result, access: Access) -> Listed:
    return Listed(key, status.st_size, status.st_mtime_ns, etag_of(status), access)


def _refused(key: str, reason: str) -> Listed:
    return Listed(key, 0, 0, "", refused=reason)


def _reason(error: OSError) -> str:
    if error.errno == errno.EXDEV:
        return "it leads out of the directory that is the origin"
    if error.errno == errno.ELOOP:
        return "a symlink is on its way; nothing is written or removed through one"
    return error.strerror or "it can't be opened"
