"""Modes, umask, and to whom what is made belongs."""

from __future__ import annotations

import os

from posix_table.table import ALICE, BOB, answer, as_user, make, mode_of, read, row, settle


def _modes(make_one: object) -> list[str]:
    found = []
    for mask, mode in ((0o022, 0o666), (0o077, 0o777), (0o000, 0o666), (0o027, 0o640), (0o777, 0o777), (0, 0o7777)):
        os.umask(mask)
        name = f"{mask}-{mode}"
        make_one(name, mode)  # type: ignore[operator]
        found.append(mode_of(name))
    os.umask(0o022)
    return found


def _file(name: str, mode: int) -> None:
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))


@row(["644", "700", "666", "640", "0", "7777"])
def files_get_the_mode_less_the_umask() -> object:
    return _modes(_file)


@row(["644", "700", "666", "640", "0", "1777"])
def directories_get_the_mode_less_the_umask_and_no_set_id_bits() -> object:
    return _modes(os.mkdir)


@row(["644", "700", "666", "640", "0", "7777"])
def mknod_gets_the_mode_less_the_umask() -> object:
    return _modes(lambda name, mode: os.mknod(name, mode | 0o100000))


@row("777")
def symlinks_have_all_bits() -> object:
    os.umask(0o077)
    os.symlink("nowhere", "link")
    return mode_of("link")


@row((ALICE, ALICE, "640"))
def files_belong_to_who_makes_them() -> object:
    os.chmod(".", 0o777)

    def create() -> None:
        os.umask(0o027)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o666))

    as_user(ALICE, create)
    settle("file")
    return os.stat("file").st_uid, os.stat("file").st_gid, mode_of("file")


@row([(ALICE, ALICE)] * 3)
def directories_symlinks_and_nodes_belong_to_who_makes_them() -> object:
    os.chmod(".", 0o777)

    def create() -> None:
        os.mkdir("d")
        os.symlink("x", "l")
        os.mknod("n", 0o100644)

    as_user(ALICE, create)
    return [(os.lstat(name).st_uid, os.lstat(name).st_gid) for name in ("d", "l", "n")]


@row([("file", BOB, "644"), ("directory", BOB, "2755"), ("link", BOB, "777")])
def a_setgid_directory_hands_on_its_group_and_to_directories_the_bit() -> object:
    os.mkdir("group")
    os.chown("group", 0, BOB)
    os.chmod("group", 0o2777)

    def create() -> None:
        os.close(os.open("group/file", os.O_WRONLY | os.O_CREAT, 0o644))
        os.mkdir("group/directory")
        os.symlink("x", "group/link")

    as_user(ALICE, create)
    settle("group/file")
    names = ("file", "directory", "link")
    return [(name, os.lstat(f"group/{name}").st_gid, mode_of(f"group/{name}")) for name in names]


@row("775")
def setgid_is_dropped_from_a_file_made_by_one_outside_the_directorys_group() -> object:
    os.mkdir("group")
    os.chown("group", 0, BOB)
    os.chmod("group", 0o2777)

    def create() -> None:
        os.umask(0o002)
        os.close(os.open("group/file", os.O_WRONLY | os.O_CREAT, 0o2775))

    as_user(ALICE, create)
    settle("group/file")
    return mode_of("group/file")


@row((b"written", "0"))
def a_file_made_without_permissions_is_open_for_its_maker() -> object:
    os.chmod(".", 0o777)

    def create() -> None:
        fd = os.open("file", os.O_WRONLY | os.O_CREAT, 0)
        os.write(fd, b"written")
        os.close(fd)

    as_user(ALICE, create)
    settle("file")
    return read("file"), mode_of("file")


@row("EACCES")
def a_file_made_without_permissions_is_closed_for_its_maker_later() -> object:
    os.chmod(".", 0o777)
    as_user(ALICE, lambda: os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0)))
    settle("file")
    return as_user(ALICE, lambda: answer(os.open, "file", os.O_RDONLY))


@row(("640", 0, 0))
def writing_over_a_file_keeps_mode_and_owner() -> object:
    make("file", mode=0o640)
    os.chmod(".", 0o777)
    os.chmod("file", 0o646)
    as_user(ALICE, lambda: make("file", b"other", 0o600))
    os.chmod("file", 0o640)
    return mode_of("file"), os.stat("file").st_uid, os.stat("file").st_gid


@row(("777", "6777"))
def writing_by_another_user_takes_the_set_id_bits_away_and_by_root_not() -> object:
    for name in ("other", "root"):
        make(name)
        os.chmod(name, 0o6777)

    def write(name: str) -> None:
        fd = os.open(name, os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)

    as_user(ALICE, lambda: write("other"))
    write("root")
    return mode_of("other"), mode_of("root")


@row(["755", "755", "2745"])
def chown_takes_the_set_id_bits_of_files_away() -> object:
    found = []
    for mode in (0o4755, 0o6755, 0o2745):
        make(f"{mode}")
        os.chmod(f"{mode}", mode)
        os.chown(f"{mode}", ALICE, ALICE)
        found.append(mode_of(f"{mode}"))
    return found


@row("755")
def chmod_by_an_owner_outside_the_group_drops_setgid() -> object:
    make("file")
    os.chown("file", ALICE, BOB)
    as_user(ALICE, lambda: os.chmod("file", 0o2755))
    return mode_of("file")


@row(["ok", "EPERM", "EPERM", "EPERM"])
def an_owner_may_give_a_file_to_own_groups_only() -> object:
    make("file")
    os.chown("file", ALICE, ALICE)
    group = 3000
    return [
        as_user(ALICE, lambda: answer(os.chown, "file", -1, group), [group]),
        as_user(ALICE, lambda: answer(os.chown, "file", -1, BOB)),
        as_user(ALICE, lambda: answer(os.chown, "file", BOB, -1)),
        as_user(BOB, lambda: answer(os.chmod, "file", 0o777)),
    ]
