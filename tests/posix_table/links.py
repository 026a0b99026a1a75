"""Links, unlinks and renames: what names do to each other, and to what is open."""

from __future__ import annotations

import os
import stat

from posix_table.table import answer, answers, in_process, make, mode_of, read, row, settle


@row([(1, True), (2, True), (3, True), (2, True), (1, True)])
def link_counts() -> object:
    make("a")
    ino, found = os.stat("a").st_ino, []
    found.append((os.stat("a").st_nlink, True))
    for old, new in (("a", "b"), ("b", "c")):
        os.link(old, new)
        found.append((os.stat("a").st_nlink, os.stat(new).st_ino == ino))
    for name in ("a", "b"):
        os.unlink(name)
        found.append((os.stat("c").st_nlink, os.stat("c").st_ino == ino))
    return found


@row([2, 3, 4, 3, 3, 2])
def a_directory_counts_its_subdirectories() -> object:
    os.mkdir("d")
    found = [os.stat("d").st_nlink]
    for call in (
        *(lambda: os.mkdir("d/1"), lambda: os.mkdir("d/2"), lambda: os.rmdir("d/1")),
        *(lambda: make("d/file"), lambda: os.rename("d/2", "e")),
    ):
        call()
        found.append(os.stat("d").st_nlink)
    return found


@row(("x", True))
def link_of_a_symlink_is_another_name_of_it() -> object:
    os.symlink("x", "a")
    os.link("a", "b", follow_symlinks=False)
    return os.readlink("b"), os.lstat("a").st_ino == os.lstat("b").st_ino


@row((["a", "b"], 2))
def renaming_one_name_of_a_file_to_another_of_it_does_nothing() -> object:
    make("a")
    os.link("a", "b")
    os.rename("a", "b")
    return sorted(os.listdir(".")), os.stat("b").st_nlink


@row((["a"], b"content"))
def renaming_to_itself_does_nothing() -> object:
    make("a")
    os.rename("a", "a")
    return os.listdir("."), read("a")


@row((["new"], b"old", True))
def rename_keeps_the_inode_and_takes_the_old_name_away() -> object:
    make("old", b"old")
    ino = os.stat("old").st_ino
    os.rename("old", "new")
    return os.listdir("."), read("new"), os.stat("new").st_ino == ino


@row((b"a", 1, 0, b"b"))
def rename_over_a_file_leaves_it_to_its_open_handles() -> object:
    make("a", b"a")
    make("b", b"b")
    fd = os.open("b", os.O_RDONLY)
    os.rename("a", "b")
    return read("b"), os.stat("b").st_nlink, os.fstat(fd).st_nlink, os.read(fd, 10)


@row((b"content", 0, "ENOENT", []))
def an_unlinked_file_goes_on_for_its_open_handles() -> object:
    make("file")
    fd = os.open("file", os.O_RDONLY)
    os.unlink("file")
    return os.read(fd, 100), os.fstat(fd).st_nlink, answer(os.stat, "file"), os.listdir(".")


@row((b"content and more", []))
def an_unlinked_file_is_still_written_by_who_has_it_open() -> object:
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"content")
    os.unlink("file")
    os.write(fd, b" and more")
    return os.pread(fd, 100, 0), os.listdir(".")


@row((b"other", 1))
def unlink_of_one_name_leaves_the_other() -> object:
    make("a", b"other")
    os.link("a", "b")
    os.unlink("a")
    return read("b"), os.stat("b").st_nlink


@row((b"new", b"new"), hcfs=(b"old", b"new"), why="committed objects don't change: writing by one link separates it")
def writing_through_one_link() -> object:
    make("a", b"old")
    os.link("a", "b")
    make("b", b"new")
    return read("a"), read("b")


@row(True, hcfs=False, why="each new content is a new object; what has the old one open keeps it whole")
def writing_keeps_the_inode_number() -> object:
    make("a", b"old")
    ino = os.stat("a").st_ino
    make("a", b"new")
    return os.stat("a").st_ino == ino


@row(b"new", hcfs=b"old", why="a handle reads the object that it opened")
def what_is_written_is_seen_by_handles_opened_before() -> object:
    make("a", b"old")
    fd = os.open("a", os.O_RDONLY)
    in_process(lambda: make("a", b"new"))
    return os.pread(fd, 10, 0)


@row("seen", hcfs="ENOENT", why="staged is a miss: until it is closed, a new file exists for its writer alone")
def a_file_is_seen_by_others_before_it_is_closed() -> object:
    fd = os.open("a", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"part")
    said = in_process(lambda: answer(os.stat, "a"))
    os.close(fd)
    return "seen" if said == "ok" else said


