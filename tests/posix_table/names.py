"""Names and paths: their length, their bytes, and how they are walked."""

from __future__ import annotations

import os

from posix_table.table import answer, answers, make, read, row


def _by_length(*lengths: int) -> list[str]:
    return [answer(make, b"n" * length) for length in lengths]


@row(["ok", "ok"])
def names_of_up_to_255_bytes() -> object:
    return _by_length(1, 255)


@row(
    ["ENAMETOOLONG", "ENAMETOOLONG", "ENAMETOOLONG"],
    hcfs=["ok", "ok", "ENAMETOOLONG"],
    why="names have up to 1,024 bytes: a long model name with a salt passes 255",
)
def longer_names() -> object:
    return _by_length(256, 1024, 1025)


@row(["ENAMETOOLONG"] * 9)
def a_name_that_is_too_long_is_refused_by_every_call() -> object:
    make("file")
    name = "n" * 1025
    return answers(
        *((os.stat, name), (os.open, name, os.O_RDONLY), (os.mkdir, name), (os.rmdir, name), (os.unlink, name)),
        *((os.symlink, "x", name), (os.link, "file", name), (os.rename, "file", name), (os.rename, name, "x")),
    )


@row(255, hcfs=1024, why="f_namemax tells the truth")
def the_longest_name_as_told() -> object:
    return os.statvfs(".").f_namemax


@row([True] * 6)
def any_bytes_but_slash_and_nul() -> object:
    names = [b"with space", b"new\nline", b"\xff\xfe not utf-8", b"\xc3\xa9", b"...", b"*?[]"]
    for name in names:
        make(name, name)
    listed = os.listdir(b".")
    return [name in listed and read(name) == name for name in names]


@row([b"A", b"a", b"e\xcc\x81", b"\xc3\xa9"])
def names_are_compared_byte_for_byte() -> object:
    for name in (b"A", b"a", b"e\xcc\x81", b"\xc3\xa9"):
        make(name, name)
    return sorted(os.listdir(b"."))


@row(["ok", "ENAMETOOLONG"])
def paths_of_up_to_4095_bytes() -> object:
    deep = "/".join(["d" * 100] * 40)
    os.makedirs(deep)
    rest = 4095 - len(deep) - 1
    return answers((make, f"{deep}/{'n' * rest}"), (os.stat, f"{deep}/{'n' * (rest + 1)}"))


@row((60, b"deep down"))
def a_tree_deeper_than_any_path_is_walked_step_by_step() -> object:
    start = os.open(".", os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    make("file", b"deep down")
    content = read("file")
    depth = 0
    while os.stat(".").st_ino != os.fstat(start).st_ino:
        os.chdir("..")
        depth += 1
    return depth, content


@row(["ok", "ok", "ok", "ok"])
def dots_and_slashes_in_paths() -> object:
    os.mkdir("d")
    make("d/file")
    return answers((os.stat, "d//file"), (os.stat, "./d/./file"), (os.stat, "d/../d/file"), (os.listdir, "d/../d/"))


@row(["ENOENT", "ENOTDIR"])
def dots_after_what_isnt_a_directory() -> object:
    make("file")
    return answers((os.stat, "absent/.."), (os.stat, "file/.."))


@row(["ok", "ELOOP"])
def forty_symlinks_are_followed_and_no_more() -> object:
    make("l0")
    for number in range(1, 42):
        os.symlink(f"l{number - 1}", f"l{number}")
    return answers((os.stat, "l40"), (os.stat, "l41"))


@row(0)
def everything_goes_while_it_is_listed() -> object:
    for number in range(700):
        os.mknod(f"file{number}", 0o100644)
    with os.scandir(".") as entries:
        for entry in entries:
            os.unlink(entry.path)
    return len(os.listdir("."))


@row((1000, 1000))
def a_large_directory_lists_each_name_once() -> object:
    for number in range(1000):
        os.mknod(f"a name with some length {number}", 0o100644)
    names = os.listdir(".")
    return len(names), len(set(names))
