"""Reading a file while it is fetched: on a real mount, from a real server."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from mount.damage import flip

from hcfs.fuse.limits import AHEAD_WAITING, BACKGROUND
from hcfs.weights import stream
from lab.harness.actors import errno_of, eventually, load, load_direct, pread_direct, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, Together, content, evict_all, namespace, origin_status, state
from lab.harness.origins.readers import WAYS
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault, OriginServer
from lab.harness.weights import bytes_of, noise, safetensors

FRONT_ENDS = ("data_plane=on", "data_plane=off")
MIB = 1 << 20
SIZE = 3_000_001
HERE = 256 << 10
"""Bytes that have come when the server holds the rest back behind 1 MB."""
MODEL = content("streamed", SIZE)


@contextmanager
def held_back(server: OriginServer, prefix: str = "", at: int = 1_000_000) -> Iterator[threading.Event]:
    """Of each object below a prefix some bytes come, until the event is set, or the end. A fetch that loses patience,
    which it does after 10 s, gets no more by asking again."""
    hold = threading.Event()
    server.faults = lambda asked, number: (
        None if asked.lists or prefix not in asked.path else Fault(hold=hold, hold_at=0 if number else at)
    )
    try:
        yield hold
    finally:
        hold.set()


def come(mount: Mount, directory: Path, least: int) -> None:
    eventually(
        lambda: any(each["bytes"] >= least for each in origin_status(mount, directory)["ingesting"]), "a part has come"
    )


@contextmanager
def opened(path: Path, flags: int = 0) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_bytes_are_read_as_they_arrive(
    shared_mounts: Callable[[str], Mount], server: OriginServer, front_end: str
) -> None:
    """By every way to read; what hasn't come is waited for; afterwards the handles go on with the object."""
    mount = shared_mounts(front_end)
    weights, prefix = namespace(mount, server, {"model": MODEL})
    before = os.stat(weights / "model")
    with ExitStack() as stack:
        hold = stack.enter_context(held_back(server))
        fd = stack.enter_context(opened(weights / "model"))
        direct = stack.enter_context(opened(weights / "model", os.O_DIRECT))
        assert os.pread(fd, 100, 7) == MODEL[7:107]
        assert pread_direct(direct, HERE, 0) == MODEL[:HERE]
        mapping = stack.enter_context(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        assert mapping[1000:2000] == MODEL[1000:2000]
        (ingesting,) = origin_status(mount, weights)["ingesting"]
        assert ingesting["readers"] == 2
        assert HERE <= ingesting["bytes"] < SIZE == ingesting["size"]
        assert state(weights / "model") == "remote"
        read, write = os.pipe()
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        assert os.sendfile(write, fd, 5000, 20_000) == 20_000
        assert os.read(read, 20_000) == MODEL[5000:25_000]
        os.posix_fadvise(fd, 0, SIZE, os.POSIX_FADV_WILLNEED)
        assert os.pread(fd, 0, SIZE) == os.pread(fd, 10, SIZE) == b""
        later = [
            Together(1, lambda: os.pread(fd, 1000, SIZE - 1000)),
            Together(1, lambda: pread_direct(direct, MIB, MIB)),
            Together(3, lambda: load(weights / "model")),
            Together(1, lambda: load_direct(weights / "model", skew=24)),
        ]
        # A page fault that waits holds the interpreter, and the server is in this process.
        faults = subprocess.Popen(
            [sys.executable, "-c", FAULTS, str(weights / "model")], stdout=subprocess.PIPE, text=True
        )
        assert [each.answers for each in later] == [[]] * 4
        hold.set()
        expected = [MODEL[-1000:], MODEL[MIB : 2 * MIB], MODEL, MODEL]
        for each, right in zip(later, expected, strict=True):
            assert set(each.join()) == {right}
        assert faults.communicate(timeout=60)[0].split() == [hashlib.sha256(MODEL).hexdigest()]
        eventually(lambda: state(weights / "model") == "clean", "the object is published")
        assert len(server.gets(f"{prefix}/model")) == 1
        evict_all(mount, weights)
        assert state(weights / "model") == "clean"  # it is open
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, SIZE, 0) == mapping[:] == MODEL
        after = os.fstat(fd)
        assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    eventually(lambda: _evicted(mount, weights / "model"), "nothing keeps the object")
    assert load(weights / "model") == MODEL


