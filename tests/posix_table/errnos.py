"""What each call answers to what it can't do."""

from __future__ import annotations

import errno
import mmap
import os
import stat

from posix_table.table import answer, answers, fallocate, make, read, renameat2, row


def _set() -> None:
    """A file, a directory with a file in it, a symlink to nowhere and one to itself."""
    make("file")
    os.mkdir("full")
    make("full/file")
    os.mkdir("empty")
    os.symlink("nowhere", "dangling")
    os.symlink("loop", "loop")


@row(["ENOENT", "ENOENT", "ENOTDIR", "ENOTDIR", "ELOOP", "ELOOP", "ENOENT", "EISDIR", "EISDIR", "EISDIR", "EISDIR"])
def open_refuses() -> object:
    _set()
    return answers(
        (os.open, "absent", os.O_RDONLY),
        (os.open, "absent/file", os.O_RDONLY | os.O_CREAT),
        (os.open, "file/x", os.O_RDONLY | os.O_CREAT),
        (os.open, "file", os.O_RDONLY | os.O_DIRECTORY),
        (os.open, "loop", os.O_RDONLY),
        (os.open, "dangling", os.O_RDONLY | os.O_NOFOLLOW),
        (os.open, "", os.O_RDONLY),
        (os.open, "full", os.O_WRONLY),
        (os.open, "full", os.O_RDWR),
        (os.open, "full", os.O_RDONLY | os.O_CREAT),
        (os.open, "new/", os.O_WRONLY | os.O_CREAT),
    )


@row(["EEXIST", "EEXIST", "EEXIST", "EEXIST"])
def exclusive_creation_refuses_whatever_is_there() -> object:
    _set()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return [answer(os.open, name, flags) for name in ("file", "full", "dangling", "loop")]


@row((b"written", "nowhere"))
def creating_through_a_dangling_symlink_makes_its_target() -> object:
    _set()
    make("dangling", b"written")
    return read("nowhere"), os.readlink("dangling")


@row(["ENOTDIR", "ENOTDIR", "ENOTDIR"])
def a_slash_after_a_file_asks_for_a_directory() -> object:
    _set()
    return answers((os.stat, "file/"), (os.open, "file/", os.O_RDONLY), (os.unlink, "file/"))


@row(["EEXIST", "EEXIST", "EEXIST", "EEXIST", "ENOENT", "ENOTDIR", "ENOENT"])
def mkdir_refuses() -> object:
    _set()
    names = ("file", "full", "dangling", ".", "absent/d", "file/d", "")
    return [answer(os.mkdir, name) for name in names]


@row(["ENOTEMPTY", "ENOTDIR", "ENOENT", "EINVAL", "ENOTEMPTY", "ENOTDIR", "ok", "ENOENT"])
def rmdir_refuses() -> object:
    _set()
    names = ("full", "file", "absent", "empty/.", "full/..", "dangling", "empty", "empty")
    return [answer(os.rmdir, name) for name in names]


@row(["EISDIR", "ENOENT", "ENOTDIR", "ok", "ok", "ENOENT"])
def unlink_refuses() -> object:
    _set()
    return [answer(os.unlink, name) for name in ("full", "absent", "file/x", "dangling", "file", "file")]


@row(["EISDIR", "ENOTDIR", "ENOTEMPTY", "EINVAL", "ENOENT", "ENOENT", "ENOTDIR", "EBUSY", "ENOTDIR", "EISDIR"])
def rename_refuses() -> object:
    _set()
    pairs = (
        *(("file", "full"), ("empty", "file"), ("empty", "full"), ("full", "full/x"), ("absent", "x"), ("file", "")),
        *(("file", "file/x"), ("full/.", "x"), ("empty", "dangling"), ("dangling", "empty")),
    )
    return [answer(os.rename, old, new) for old, new in pairs]


@row(["ok", "ok", ["file"]])
def a_directory_replaces_an_empty_one() -> object:
    _set()
    os.mkdir("other")
    return [*answers((os.rename, "full", "empty"), (os.rename, "empty", "other")), os.listdir("other")]


@row(["EEXIST", "ok", "EINVAL"])
def rename_with_flags() -> object:
    _set()
    noreplace, exchange = 1, 2
    return [
        answer(renameat2, "file", "full", noreplace),
        answer(renameat2, "file", "new", noreplace),
        answer(renameat2, "new", "full", noreplace | exchange),
    ]


@row("ok", hcfs="EINVAL", why="two objects can't change places in one step; a publisher replaces or doesn't")
def rename_exchange() -> object:
    _set()
    return answer(renameat2, "file", "full", 2)


@row(["EEXIST", "EEXIST", "EPERM", "ENOENT", "ENOENT", "ENOTDIR", "ENOTDIR"])
def link_refuses() -> object:
    _set()
    pairs = (
        *(("file", "full/file"), ("file", "dangling"), ("full", "x"), ("absent", "x"), ("file", "absent/x")),
        *(("file", "file/x"), ("file/", "x")),
    )
    return [answer(os.link, old, new) for old, new in pairs]


@row(["EEXIST", "EEXIST", "ENOENT", "ENOENT", "ENAMETOOLONG", "ok"])
def symlink_refuses() -> object:
    _set()
    return [
        answer(os.symlink, target, name)
        for target, name in (
            *(("x", "file"), ("x", "dangling"), ("", "new"), ("x", "absent/x"), ("t" * 4096, "new")),
            ("t" * 4095, "new"),
        )
    ]


