"""Who may do what: permission bits, sticky directories, access(2)."""

from __future__ import annotations

import os

from posix_table.table import ALICE, BOB, answer, answers, as_user, make, row


def _sticky() -> None:
    """A directory as /tmp is, with a file of Alice's and one of Bob's."""
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    for user in (ALICE, BOB):
        make(f"sticky/{user}")
        os.chown(f"sticky/{user}", user, user)


@row(["EPERM", "EPERM", "EPERM", "ok"])
def in_a_sticky_directory_only_owners_remove_and_rename() -> object:
    _sticky()
    return as_user(
        ALICE,
        lambda: answers(
            (os.unlink, f"sticky/{BOB}"),
            (os.rename, f"sticky/{BOB}", "sticky/x"),
            (os.rename, f"sticky/{ALICE}", f"sticky/{BOB}"),
            (os.unlink, f"sticky/{ALICE}"),
        ),
    )


@row(["ok", "ok"])
def the_owner_of_a_sticky_directory_and_root_remove_anything() -> object:
    _sticky()
    os.chown("sticky", ALICE, ALICE)
    return [as_user(ALICE, lambda: answer(os.unlink, f"sticky/{BOB}")), answer(os.unlink, f"sticky/{ALICE}")]


@row(["EPERM", "EPERM"])
def directories_in_a_sticky_directory_are_guarded_too() -> object:
    _sticky()
    os.mkdir("sticky/d")
    os.chown("sticky/d", BOB, BOB)
    return as_user(ALICE, lambda: answers((os.rmdir, "sticky/d"), (os.rename, "sticky/d", "sticky/e")))


@row("ok")
def without_the_sticky_bit_anybody_removes() -> object:
    os.mkdir("open")
    os.chmod("open", 0o777)
    make("open/file")
    return as_user(ALICE, lambda: answer(os.unlink, "open/file"))


@row(["EACCES"] * 8)
def nothing_is_made_or_removed_in_a_directory_one_may_not_write() -> object:
    make("file")
    os.mkdir("d")
    return as_user(
        ALICE,
        lambda: answers(
            (os.open, "new", os.O_WRONLY | os.O_CREAT),
            (os.mkdir, "new"),
            (os.symlink, "x", "new"),
            (os.mknod, "new", 0o100644),
            (os.unlink, "file"),
            (os.rmdir, "d"),
            (os.rename, "file", "new"),
            (os.truncate, "file", 0),
        ),
    )


@row(["EACCES"] * 4)
def nothing_is_reached_through_a_directory_one_may_not_search() -> object:
    os.mkdir("d")
    make("d/file")
    os.chmod("d", 0o666)
    return as_user(
        ALICE,
        lambda: answers(
            (os.stat, "d/file"), (os.open, "d/file", os.O_RDONLY), (os.unlink, "d/file"), (os.chmod, "d/file", 0)
        ),
    )


@row(["ok", "EACCES"])
def listing_needs_reading_and_not_searching() -> object:
    os.mkdir("listed")
    os.mkdir("closed")
    os.chmod("listed", 0o744)
    os.chmod("closed", 0o711)
    return as_user(ALICE, lambda: answers((os.listdir, "listed"), (os.listdir, "closed")))


@row(["EACCES", "ok", "EACCES", "EACCES"])
def bits_of_the_owner_count_for_the_owner_even_when_others_have_more() -> object:
    make("file")
    os.chown("file", ALICE, ALICE)
    os.chmod("file", 0o066)
    return [
        as_user(ALICE, lambda: answer(os.open, "file", os.O_RDONLY)),
        as_user(BOB, lambda: answer(os.open, "file", os.O_RDONLY)),
        as_user(ALICE, lambda: answer(os.open, "file", os.O_WRONLY)),
        as_user(ALICE, lambda: answer(os.open, "file", os.O_RDWR)),
    ]


@row("ok")
def a_supplementary_group_counts() -> object:
    make("file")
    os.chown("file", 0, BOB)
    os.chmod("file", 0o640)
    return as_user(ALICE, lambda: answer(os.open, "file", os.O_RDONLY), [BOB])


@row([True, False, False, True])
def access_tells_for_the_calling_user() -> object:
    make("file")
    os.chmod("file", 0o604)
    return as_user(ALICE, lambda: [os.access("file", how) for how in (os.R_OK, os.W_OK, os.X_OK, os.F_OK)])


@row([True, True, False])
def access_tells_root_that_only_execution_needs_a_bit() -> object:
    make("file")
    os.chmod("file", 0)
    return [os.access("file", how) for how in (os.R_OK, os.W_OK, os.X_OK)]


@row(["EPERM", "EPERM", "EACCES", "ok"])
def times_of_anothers_file() -> object:
    make("file")
    make("writable")
    os.chmod("writable", 0o666)
    return as_user(
        ALICE,
        lambda: [
            answer(os.utime, "file", (1, 1)),
            answer(os.utime, "writable", (1, 1)),
            answer(os.utime, "file"),
            answer(os.utime, "writable"),
        ],
    )


@row(["EACCES", "EACCES", "EPERM"])
def extended_attributes_of_anothers_file() -> object:
    make("file")
    os.setxattr("file", "user.a", b"1")
    os.chmod("file", 0o600)
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    return as_user(
        ALICE,
        lambda: answers(
            (os.setxattr, "file", "user.a", b"2"),
            (os.getxattr, "file", "user.a"),
            (os.setxattr, "sticky", "user.a", b"1"),
        ),
    )


@row(["EACCES", "EACCES", "ok"])
def what_was_opened_stays_open_whatever_the_mode_becomes() -> object:
    make("file")
    os.chown("file", ALICE, ALICE)

    def use() -> list[str]:
        fd = os.open("file", os.O_RDONLY)
        os.chmod("file", 0)
        return [*answers((os.open, "file", os.O_RDONLY), (os.open, "file", os.O_WRONLY)), answer(os.pread, fd, 1, 0)]

    return as_user(ALICE, use)


MODES = {"alice": 0o6755, "root": 0o4755, "locking": 0o2644, "given": 0o6755, "cut": 0o6755, "opened": 0o6755}


@row([0o755, 0o4755, 0o2644, 0o755, 0o755, 0o755])
def changed_content_or_owner_drops_setuid_and_setgid() -> object:
    for name, mode in MODES.items():
        make(name)
        os.chown(name, ALICE, ALICE)
        os.chmod(name, mode)
    as_user(
        ALICE, lambda: [append("alice"), os.truncate("cut", 0), os.close(os.open("opened", os.O_WRONLY | os.O_TRUNC))]
    )
    append("root")
    append("locking")
    os.chown("given", BOB, BOB)
    return [os.stat(name).st_mode & 0o7777 for name in MODES]


def append(name: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"x")
    os.close(fd)
