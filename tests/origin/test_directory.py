"""A directory as origin: nothing outside it is read, listed, written or removed, and nobody gains a right by it."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.origin import Access, Listed, NotAtOrigin, OriginChanged, OriginError, OriginRefused, OriginUploader, Outgoing
from hcfs.origin import beneath as beneath_module
from hcfs.origin.directory import DirectoryClient
from lab.harness.actors import errno_of, eventually, load, put, store
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, content, evict_all, origin_status, sync
from lab.harness.users import NOBODY

SECRET = b"a secret outside of the origin"


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    made = tmp_path / "origin"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path / "outside"
    made.mkdir(mode=0o755)
    (made / "secret").write_bytes(SECRET)
    return made


def send(uploader: OriginUploader, key: str, data: bytes) -> None:
    """Write a file of the directory."""
    pieces = [data] if data else []
    uploader.put(
        Outgoing(uploader, namespace=1, key=key, size=len(data), token="test:1", pieces=lambda: iter(pieces)), None
    )


def client(origin: Path) -> DirectoryClient:
    return DirectoryClient(str(origin))


def listing(origin: Path) -> dict[str, Listed]:
    return {each.key: each for page in client(origin).list() for each in page}


def served(mount: Mount, origin: Path, name: str, *words: str) -> Path:
    hcfs("ns", "create", mount.dir, name, "--origin", origin, *words)
    return mount.dir / name


def as_nobody(directory: Path, call: str, *, gid: int = NOBODY) -> str:
    """What a Python expression gives in a directory, to a user who may nothing: its value, or the error's name."""
    program = (
        "import errno, os\n"
        f"os.setgroups([]); os.setresgid(*3 * [{gid}]); os.setresuid(*3 * [{NOBODY}])\n"
        f"try: print(eval({call!r}))\n"
        "except OSError as error: print(errno.errorcode[error.errno])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


def refused(mount: Mount, directory: Path) -> dict[str, str]:
    return {each["path"]: each["reason"] for each in origin_status(mount, directory)["refused"]}


@pytest.fixture
def others(make_mount: Callable[..., Mount]) -> Mount:
    """A mount that other users may look at."""
    return make_mount(options="allow_other,lookup_grace=0", allow_warnings=WARNINGS)


# --- nothing leads out -----------------------------------------------------------------------------------------------


def test_symlinks_lead_nowhere_else(shared: Mount, origin: Path, outside: Path) -> None:
    (origin / "in").mkdir()
    (origin / "in" / "model").write_bytes(b"model")
    (origin / "here").symlink_to("in/model")
    (origin / "in" / "up").symlink_to("../here")
    (origin / "folder").symlink_to("in")
    leaving = {
        "absolute": str(outside / "secret"),
        "relative": "../outside/secret",
        "in/deep": "../../outside/secret",
        "round": f"../{origin.name}/in/model",
        "tree": "../outside",
        "all": "/",
        "again": "absolute",
        "magic": "/proc/self/root/etc/passwd",
    }
    for name, target in leaving.items():
        (origin / name).symlink_to(target)
    (origin / "nothing").symlink_to("no such file")
    (origin / "itself").symlink_to("itself")
    (origin / "loop").symlink_to(".")
    there = served(shared, origin, "leads-out")
    assert sorted(os.listdir(there)) == ["folder", "here", "in"]
    assert load(there / "here") == load(there / "folder" / "up") == load(there / "in" / "up") == b"model"
    for name in leaving:
        assert errno_of(os.stat, there / name) == "EIO"
        assert errno_of(load, there / name) == "EIO"
    assert errno_of(load, there / "tree" / "secret") == "EIO"
    assert errno_of(os.stat, there / "nothing") == "ENOENT"
    said = refused(shared, there)
    assert set(said) == {*leaving, "itself", "loop", "folder/deep"}
    assert "it leads out of the directory" in said["absolute"]
    assert "leads to a directory above itself" in said["loop"]
    assert origin_status(shared, there)["refused_objects"] == len(said)


def test_what_is_put_in_place_of_what_was_listed(origin: Path, outside: Path) -> None:
    """A name that leads elsewhere by the time it is fetched: other content, and never opened."""
    (origin / "d").mkdir()
    for name in ("d/secret", "fifo", "link", "gone"):
        (origin / name).write_bytes(SECRET)
    listed = listing(origin)
    (origin / "d").rename(origin / "moved")
    (origin / "d").symlink_to(outside)
    (origin / "fifo").unlink()
    os.mkfifo(origin / "fifo")
    (origin / "link").unlink()
    (origin / "link").symlink_to(outside / "secret")
    (origin / "gone").unlink()

    def fetched(key: str) -> bytes:
        return b"".join(client(origin).fetch(listed[key], 0, len(SECRET)))

    for key, error in (
        ("d/secret", OriginRefused),
        ("fifo", OriginChanged),
        ("link", OriginRefused),
        ("gone", NotAtOrigin),
    ):
        with pytest.raises(error):
            fetched(key)


def test_a_directory_that_is_swapped_all_the_time(origin: Path, outside: Path) -> None:
    """Listed, read, written and removed while its owner exchanges a directory for a symlink that leads out."""
    (origin / "d").mkdir()
    for name in ("secret", "other"):
        (origin / "d" / name).write_bytes(b"what is in the origin itself..")
    os.symlink(outside, origin / "link")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(origin / "d", origin / "link")

    thread = threading.Thread(target=swap)
    thread.start()
    seen, wrote = set(), 0
    uploader = OriginUploader(str(origin), 1)
    try:
        for number in range(400):
            try:
                for listed in listing(origin).values():
                    if not listed.refused and not listed.is_directory:
                        seen.add(b"".join(client(origin).fetch(listed, 0, listed.size)))
            except OriginError:
                pass
            try:
                send(uploader, "d/new", b"new")
                uploader.delete("d/secret" if number % 2 else "d/new")
                wrote += 1
            except OriginError:
                pass
    finally:
        stop.set()
        thread.join()
    assert SECRET not in seen
    assert seen
    assert wrote
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": SECRET}


def test_uploads_and_removals_stay_beneath(shared: Mount, origin: Path, outside: Path) -> None:
    (origin / "d").mkdir()
    (origin / "d" / "secret").write_bytes(b"not so secret")
    there = served(shared, origin, "stays-beneath", "--write-policy", "write-through")
    assert load(there / "d" / "secret") == b"not so secret"
    (origin / "d").rename(origin / "moved")
    (origin / "d").symlink_to(outside)
    assert errno_of(store, there / "d" / "new", b"new") == "EIO"
    assert errno_of(store, there / "d" / "secret", b"overwritten") == "EIO"
    assert errno_of(os.unlink, there / "d" / "secret") == "EIO"
    assert "a symlink is on its way" in origin_status(shared, there)["last_error"]
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": SECRET}
    (origin / "d").unlink()
    (origin / "here").symlink_to("moved")
    (origin / "file").symlink_to("moved/secret")
    other = served(shared, origin, "stays-beneath-2", "--write-policy", "write-through")
    assert load(other / "here" / "secret") == b"not so secret"  # a symlink that stays beneath is read through
    assert errno_of(store, other / "here" / "new", b"new") == "EIO"  # and nothing is written through it
    assert errno_of(os.unlink, other / "here" / "secret") == "EIO"
    assert os.listdir(origin / "moved") == ["secret"]
    put(other / "file", b"of its own")  # and the file takes the place of one
    assert (origin / "file").read_bytes() == b"of its own"
    assert (origin / "moved" / "secret").read_bytes() == b"not so secret"


def test_a_symlink_of_somebody_elses_lends_nobody_the_daemons_rights(
    shared: Mount, origin: Path, outside: Path
) -> None:
    """Who owns a directory of the origin puts a symlink in its place, to one in which only the daemon may write."""
    (origin / "theirs" / "d").mkdir(parents=True)
    (origin / "private").mkdir(mode=0o700)
    (origin / "private" / "f").write_bytes(SECRET)
    (origin / "theirs" / "d" / "f").write_bytes(b"theirs")
    there = served(shared, origin, "lends-nothing", "--write-policy", "write-through")
    assert load(there / "theirs" / "d" / "f") == b"theirs"
    (origin / "theirs" / "d").rename(origin / "theirs" / "was")
    (origin / "theirs" / "d").symlink_to("../private")
    assert errno_of(store, there / "theirs" / "d" / "f", b"overwritten") == "EIO"
    assert errno_of(store, there / "theirs" / "d" / "new", b"new") == "EIO"
    assert errno_of(os.unlink, there / "theirs" / "d" / "f") == "EIO"
    assert {path.name: path.read_bytes() for path in (origin / "private").iterdir()} == {"f": SECRET}


def test_an_origin_that_is_away_loses_and_removes_nothing(shared: Mount, origin: Path) -> None:
    """As a share that isn't mounted just now: its files aren't absent, and what is to go there is tried again."""
    (origin / "f").write_bytes(b"there")
    through = served(shared, origin, "away", "--write-policy", "write-through")
    back = served(shared, origin, "away-later", "--write-policy", "write-back")
    assert load(through / "f") == load(back / "f") == b"there"
    origin.rename(origin.with_name("elsewhere"))
    assert errno_of(os.unlink, through / "f") == "EIO"
    put(back / "f", b"newer")
    eventually(lambda: sync(shared, back)["objects"][0]["attempts"] > 1, "it is tried again")
    assert sync(shared, back)["objects"][0]["state"] != "sync-failed"
    origin.with_name("elsewhere").rename(origin)
    assert (origin / "f").read_bytes() == load(through / "f") == b"there"
    hcfs("sync", shared.dir, back.name, "--wait")
    assert (origin / "f").read_bytes() == b"newer"


def test_special_files_are_not_there(shared: Mount, origin: Path) -> None:
    (origin / "model").write_bytes(b"model")
    os.mkfifo(origin / "fifo")
    os.mknod(origin / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.mknod(origin / "block", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    (origin / "link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(origin / "s"))
        there = served(shared, origin, "special")
        assert os.listdir(there) == ["model"]
        for name in ("fifo", "zero", "block", "link", "s"):
            assert errno_of(os.stat, there / name) == "ENOENT"


# --- who may read it -------------------------------------------------------------------------------------------------


def test_owners_and_modes_are_the_origins(others: Mount, origin: Path) -> None:
    files = {"mine": (0o600, 0, 0), "all": (0o644, 0, 0), "group": (0o640, 0, NOBODY), "theirs": (0o4755, NOBODY, 0)}
    for name, (mode, uid, gid) in files.items():
        (origin / name).write_bytes(name.encode())
        os.chown(origin / name, uid, gid)
        os.chmod(origin / name, mode)
    for name in ("closed", "open"):
        (origin / name).mkdir(mode=0o700 if name == "closed" else 0o755)
        (origin / name / "inside").write_bytes(b"inside")
    there = served(others, origin, "modes")
    for _ in range(2):  # at the origin alone, then on the device
        for name, (mode, uid, gid) in files.items():
            found = os.stat(there / name)
            assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (mode & 0o555, uid, gid)
        assert stat.S_IMODE(os.stat(there / "closed").st_mode) == 0o500
        assert stat.S_IMODE(os.stat(there / "open").st_mode) == 0o555
        assert as_nobody(there, "open('all').read()") == "all"
        assert as_nobody(there, "open('group').read()") == "group"
        assert as_nobody(there, "open('group').read()", gid=1) == "EACCES"
        assert as_nobody(there, "open('theirs').read()") == "theirs"
        assert as_nobody(there, "open('mine').read()") == "EACCES"
        assert as_nobody(there, "open('open/inside').read()") == "inside"
        assert as_nobody(there, "open('closed/inside').read()") == "EACCES"
        assert as_nobody(there, "os.listdir('closed')") == "EACCES"
        for path in there.rglob("*"):
            assert path.is_dir() or load(path)


def test_a_symlink_opens_no_closed_directory(others: Mount, origin: Path) -> None:
    (origin / "closed").mkdir(mode=0o700)
    (origin / "closed" / "sub").mkdir(mode=0o755)
    (origin / "closed" / "model").write_bytes(b"model")
    (origin / "closed" / "sub" / "model").write_bytes(b"model")
    (origin / "open").mkdir(mode=0o755)
    (origin / "file").symlink_to("closed/model")
    (origin / "open" / "file").symlink_to("../closed/sub/model")
    (origin / "folder").symlink_to("closed/sub")
    there = served(others, origin, "links")
    for name in ("file", "open/file", "folder/model"):
        assert load(there / name) == b"model"
        assert as_nobody(there, f"open({name!r}).read()") == "EACCES"
    assert as_nobody(there, "os.listdir('folder')") == "EACCES"


def test_what_the_origin_itself_forbids(others: Mount, origin: Path) -> None:
    (origin / "model").write_bytes(b"model")
    (origin / "d").mkdir(mode=0o755)
    (origin / "d" / "model").write_bytes(b"model")
    os.chmod(origin, 0o700)
    there = served(others, origin, "root-closed")
    assert load(there / "model") == load(there / "d" / "model") == b"model"
    assert as_nobody(there, "open('model').read()") == "EACCES"
    assert as_nobody(there, "open('d/model').read()") == "EACCES"


def test_an_access_control_list_leaves_the_owner(others: Mount, origin: Path) -> None:
    (origin / "model").write_bytes(b"model")
    os.chown(origin / "model", 0, NOBODY)
    # user::rw-, user:1:rw-, group::---, mask::rw-, other::---: the mode's group bits are the mask's.
    entries = [(1, 6, 0xFFFFFFFF), (2, 6, 1), (4, 0, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    acl = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in entries
    )
    os.setxattr(origin / "model", "system.posix_acl_access", acl)
    assert stat.S_IMODE(os.stat(origin / "model").st_mode) == 0o660
    there = served(others, origin, "acl")
    assert stat.S_IMODE(os.stat(there / "model").st_mode) == 0o400
    assert load(there / "model") == b"model"
    assert as_nobody(there, "open('model').read()") == "EACCES"


def test_rights_that_change_at_the_origin(others: Mount, origin: Path) -> None:
    (origin / "d").mkdir(mode=0o755)
    for name in ("cached", "d/model", "remote"):
        (origin / name).write_bytes(b"model")
    there = served(others, origin, "change", "--origin-changes", "revalidate=0")
    assert as_nobody(there, "open('cached').read()") == "model"
    inode = os.stat(there / "remote").st_ino
    for name in ("cached", "remote"):
        os.chmod(origin / name, 0o600)
    os.chmod(origin / "d", 0o700)
    os.listdir(there)
    for path in ("cached", "remote", "d/model"):
        assert_soon(lambda path=path: as_nobody(there, f"open({path!r}).read()") == "EACCES")
    assert os.stat(there / "remote").st_ino == inode
    assert origin_status(others, there)["ingests"] == 1


def exchange(first: Path, second: Path) -> None:
    """Each gets the other's name, at once."""
    renamed = ctypes.CDLL(None).renameat2(-100, os.fsencode(first), -100, os.fsencode(second), 2)
    assert renamed == 0


def assert_soon(true: Callable[[], bool]) -> None:
    """The kernel answers for attributes for a second at most."""
    for _ in range(100):
        if true():
            return
        threading.Event().wait(0.1)
    raise AssertionError


@pytest.mark.parametrize("policy", ["write-back", "write-through"])
def test_what_is_written_keeps_its_owner_and_mode(others: Mount, origin: Path, policy: str) -> None:
    (origin / "shared").mkdir()
    os.chown(origin / "shared", NOBODY, NOBODY)
    os.chmod(origin / "shared", 0o750)
    (origin / "shared" / "model").write_bytes(b"model")
    there = served(others, origin, policy, "--write-policy", policy)
    os.chown(there, NOBODY, NOBODY)
    made = (
        "[os.umask(0o077), os.mkdir('private'), open('private/secret', 'w').write('secret'), "
        "open('shared/secret', 'w').write('secret')]"
    )
    assert as_nobody(there, made) == "[18, None, 6, 6]"
    assert sync(others, there, "--wait")["objects"] == []
    for directory in (origin, there):
        for name, mode in (("private", 0o700), ("private/secret", 0o600), ("shared", 0o750), ("shared/secret", 0o600)):
            found = os.stat(directory / name)
            assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (mode, NOBODY, NOBODY)
    evict_all(others, there)
    assert as_nobody(there, "open('private/secret').read()") == "secret"
    assert as_nobody(there, "open('private/secret').read()", gid=1) == "secret"
    found = os.stat(there / "private" / "secret")
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, NOBODY)
    assert not list(origin.rglob(".*"))


def test_modes_of_directories_that_were_changed_here(others: Mount, origin: Path) -> None:
    (origin / "d").mkdir(mode=0o755)
    (origin / "d" / "f").write_bytes(b"f")
    options = ("--write-policy", "write-back", "--origin-changes", "revalidate=0")
    there = served(others, origin, "kept-modes", *options)
    os.listdir(there)
    os.chmod(there / "d", 0o700)
    os.listdir(there)
    assert stat.S_IMODE(os.stat(there / "d").st_mode) == 0o700
    os.chmod(origin / "d", 0o711)
    os.listdir(there)
    assert_soon(lambda: stat.S_IMODE(os.stat(there / "d").st_mode) == 0o711)


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "directory", "left"),
    [
        (0o644, 5, 5, (0o755, 0, 0), 0o644),
        (0o644, 5, 5, (0o700, 0, 0), 0o000),
        (0o644, 0, 5, (0o700, 0, 0), 0o600),
        (0o644, 5, 5, (0o700, 5, 5), 0o600),
        (0o664, 5, 5, (0o750, 0, 5), 0o060),
        (0o664, 5, 5, (0o750, 5, 5), 0o660),
        (0o664, 5, 5, (0o705, 5, 5), 0o604),
        (0o664, 5, 5, (0o705, 0, 6), 0o000),
        (0o664, 5, 5, (0o711, 0, 6), 0o664),
    ],
)
def test_rights_within_a_directory(mode: int, uid: int, gid: int, directory: tuple[int, int, int], left: int) -> None:
    of, owner, group = directory
    status = os.stat_result((stat.S_IFDIR | of, 1, 1, 2, owner, group, 0, 0, 0, 0))
    assert Access(mode, uid, gid).within([status]) == Access(left, uid, gid)


# --- what is there ---------------------------------------------------------------------------------------------------


def test_names_that_no_other_program_has(shared: Mount, origin: Path) -> None:
    """All of a directory's names, but those that can't be shown, which are refused alone."""
    names = ["model#1", "#2", "a b ", " a", "pl%us", "q?", "\u00fc", "u\u0308", "x" * 255, "b\\s", "..."]
    for name in names:
        (origin / name).write_bytes(name.encode())
    for name in ("new\nline", "\x1b[2J", os.fsdecode(b"bad\xff")):
        (origin / name).write_bytes(b"refused")
    (origin / ".hcfs-upload-0").write_bytes(b"on its way")
    (origin / "empty").mkdir()
    there = served(shared, origin, "odd", "--write-policy", "write-through")
    assert sorted(os.listdir(there)) == sorted(names)
    for name in names:
        assert load(there / name) == name.encode()
        put(there / name, name.encode() * 2)
        assert (origin / name).read_bytes() == name.encode() * 2
        (there / name).unlink()
        assert not (origin / name).exists()
    assert errno_of(os.stat, there / "new\nline") == "EIO"
    assert errno_of(os.unlink, there / "new\nline") == "EIO"
    assert set(refused(shared, there)) == {"new\nline", "\x1b[2J", r"bad\xff"}
    assert errno_of(store, there / ".hcfs-upload-0", b"") == "EINVAL"
    assert len(os.listdir(origin)) == 5


def test_a_kernel_without_openat2(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (origin / "model").write_bytes(b"model")
    (listed,) = listing(origin).values()
    (origin / "d").mkdir()
    monkeypatch.setattr(beneath_module, "_SYS_OPENAT2", 100_000)  # a call that no kernel has
    uploader = OriginUploader(str(origin), 1)
    for call in (
        lambda: listing(origin),
        lambda: list(client(origin).fetch(listed, 0, 5)),
        lambda: send(uploader, "f", b""),
        lambda: uploader.delete("model"),
    ):
        with pytest.raises(OriginRefused, match=r"openat2, which is Linux 5\.6"):
            call()
    assert (origin / "model").exists()


def test_etags_are_those_of_earlier_versions(origin: Path) -> None:
    """What is on a device already stays the same content."""
    from obstore.store import LocalStore

    (origin / "model").write_bytes(b"model")
    os.utime(origin / "model", ns=(1, 1_234_567_890_123_456_789))
    ((found,),) = LocalStore(origin).list()
    assert listing(origin)["model"].etag == found["e_tag"]


def test_a_directory_needs_no_library(origin: Path) -> None:
    (origin / "model").write_bytes(content("model"))
    program = (
        "import sys\n"
        "sys.modules['obstore'] = None\n"
        "from hcfs.origin import OriginUploader, open_origin\n"
        "client = open_origin(sys.argv[1])\n"
        "OriginUploader(sys.argv[1], 1).delete('nothing')\n"
        "((listed,),) = client.list()\n"
        "assert sum(map(len, client.fetch(listed, 0, listed.size))) == listed.size\n"
    )
    subprocess.run([sys.executable, "-c", program, origin], check=True, timeout=60)


def test_many_levels_and_many_ways(origin: Path) -> None:
    """Directories that lead to one another have an end, and so has the depth."""
    deep = origin / "/".join(["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "model").write_bytes(b"model")
    (origin / "seen").write_bytes(b"seen")
    descriptors = len(os.listdir("/proc/self/fd"))
    found = listing(origin)
    assert [each.key for each in found.values() if each.refused] == ["/".join(["d"] * 128)]
    assert "seen" in found
    for first in range(4):
        (origin / f"x{first}").mkdir()
        (origin / f"x{first}" / "f").write_bytes(b"f")
        for second in range(4):
            (origin / f"x{first}" / f"to{second}").symlink_to(f"../x{second}")
    assert sum(key.endswith("/f") for key in listing(origin)) == 64  # each way through four, without a return
    assert len(os.listdir("/proc/self/fd")) == descriptors