@row("t" * 4095)
def the_longest_symlink() -> object:
    os.symlink("t" * 4095, "link")
    return os.readlink("link")


@row(["EINVAL", "EINVAL", "ENOENT", "ok"])
def readlink_refuses() -> object:
    _set()
    return [answer(os.readlink, name) for name in ("file", "full", "absent", "loop")]


@row(["EISDIR", "ENOENT", "EINVAL", "EFBIG", "ELOOP", "ENOTDIR"])
def truncate_refuses() -> object:
    _set()
    return answers(
        (os.truncate, "full", 0),
        (os.truncate, "absent", 0),
        (os.truncate, "file", -1),
        (os.truncate, "file", 1 << 62),
        (os.truncate, "loop", 0),
        (os.truncate, "file/", 0),
    )


@row(["EBADF", "EINVAL", "EINVAL", "EBADF", "EINVAL", "EISDIR"])
def calls_on_the_wrong_descriptor() -> object:
    _set()
    reading, writing = os.open("file", os.O_RDONLY), os.open("new", os.O_WRONLY | os.O_CREAT)
    directory = os.open("full", os.O_RDONLY)
    return answers(
        (os.write, reading, b"x"),
        (os.ftruncate, reading, 0),
        (os.ftruncate, writing, -1),
        (os.read, writing, 1),
        (os.pread, reading, 1, -1),
        (os.read, directory, 1),
    )


@row(["EINVAL", "ENXIO", "ok"])
def seeking() -> object:
    make("file")
    fd = os.open("file", os.O_RDONLY)
    return answers(
        (os.lseek, fd, -1, os.SEEK_SET), (os.lseek, fd, 100, os.SEEK_DATA), (os.lseek, fd, 1 << 40, os.SEEK_SET)
    )


@row(["EACCES", "ok", "EACCES"])
def mapping() -> object:
    make("file")
    reading, writing = os.open("file", os.O_RDONLY), os.open("file", os.O_WRONLY)

    def attempt(fd: int, protection: int, flags: int = mmap.MAP_SHARED) -> str:
        try:
            mmap.mmap(fd, 4, flags, protection).close()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "ok"

    return [
        attempt(reading, mmap.PROT_READ | mmap.PROT_WRITE),
        attempt(reading, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE),
        attempt(writing, mmap.PROT_READ),
    ]


@row(["ENODATA", "EEXIST", "ENODATA", "ENODATA", "ENOENT", "EPERM"])
def extended_attributes_refuse() -> object:
    _set()
    os.setxattr("file", "user.a", b"1")
    return [
        answer(os.getxattr, "file", "user.none"),
        answer(os.setxattr, "file", "user.a", b"2", os.XATTR_CREATE),
        answer(os.setxattr, "file", "user.b", b"2", os.XATTR_REPLACE),
        answer(os.removexattr, "file", "user.none"),
        answer(os.getxattr, "absent", "user.a"),
        answer(os.setxattr, "dangling", "user.a", b"1", 0, follow_symlinks=False),
    ]


@row("ok", hcfs="EOPNOTSUPP", why="only user.* is kept; trusted.* says nothing to a client of a cache")
def trusted_attributes() -> object:
    make("file")
    return answer(os.setxattr, "file", "trusted.a", b"1")


@row([b"", b"1", ["user.a", "user.b"], ["user.b"]])
def extended_attributes_are_kept() -> object:
    make("file")
    os.setxattr("file", "user.a", b"")
    os.setxattr("file", "user.b", b"1")
    listed = sorted(name for name in os.listxattr("file") if not name.startswith("user.hcfs."))
    values = [os.getxattr("file", "user.a"), os.getxattr("file", "user.b"), listed]
    os.removexattr("file", "user.a")
    return [*values, [name for name in os.listxattr("file") if not name.startswith("user.hcfs.")]]


@row([True, True, "ok", "ok"], hcfs=["EPERM"] * 2 + ["ok"] * 2, why="a cache holds files: no fifos, no device nodes")
def nodes() -> object:
    found: list[object] = []
    for name, kind in (("fifo", stat.S_IFIFO), ("socket", stat.S_IFSOCK)):
        said = answer(os.mknod, name, kind | 0o644)
        found.append(said if said != "ok" else stat.S_IFMT(os.stat(name).st_mode) == kind)
    return [*found, answer(os.mknod, "file", stat.S_IFREG | 0o644), answer(os.mknod, "plain", 0o644)]


@row("ok", hcfs="EOPNOTSUPP", why="pyfuse3 has no fallocate; posix_fallocate then writes zeros by itself")
def allocating_ahead() -> object:
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    return answer(fallocate, fd, 0, 0, 4096)


@row("ok", hcfs="EOPNOTSUPP", why="a file without a name is a version without one: use a name that ends in .tmp")
def files_without_a_name() -> object:
    return answer(os.open, ".", os.O_WRONLY | os.O_TMPFILE)


@row(["ENOENT", "EPERM", "ENOTDIR"])
def chmod_chown_and_utime_refuse() -> object:
    make("file")
    return [
        answer(os.chmod, "absent", 0o600),
        answer(os.link, ".", "x"),
        answer(os.utime, "file/x"),
    ]


@row(["ok", "ok", "ok", "EBADF"])
def fsync_of_files_and_directories() -> object:
    make("file")
    file, directory = os.open("file", os.O_RDONLY), os.open(".", os.O_RDONLY)
    said = answers((os.fsync, file), (os.fdatasync, file), (os.fsync, directory))
    os.close(file)
    return [*said, answer(os.fsync, file)]