@row((["d"], ["file"], True))
def rename_of_a_directory_takes_all_along() -> object:
    os.mkdir("c")
    make("c/file")
    ino = os.stat("c/file").st_ino
    os.rename("c", "d")
    return os.listdir("."), os.listdir("d"), os.stat("d/file").st_ino == ino


@row(True)
def a_moved_directorys_parent_is_the_new_one() -> object:
    os.makedirs("a/moved")
    os.mkdir("b")
    os.rename("a/moved", "b/moved")
    return os.stat("b/moved/..").st_ino == os.stat("b").st_ino


@row(["ENOENT", "ENOENT", []])
def in_a_removed_directory_nothing_is_made() -> object:
    os.mkdir("d")
    fd = os.open("d", os.O_RDONLY)
    os.rmdir("d")
    said = [answer(os.mkdir, "x", dir_fd=fd), answer(os.open, "x", os.O_WRONLY | os.O_CREAT, dir_fd=fd)]
    return [*said, os.listdir(fd)]


@row(
    ("ENOENT", "ok"),
    hcfs=("ENOENT", "ESTALE"),
    why="a removed directory stays for open handles only, not for who is in it",
)
def a_removed_working_directory() -> object:
    os.mkdir("d")
    os.chdir("d")
    os.rmdir("../d")
    return answer(os.getcwd), answer(os.listdir, ".")


@row(("640", b"1", b"content"))
def a_rename_takes_mode_and_attributes_along() -> object:
    make("file")
    os.chmod("file", 0o640)
    os.setxattr("file", "user.a", b"1")
    os.rename("file", "new")
    return mode_of("new"), os.getxattr("new", "user.a"), read("new")


@row((b"0123456789", 10))
def appends_go_to_the_end_wherever_the_offset_is() -> object:
    make("file", b"01234")
    fd = os.open("file", os.O_WRONLY | os.O_APPEND)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"56")
    os.write(fd, b"789")
    size = os.fstat(fd).st_size
    os.close(fd)
    return in_process(lambda: _load("file", 10)), size


def _load(path: str, size: int) -> bytes:
    """As soon as what was closed is published."""
    for _ in range(1000):
        with open(path, "rb") as file:
            data = file.read()
        if len(data) == size:
            return data
        os.stat(path)
    return data


@row((b"\0" * 10_000 + b"end", True))
def what_was_never_written_reads_as_zeros() -> object:
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"end", 1 << 20)
    found = os.pread(fd, 10_003, (1 << 20) - 10_000)
    os.close(fd)
    settle("file")
    return found, os.stat("file").st_blocks * 512 < 1 << 20


@row((b"abc\0\0\0", b"ab"))
def what_was_cut_off_reads_as_zeros_later() -> object:
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"abcdef")
    os.ftruncate(fd, 3)
    os.ftruncate(fd, 6)
    first = os.pread(fd, 10, 0)
    os.ftruncate(fd, 2)
    return first, os.pread(fd, 10, 0)


@row((0, b"", "ok"))
def calls_of_no_bytes() -> object:
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    return os.write(fd, b""), os.read(fd, 0), answer(os.close, fd)


@row((0, True))
def statfs_and_new_files() -> object:
    make("file", b"")
    status = os.stat("file")
    return status.st_size, stat.S_ISREG(status.st_mode)


@row(["ok", "ok", "EAGAIN", "ok"])
def a_lock_file_excludes_another_process() -> object:
    import fcntl

    fd = os.open("x.lock", os.O_RDWR | os.O_CREAT)
    first = answer(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def other() -> list[str]:
        mine = os.open("x.lock", os.O_RDWR | os.O_CREAT)
        return ["ok", answer(fcntl.flock, mine, fcntl.LOCK_EX | fcntl.LOCK_NB)]

    said = in_process(other)
    fcntl.flock(fd, fcntl.LOCK_UN)
    return [first, *said, in_process(other)[1]]


@row(["ok", "EEXIST"])
def exclusive_creation_excludes_another_process() -> object:
    fd = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    said = in_process(lambda: answer(os.open, "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.close(fd)
    return ["ok", said]


@row(["ok", "ok", "ok"])
def handles_by_way_of_proc() -> object:
    make("file")
    fd = os.open("file", os.O_RDONLY)
    path = os.open("file", os.O_PATH)
    return answers(
        (os.open, f"/proc/self/fd/{fd}", os.O_RDONLY),
        (os.open, f"/proc/self/fd/{path}", os.O_RDONLY),
        (os.stat, f"/proc/self/fd/{fd}"),
    )


@row("ok", hcfs="ESTALE", why="a version needs the name that it is made of, which a link of /proc doesn't give")
def writing_by_way_of_proc() -> object:
    make("file")
    fd = os.open("file", os.O_RDONLY)
    return answer(os.open, f"/proc/self/fd/{fd}", os.O_WRONLY)
