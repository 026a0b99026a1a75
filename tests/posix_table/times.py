"""atime, mtime and ctime: what sets them and what leaves them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from posix_table.table import AT_SYMLINK_NOFOLLOW, NOW, OMIT, in_process, make, row, sleep_a_tick, utimens

PAST = 1_000_000_000_123_456_789


def _changed(path: str, call: Callable[[], object]) -> str:
    """Which of the times a call changes: letters of a, m, c."""
    sleep_a_tick()
    before = os.lstat(path)
    call()
    after = os.lstat(path)
    return "".join(letter for letter in "amc" if _time(before, letter) != _time(after, letter))


def _time(status: os.stat_result, letter: str) -> int:
    return int(getattr(status, f"st_{letter}time_ns"))


def _written(name: str, data: bytes = b"x") -> None:
    fd = os.open(name, os.O_WRONLY)
    os.write(fd, data)
    os.close(fd)


@row((PAST, PAST + 1))
def nanoseconds_are_kept() -> object:
    make("file")
    utimens("file", PAST, PAST + 1)
    return os.stat("file").st_atime_ns, os.stat("file").st_mtime_ns


@row([(0, 0), (-1, -1_000_000_001), (1 << 33, 1 << 33)])
def old_and_far_times_are_kept() -> object:
    make("file")
    found = []
    for atime, mtime in ((0, 0), (-1_000_000_000, -1_000_000_001), ((1 << 33) * 10**9, (1 << 33) * 10**9)):
        os.utime("file", ns=(atime, mtime))
        status = os.stat("file")
        seconds = 1 if atime < 0 or mtime < 0 else 0
        found.append((status.st_atime_ns // 10**9, status.st_mtime_ns if seconds else status.st_mtime_ns // 10**9))
    return found


@row([(PAST, True), (True, PAST), (PAST, PAST), (True, True)])
def now_and_omit() -> object:
    make("file")
    found = []
    for atime, mtime in ((OMIT, NOW), (NOW, OMIT), (OMIT, OMIT), (NOW, NOW)):
        utimens("file", PAST, PAST)
        utimens("file", atime, mtime)
        times = (os.stat("file").st_atime_ns, os.stat("file").st_mtime_ns)
        found.append(tuple(when if when == PAST else abs(when - time.time_ns()) < 5 * 10**9 for when in times))
    return found


@row("c")
def omitting_only_the_access_time_leaves_it() -> object:
    make("file")
    utimens("file", PAST, PAST)
    return _changed("file", lambda: utimens("file", OMIT, PAST))


@row((PAST, True))
def a_symlinks_own_times() -> object:
    make("file")
    os.symlink("file", "link")
    utimens("link", PAST, PAST, AT_SYMLINK_NOFOLLOW)
    return os.lstat("link").st_mtime_ns, os.stat("link").st_mtime_ns != PAST


@row((PAST, PAST))
def times_of_a_directory() -> object:
    os.mkdir("d")
    utimens("d", PAST, PAST)
    return os.stat("d").st_atime_ns, os.stat("d").st_mtime_ns


@row(["mc", "mc", "mc", "mc", "mc"])
def making_and_removing_names_changes_the_directory() -> object:
    os.mkdir("d")
    return [
        _changed("d", lambda: make("d/file")),
        _changed("d", lambda: os.mkdir("d/e")),
        _changed("d", lambda: os.symlink("x", "d/l")),
        _changed("d", lambda: os.unlink("d/file")),
        _changed("d", lambda: os.rmdir("d/e")),
    ]


@row(["mc", "mc", "c"])
def a_rename_changes_both_directories_and_the_files_ctime() -> object:
    os.mkdir("d")
    os.mkdir("e")
    make("d/file")
    first = _changed("d", lambda: os.rename("d/file", "e/file"))
    second = _changed("e", lambda: os.rename("e/file", "d/file"))
    sleep_a_tick()
    before = os.stat("d/file")
    os.rename("d/file", "d/other")
    after = os.stat("d/other")
    changed = "".join(letter for letter in "amc" if _time(before, letter) != _time(after, letter))
    return [first, second, changed]


@row(["c", "c", "c", "c", "c"])
def chmod_chown_links_and_attributes_change_ctime() -> object:
    make("file")
    return [
        _changed("file", lambda: os.chmod("file", 0o600)),
        _changed("file", lambda: os.chown("file", 1, 1)),
        _changed("file", lambda: os.link("file", "link")),
        _changed("file", lambda: os.unlink("link")),
        _changed("file", lambda: os.setxattr("file", "user.a", b"1")),
    ]


@row("")
def looking_changes_nothing() -> object:
    make("file")

    def look() -> None:
        os.stat("file")
        os.listdir(".")
        os.access("file", os.R_OK)
        os.listxattr("file")

    return _changed("file", look)


@row("mc")
def writing_changes_mtime_and_ctime() -> object:
    make("file")
    return _changed("file", lambda: _written("file"))


@row(["mc", "mc", "mc"])
def changing_the_size_changes_mtime_and_ctime() -> object:
    make("file", b"12345678")

    def by_handle() -> None:
        fd = os.open("file", os.O_WRONLY)
        os.ftruncate(fd, 3)
        os.close(fd)

    return [
        _changed("file", lambda: os.truncate("file", 5)),
        _changed("file", by_handle),
        _changed("file", lambda: os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))),
    ]


@row(["", ""])
def opening_without_writing_changes_nothing() -> object:
    make("file")
    return [
        _changed("file", lambda: os.close(os.open("file", os.O_RDWR))),
        _changed("file", lambda: os.close(os.open("file", os.O_WRONLY | os.O_APPEND))),
    ]


@row(PAST)
def a_time_set_after_the_last_write_is_there_after_close() -> object:
    fd = os.open("file", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"content")
    os.utime(fd, ns=(PAST, PAST))
    os.close(fd)
    return in_process(lambda: _mtime_soon("file"))


def _mtime_soon(path: str) -> int:
    deadline = time.monotonic() + 10
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.stat(path).st_mtime_ns


@row("a", hcfs="", why="a read of a cache writes nothing back; the last access is in user.hcfs.last_access")
def reading_changes_atime_by_relatime() -> object:
    make("file")
    return _changed("file", lambda: open("file", "rb").read())


@row(True)
def new_files_have_one_time() -> object:
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT))
    status = os.stat("file")
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return max(times) - min(times) < 10**9 and abs(times[0] - time.time_ns()) < 5 * 10**9