FAULTS = """
import hashlib, mmap, sys
with open(sys.argv[1], 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
    mapping.madvise(mmap.MADV_RANDOM)
    tail = mapping[-4096:]
    print(hashlib.sha256(mapping[:-4096] + tail).hexdigest())
"""


def _evicted(mount: Mount, path: Path) -> bool:
    evict_all(mount, path.parent)
    return state(path) == "remote"


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_wrong_bytes_end_a_stream(shared_mounts: Callable[[str], Mount], s3: S3, front_end: str) -> None:
    """Who read them gets EIO before the file's end; the next attempt's bytes are another inode's."""
    mount = shared_mounts(front_end)
    weights, prefix = namespace(mount, s3, {"model": MODEL})
    path = weights / "model"
    before = os.stat(path).st_ino
    hold = threading.Event()
    s3.faults = lambda asked, number: (
        None if asked.lists or number else Fault(flip=100_000, hold=hold, hold_at=1_000_000)
    )
    with opened(path) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapping:
        wrong = os.pread(fd, HERE, 0)
        assert mapping[100_000] == wrong[100_000] != MODEL[100_000]
        waiting = Together(5, lambda: os.pread(fd, 100, SIZE - 100))
        held = subprocess.Popen(
            [sys.executable, "-c", MAPS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert held.stdout is not None
        assert held.stdout.readline() == "read\n"
        hold.set()
        assert waiting.join() == ["EIO"] * 5
        # The next attempt, for whoever opens it now: nothing of the former is in anybody's pages.
        assert load(path) == MODEL
        assert os.stat(path).st_ino != before == os.fstat(fd).st_ino
        eventually(lambda: errno_of(os.pread, fd, 100, 0) == "EIO", "the pages are dropped")
        assert held.communicate("\n")[0] == ""
        assert held.returncode == -signal.SIGBUS
        # By the inode that it had, it can't be opened any more.
        assert errno_of(os.open, f"/proc/self/fd/{fd}", os.O_RDONLY) == "ESTALE"
    assert len(s3.gets(f"{prefix}/model")) == 2
    assert load_direct(path) == MODEL
    s3.fresh()
    assert _evicted(mount, path)
    s3.faults = lambda asked, _: None if asked.lists else Fault(flip=2_999_000)
    assert errno_of(load, path) == errno_of(load_direct, path) == "EIO"
    eventually(lambda: mount.status()["staged_objects"] == 0, "the attempts have been given up")
    assert state(path) == "remote"
    s3.fresh()
    assert load(path) == MODEL


MAPS = """
import mmap, sys
with open(sys.argv[1], 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
    mapping[100_000]
    print('read', flush=True)
    sys.stdin.readline()
    import time
    for _ in range(2000):
        mapping[100_000]
        time.sleep(0.01)
    print('still there')
"""


@pytest.mark.parametrize("way", ["cut", "changed", "removed"])
def test_a_fetch_that_fails_in_the_middle(shared: Mount, server: OriginServer, way: str) -> None:
    mount = shared
    weights, prefix = namespace(mount, server, {"model": MODEL})
    path = weights / "model"
    with held_back(server) as hold, opened(path) as fd:
        assert os.pread(fd, 100, 0) == MODEL[:100]
        waiting = Together(8, lambda: os.pread(fd, 100, SIZE - 100))
        if way == "changed":
            server.put(f"{prefix}/model", MODEL[::-1])
        elif way == "removed":
            server.delete(f"{prefix}/model")
        server.faults = lambda asked, _: Fault(status=503) if way == "cut" and not asked.lists else None
        server.cut()
        hold.set()
        assert waiting.join() == ["EIO"] * 8
        eventually(lambda: errno_of(os.pread, fd, 100, 0) == "EIO", "the pages are dropped")
        eventually(lambda: mount.status()["staged_objects"] == 0, "the attempt has been given up")
        if way == "cut":
            assert state(path) == "remote"
    server.fresh()
    if way == "removed":
        assert errno_of(load, path) == "ENOENT"
    else:
        assert load(path) == (MODEL if way == "cut" else MODEL[::-1])


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_hundreds_of_waiting_readers_hold_nobody_up(make_mount: Callable[..., Mount], s3: S3, front_end: str) -> None:
    """More than there are threads, and more read-ahead than may wait: what is refused, the kernel asks for again, page
    by page. Nobody gets an error, and nobody else waits."""
    mount = make_mount(options=f"{front_end},lookup_grace=0", allow_warnings=WARNINGS)
    big = content("big", 22 * MIB)
    weights, prefix = namespace(mount, s3, {"model": big})
    other, _ = namespace(mount, s3, {"model": MODEL})
    kv = mount.ns("kv")
    os.listdir(other)
    with (
        held_back(s3, f"{prefix}/") as hold,
        opened(weights / "model") as fd,
        opened(weights / "model", os.O_DIRECT) as direct,
    ):
        places = [MIB + number * 32_768 for number in range(AHEAD_WAITING + 100)]
        ahead = [Together(1, lambda at=at: os.pread(fd, 16_384, at)) for at in places]
        beside = Together(100, lambda: pread_direct(direct, 4096, 20 * MIB + 16_384))
        come(mount, weights, HERE)
        for number in range(15):
            put(kv / f"{number}", content(f"kv {number}", 300_000))
            assert load(kv / f"{number}") == content(f"kv {number}", 300_000)
        assert load(other / "model") == MODEL
        assert os.pread(fd, 4096, 0) == big[:4096]
        assert [each.answers for each in [*ahead, beside] if each.answers] == []
        hold.set()
        assert [each.join() for each in ahead] == [[big[at : at + 16_384]] for at in places]
        assert beside.join() == [big[20 * MIB + 16_384 :][:4096]] * 100
    eventually(lambda: origin_status(mount, weights)["ingests"] == 1, "the fetch ends")


READS = "import os, sys; os.pread(os.open(sys.argv[1], os.O_RDONLY), 4096, 2_000_000)"


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_killed_reader_and_an_unmount(make_mount: Callable[..., Mount], s3: S3, front_end: str) -> None:
    mount = make_mount(options=front_end)
    weights, _ = namespace(mount, s3, {"model": MODEL})
    with held_back(s3):
        reader = subprocess.Popen([sys.executable, "-c", READS, str(weights / "model")])
        come(mount, weights, HERE)
        eventually(lambda: _waits(reader.pid), "it waits")
        reader.kill()
        assert reader.wait(5) == -signal.SIGKILL
        daemon = mount.pid
        subprocess.run(["umount", mount.dir], check=True)
    eventually(lambda: not os.path.exists(f"/proc/{daemon}"), "the daemon has ended")
    s3.fresh()
    mount.mount()
    assert load(weights / "model") == MODEL


def _waits(pid: int) -> bool:
    return "folio_wait" in Path(f"/proc/{pid}/stack").read_text()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("end", ["lazy", "SIGTERM"])
def test_an_end_of_the_mount_while_streaming(
    make_mount: Callable[..., Mount], s3: S3, front_end: str, end: str
) -> None:
    """A lazy unmount leaves those who have it open their file, whole; a daemon told to end lets them go."""
    mount = make_mount(options=front_end)
    weights, _ = namespace(mount, s3, {"model": MODEL})
    daemon = mount.pid
    with held_back(s3) as hold:
        fd = os.open(weights / "model", os.O_RDONLY)
        assert os.pread(fd, 100, 0) == MODEL[:100]
        waiting = Together(3, lambda: os.pread(fd, 1000, SIZE - 1000))
        if end == "lazy":
            hcfs("umount", "--lazy", mount.dir)
            hold.set()
            assert waiting.join() == [MODEL[-1000:]] * 3
            assert os.pread(fd, SIZE, 0) == MODEL
        else:
            os.kill(daemon, signal.SIGTERM)
            assert set(waiting.join()) <= {"EIO", "ENOTCONN", "ECONNABORTED"}
    with suppress(OSError):  # as of a mount that is gone
        os.close(fd)
    eventually(lambda: not os.path.exists(f"/proc/{daemon}"), "the daemon has ended")
    s3.fresh()
    mount.mount()
    assert mount.status()["staged_objects"] == 0
    assert load(weights / "model") == MODEL


def test_the_last_reader_leaves_and_the_fetch_goes_on(shared: Mount, s3: S3) -> None:
    mount = shared
    weights, prefix = namespace(mount, s3, {"model": MODEL})
    with held_back(s3) as hold:
        with opened(weights / "model"):
            assert origin_status(mount, weights)["ingesting"][0]["readers"] == 1
            assert errno_of(os.setxattr, weights, "user.hcfs.origin", b"none") == "ENOTEMPTY"
        eventually(lambda: origin_status(mount, weights)["ingesting"][0]["readers"] == 0, "it is closed")
        hold.set()
        eventually(lambda: state(weights / "model") == "clean", "it is here all the same")
    assert load(weights / "model") == MODEL
    assert len(s3.gets(f"{prefix}/model")) == 1


def test_what_has_come_is_read_while_the_origin_stalls(shared: Mount, s3: S3) -> None:
    """Also what came while nobody had the file open."""
    weights, _ = namespace(shared, s3, {"model": MODEL})
    hold = threading.Event()
    s3.faults = lambda asked, number: (
        None if asked.lists else Fault(hold=hold, hold_at=0 if number else 900_000, slow=0.03)
    )
    try:
        with opened(weights / "model"):
            pass
        come(shared, weights, 2 * HERE)
        with opened(weights / "model") as fd:
            assert os.pread(fd, 100, HERE) == MODEL[HERE : HERE + 100]
    finally:
        hold.set()


@pytest.mark.parametrize("option", ["origin_open=whole", "verify=open"])
def test_whole_is_an_option(shared: Mount, s3: S3, option: str) -> None:
    """The open waits for the check, so that wrong bytes are fetched again before anybody sees them."""
    mount = shared
    name, _, value = option.partition("=")
    weights, _ = namespace(mount, s3, {"model": MODEL}, **{name: value})
    assert os.getxattr(weights, "user.hcfs.origin_open") == b"whole"
    before = os.stat(weights / "model").st_ino
    hold = threading.Event()
    s3.faults = lambda asked, number: (
        None if asked.lists or number else Fault(flip=100_000, hold=hold, hold_at=1_000_000)
    )
    try:
        opening = Together(3, lambda: load(weights / "model"))
        come(mount, weights, 0)
        assert opening.answers == []
    finally:
        hold.set()
    assert opening.join() == [MODEL] * 3
    assert os.stat(weights / "model").st_ino == before


def test_a_model_is_loaded_while_it_is_fetched(shared: Mount, s3: S3) -> None:
    """By hcfs.weights, by the command, and by safetensors' own reader, which maps the file."""
    tensors = {f"model.layers.{n}.w": ("U8", [700_000], noise(700_000, n)) for n in range(20)}
    shards = {f"{way}/model.safetensors": safetensors(tensors) for way in ("stream", "command", "mapped")}
    weights, _ = namespace(shared, s3, shards)
    # Readers take 4 MiB at a time.
    with held_back(s3, at=6 * MIB) as hold, stream(weights / "stream", framework="numpy") as layers:
        loaded = Together(1, lambda: hcfs("weights", "load", weights / "command", "--json").stdout)
        mapped = subprocess.Popen([sys.executable, "-c", LOADS, weights / "mapped" / "model.safetensors"])
        name, tensor = next(iter(layers))
        assert (name, bytes_of(tensor)) == ("model.layers.0.w", tensors["model.layers.0.w"][2])
        eventually(lambda: len(origin_status(shared, weights)["ingesting"]) == 3, "all are on their way")
        hold.set()
        rest = {name: bytes_of(tensor) for name, tensor in layers}
        assert rest == {name: data for name, (_, _, data) in tensors.items() if name != "model.layers.0.w"}
        assert json.loads(loaded.join()[0])["tensors"] == 20
        assert mapped.wait(60) == 0


LOADS = """
import random, sys
from safetensors.numpy import load_file
for name, tensor in load_file(sys.argv[1]).items():
    assert bytes(tensor) == random.Random(int(name.split('.')[2])).randbytes(700_000), name
"""


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_evictions_wrong_bytes_and_cuts_beside_readers(
    make_mount: Callable[..., Mount], s3: S3, front_end: str
) -> None:
    """Whatever happens meanwhile, who reads a file to its end has read the right one, or was refused; and nothing is
    left over."""
    mount = make_mount(options=f"{front_end},lookup_grace=0", allow_warnings=WARNINGS)
    files = {f"{number}": content(f"beside {number}", 1_200_000 + 100_001 * number) for number in range(8)}
    weights, _ = namespace(mount, s3, files, quota="9M", origin_changes="revalidate=1")
    chance = random.Random(f"faults {front_end}")

    def fault(asked: Asked, _: int) -> Fault | None:
        drawn, at = chance.random(), chance.randrange(1_200_000)
        if asked.lists or drawn > 0.5:
            return None
        return Fault(flip=at) if drawn < 0.25 else Fault(cut_after=at, slow=0.002)

    def churn() -> Counter[str]:
        mine, answers = random.Random(threading.get_ident()), Counter[str]()
        for _ in range(8):
            name = mine.choice(list(files))
            try:
                data = mine.choice(WAYS)(weights / name)
            except OSError as error:
                answers[errno.errorcode[error.errno or 0]] += 1
            else:
                answers["right" if data == files[name] else "wrong"] += 1
        return answers

    s3.faults = fault
    answers = sum(Together(6, churn).join(), Counter[str]())
    assert answers["right"] > answers.total() // 3
    assert set(answers) <= {"right", "EIO", "ESTALE", "EDQUOT"}
    s3.fresh()
    eventually(lambda: not origin_status(mount, weights)["ingesting"], "all fetches have ended")
    assert mount.status()["staged_objects"] == 0
    assert origin_status(mount, weights)["failures"] < origin_status(mount, weights)["ingests"]
    eventually(lambda: _background(mount) == BACKGROUND, "the kernel's limit is what it was")
    for name, data in files.items():
        assert load(weights / name) == data


def _background(mount: Mount) -> int:
    connection = os.minor(os.stat(mount.dir).st_dev)
    return int(Path(f"/sys/fs/fuse/connections/{connection}/max_background").read_text())


@pytest.mark.parametrize("when", ["while it is fetched", "afterwards"])
def test_a_byte_that_flips_under_a_stream(shared: Mount, s3: S3, when: str) -> None:
    """It reaches no reader: EIO for the granule, and the object is fetched again."""
    data = content(f"flipped {when}", SIZE)
    weights, _ = namespace(shared, s3, {"model": data})
    path = weights / "model"
    with held_back(s3) as hold, opened(path, os.O_DIRECT) as fd:
        assert pread_direct(fd, HERE, 0) == data[:HERE]
        come(shared, weights, 2 * HERE)
        if when == "afterwards":
            hold.set()
            eventually(lambda: state(path) == "clean", "it is published")
        flip(shared.source, data, HERE + 5)
        assert errno_of(pread_direct, fd, 4096, HERE) == "EIO"
        assert errno_of(pread_direct, fd, HERE, HERE) == "EIO"
        assert pread_direct(fd, 4096, 0) == data[:4096]
        hold.set()
        assert pread_direct(fd, 4096, 2 * MIB) == data[2 * MIB : 2 * MIB + 4096]
        eventually(lambda: state(path) == ("clean" if when != "afterwards" else "remote"), "its fetch has ended")
        assert errno_of(pread_direct, fd, 4096, HERE) == "EIO"
    assert load(path) == load_direct(path) == data
    assert origin_status(shared, weights)["ingests"] == 2
