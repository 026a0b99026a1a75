"""The data plane on a real mount: when it is used, that it falls back, and that none of its dangers hangs anybody."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from hcfs.frontends.data_plane import write_bytes
from lab.harness.actors import Actor, errno_of, eventually, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20


class Served(NamedTuple):
    """A mount in the foreground."""

    dir: Path
    process: subprocess.Popen[bytes]


@contextmanager
def daemon(top: Path, patch: str, *words: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A mount in the foreground whose code is changed first by Python statements; its directory. Told to end at the
    end."""
    image, directory = top / "image", top / "mnt"
    directory.mkdir()
    hcfs("mkfs", image, "--size", "128M")
    code = f"import sys\n{patch}\nfrom hcfs.__main__ import main\nsys.exit(main())\n"
    command = [sys.executable, "-c", code, "mount", image, directory, "-f", "--log", top / "log", *words]
    with open(top / "errors", "wb") as errors:
        process = subprocess.Popen(command, stderr=errors, env={**os.environ, **(environment or {})})
    try:
        # While the kernel's hand is refused, a look at the mount fails.
        there = f"{directory / '.hcfs'}"
        eventually(lambda: process.poll() is not None or errno_of(os.stat, there) == "ok", "it serves")
        yield Served(directory, process)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        subprocess.run(["umount", "-l", directory], check=False, capture_output=True)


def status(directory: Path) -> dict[str, object]:
    return json.loads((directory / ".hcfs" / "status.json").read_bytes())


def works(directory: Path) -> None:
    """Everything a client does first."""
    content = pattern("plane", 3 * MIB + 5)
    (directory / "kv").mkdir(exist_ok=True)
    put(directory / "kv" / "x", content)
    assert load_direct(directory / "kv" / "x") == content
    assert "x" in os.listdir(directory / "kv")
    os.unlink(directory / "kv" / "x")


# --- which front end serves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "name"), [("auto", "threads"), ("on", "threads"), ("off", "pyfuse3")])
def test_the_option_decides_and_the_status_tells(make_mount: Callable[..., Mount], word: str, name: str) -> None:
    mount = make_mount(options=f"data_plane={word}")
    assert mount.status()["data_plane"] == name
    assert mount.status()["data_plane_reason"] == (None if name == "threads" else "data_plane=off")
    assert json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())["data_plane"] == word
    works(mount.dir)


def test_the_environment_is_asked_where_no_option_says(tmp_path: Path) -> None:
    with daemon(tmp_path, "", environment={"HCFS_DATA_PLANE": "off"}) as served:
        assert status(served.dir)["data_plane"] == "pyfuse3"


def test_another_word_is_refused(make_image: Callable[..., Path], tmp_path: Path) -> None:
    image = make_image()
    hcfs("mkfs", image)
    result = hcfs("mount", image, tmp_path, "-o", "data_plane=fast", check=False)
    assert result.returncode == 2
    assert "data_plane=fast can't be set: there is no such value; give auto, on, off" in result.stderr


REFUSING_LIBRARY = """
import hcfs.frontends.data_plane as plane
from hcfs.fuse.handshake import HandshakeFailed
def refuse(*_, **__): raise HandshakeFailed("no hand is given")
plane.{name} = refuse
"""


@pytest.mark.parametrize("name", ["shake_hands_with_library", "shake_hands_with_kernel"])
def test_a_failed_handshake_leaves_a_mount_by_pyfuse3(tmp_path: Path, name: str) -> None:
    """And nothing of the first attempt."""
    with daemon(tmp_path, REFUSING_LIBRARY.format(name=name)) as served:
        assert status(served.dir)["data_plane"] == "pyfuse3"
        assert status(served.dir)["data_plane_reason"] == "no hand is given"
        works(served.dir)
        assert Path("/proc/self/mountinfo").read_text().count(f" {served.dir} ") == 1


def test_without_fusermount3_root_mounts_by_pyfuse3(tmp_path: Path) -> None:
    with daemon(tmp_path, "", environment={"PATH": "/nonexistent"}) as served:
        assert status(served.dir)["data_plane"] == "pyfuse3"
        assert "fusermount3 isn't installed" in str(status(served.dir)["data_plane_reason"])
        works(served.dir)


@pytest.mark.parametrize("name", ["shake_hands_with_library", "shake_hands_with_kernel"])
def test_a_failed_handshake_is_an_error_where_the_data_plane_was_asked_for(tmp_path: Path, name: str) -> None:
    with daemon(tmp_path, REFUSING_LIBRARY.format(name=name), "-o", "data_plane=on") as served:
        assert not os.path.ismount(served.dir)
        assert served.process.wait(30) == 1
        assert b"no hand is given; mount with data_plane=auto to go on" in (tmp_path / "errors").read_bytes()


# --- dangers ---------------------------------------------------------------------------------------------------------


def test_notices_beside_lookups_of_the_same_directory(make_mount: Callable[..., Mount]) -> None:
    """Evictions tell the kernel about names while others look them up, list and replace them."""
    mount = make_mount(size="64M", options="lookup_grace=0,low_watermark=0.3,high_watermark=0.5")
    kv, stop, problems = mount.ns(), threading.Event(), []

    def until_stopped(call: Callable[[int], object]) -> None:
        number = 0
        try:
            while not stop.is_set():
                call(number)
                number += 1
        except OSError as error:
            if error.errno not in (2, 116):
                problems.append(error)

    def look(number: int) -> None:
        os.path.exists(kv / f"{number % 200}")

    calls = [lambda number: put(kv / f"{number % 200}", b"x" * MIB), look, look, lambda _: os.listdir(kv)]
    threads = [threading.Thread(target=until_stopped, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    evicted = eventually(lambda: mount.status()["counters"]["evictions"] > 300, "300 are evicted", timeout=60)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert evicted
    assert problems == []


def test_forgets_and_big_answers(make_mount: Callable[..., Mount]) -> None:
    """2,000 long names are listed in answers that fit the bridge, forgotten by the kernel, and found again."""
    mount = make_mount()
    kv = mount.ns()
    names = {f"{number:04d}" + "n" * 200 for number in range(2000)}
    for name in names:
        os.mknod(kv / name)
    assert set(os.listdir(kv)) == names
    Path("/proc/sys/vm/drop_caches").write_text("2")
    assert {entry.name for entry in os.scandir(kv) if entry.stat().st_size == 0} == names
    value = os.urandom(65_000)
    os.setxattr(kv / min(names), "user.big", value)
    assert os.getxattr(kv / min(names), "user.big") == value
    subprocess.run(["rm", "-rf", kv], check=True)


def test_clients_killed_in_the_middle_of_everything(make_mount: Callable[..., Mount]) -> None:
    """Requests that nobody waits for any more, INTERRUPTs, and answers that the kernel refuses: the others never
    notice."""
    mount = make_mount(size="512M")
    kv = mount.ns()
    put(kv / "read", pattern("read", 24 * MIB))
    for round_ in range(12):
        with Actor() as actor:
            if round_ % 2:
                actor.begin("load_direct", kv / "read")
            else:
                actor.begin("threads_write", [str(kv / f"{round_}.{number}.tmp") for number in range(8)], 16 * MIB)
            time.sleep(0.002 * round_)
            actor.kill()
    works(mount.dir)
    eventually(lambda: mount.status()["staged_bytes"] == 0, "nothing of the killed is left")
    assert load_direct(kv / "read") == pattern("read", 24 * MIB)


def test_an_open_file_outlives_a_lazy_unmount(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount()
    content = pattern("lazy", 2 * MIB)
    put(mount.ns() / "x", content)
    pid = mount.pid
    with Actor() as actor:
        fd = actor.open(mount.ns() / "x", os.O_RDONLY)
        mount.umount("--lazy")
        assert actor.pread(fd, 4096, 0) == content[:4096]
        assert os.path.exists(f"/proc/{pid}")
        actor.close(fd)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon ends with its last user")


def test_an_end_that_comes_late_ends_no_other_mount(tmp_path: Path, make_mount: Callable[..., Mount]) -> None:
    """The kernel gives the number of a connection to the next mount as soon as it is free; a daemon that is still busy
    with its end leaves that one alone."""
    mark = tmp_path / "ending"
    patch = (
        "import os, time; from hcfs.fuse.workers import Workers; finish = Workers.finish\n"
        f"def late(self):\n    open({os.fspath(mark)!r}, 'w').close(); time.sleep(3); finish(self)\n"
        "Workers.finish = late"
    )
    with daemon(tmp_path, patch) as served:
        number = os.stat(served.dir).st_dev
        subprocess.run(["umount", served.dir], check=True)
        eventually(mark.exists, "it ends")
        others = [make_mount(size="64M")]
        while os.stat(others[-1].dir).st_dev != number and len(others) < 3:
            others.append(make_mount(size="64M"))
        assert served.process.wait(60) == 0
        for other in others:
            assert other.status()["state"] == "ok"


def test_a_daemon_told_to_end_leaves_nobody_hanging(make_mount: Callable[..., Mount]) -> None:
    """Who still has a file open gets errors; the device is free at once."""
    mount = make_mount()
    put(mount.ns() / "x", pattern("end", 2 * MIB))
    with Actor() as actor:
        fd = actor.open(mount.ns() / "x", os.O_RDONLY | os.O_DIRECT)
        mount.kill(signal.SIGTERM)
        assert errno_of(actor.pread, fd, 4096, 0) in ("ENOTCONN", "ECONNABORTED")
    mount.mount()
    assert load_direct(mount.ns() / "x") == pattern("end", 2 * MIB)


STANDING_STILL = """
import time
import hcfs.frontends.watchdog as watchdog
from hcfs.filesystem.filesystem import Filesystem
watchdog.LOOK, watchdog.LIMIT = 0.2, {limit}
listxattr = Filesystem.listxattr
def slow(self, ino):
    time.sleep({seconds})
    return listxattr(self, ino)
Filesystem.listxattr = slow
"""


def test_a_loop_that_stands_still_is_given_up(tmp_path: Path) -> None:
    """Hot calls go on until then; what waits for the loop gets an error instead of waiting for ever, and the daemon
    ends."""
    with daemon(tmp_path, STANDING_STILL.format(limit=3, seconds=5)) as served:
        (served.dir / "kv").mkdir()
        put(served.dir / "kv" / "x", b"x" * MIB)
        answers: list[str] = []
        stuck = threading.Thread(target=lambda: answers.append(errno_of(os.listxattr, served.dir / "kv")))
        stuck.start()
        time.sleep(0.5)
        assert load_direct(served.dir / "kv" / "x") == b"x" * MIB
        stuck.join(30)
        assert answers
        assert answers[0] in ("ECONNABORTED", "ENOTCONN")
        assert served.process.wait(30) == 0
    assert "the main loop has stood still for 3 s; the mount is given up" in (tmp_path / "log").read_text()


def test_a_loop_that_never_moves_again_is_killed(tmp_path: Path) -> None:
    with daemon(tmp_path, STANDING_STILL.format(limit=1, seconds=3600)) as served:
        put_durably(served.dir)
        threading.Thread(target=errno_of, args=(os.listxattr, served.dir / "kv"), daemon=True).start()
        eventually(lambda: errno_of(os.stat, served.dir / "kv") == "ENOTCONN", "the mount is dead")
        assert served.process.wait(30) == -signal.SIGKILL
        hcfs("umount", served.dir)
    assert "the daemon ends itself" in (tmp_path / "log").read_text()
    check = hcfs("fsck", tmp_path / "image", "--data", check=False)
    assert check.returncode == 0


def put_durably(directory: Path) -> None:
    (directory / "kv").mkdir()
    put(directory / "kv" / "x", b"x" * MIB)
    fd = os.open(directory / "kv", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


# --- what it costs ---------------------------------------------------------------------------------------------------

STORE = {"LOOKUP": 3, "GETATTR": 2, "CREATE": 1, "GETXATTR": 1, "FLUSH": 1, "RELEASE": 1, "RENAME2": 1}
"""Beside the WRITEs. The kernel asks for the directory's attributes after each change in it, and for
security.capability once a file; a rename looks up both names."""
LOAD = {"LOOKUP": 1, "OPEN": 1, "RELEASE": 1}


def grown(mount: Mount, call: Callable[[], object], names: Sequence[str] = ("requests",)) -> list[dict[str, int]]:
    before = mount.status()
    call()
    after = mount.status()
    return [
        {
            key: count - before[name].get(key, 0)
            for key, count in after[name].items()
            if count != before[name].get(key, 0)
        }
        for name in names
    ]


def test_requests_an_object(make_mount: Callable[..., Mount]) -> None:
    """As fs_native stores and loads: none is forwarded, none is repeated, no byte is copied for its address."""
    mount = make_mount(size="512M", options="data_plane=on")
    kv, content = mount.ns(), b"y" * (2 * MIB)
    objects = 20
    copied = mount.status()["counters"]["copied_bytes"]

    def stores() -> None:
        for number in range(objects):
            fd = os.open(kv / f"{number}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o644)
            write_aligned(fd, content)
            os.close(fd)
            os.rename(kv / f"{number}.tmp", kv / f"{number}")

    def loads() -> None:
        for number in range(objects):
            assert load_direct(kv / f"{number}") == content

    requests, forwarded = grown(mount, stores, ("requests", "requests_forwarded"))
    assert requests.pop("WRITE") == 2 * objects
    for name in ("READ", "OPEN", "STATFS", "IOCTL"):
        requests.pop(name, None)
    requests["RENAME2"] = requests.pop("RENAME", 0) + requests.pop("RENAME2", 0)
    assert forwarded.keys() <= {"IOCTL"}  # Python asks whether the status file is a terminal.
    # A few more: the status files' own, and attributes whose second has passed.
    assert {name: count for name, count in requests.items() if count > STORE.get(name, 0) * objects + 8} == {}
    requests, forwarded = grown(mount, loads, ("requests", "requests_forwarded"))
    assert requests.pop("READ") <= 2 * objects + 2
    requests.pop("IOCTL", None)
    assert forwarded.keys() <= {"IOCTL"}  # Python asks whether the status file is a terminal.
    assert {name: count for name, count in requests.items() if count > LOAD.get(name, 0) * objects + 8} == {}
    # Blocks of the metadata log are; no data is.
    assert mount.status()["counters"]["copied_bytes"] - copied < MIB


def test_what_a_mebibyte_costs(make_mount: Callable[..., Mount]) -> None:
    """Counts that don't depend on the machine: system calls that read or write, and changes of thread. And its
    processor time, ten times what was measured (docs/benchmarks.md), which tells a slip from noise."""
    mount = make_mount(size="512M", options="data_plane=on,commit_interval=60")
    kv, content, objects = mount.ns(), b"z" * (8 * MIB), 8
    put(kv / "first", content)

    def costs(call: Callable[[int], object]) -> tuple[float, float, float]:
        pid, hops = mount.pid, mount.status()["thread_hops"]
        calls, seconds = syscalls(pid), processor(pid)
        for number in range(objects):
            call(number)
        per = objects * len(content) / MIB
        calls, seconds = syscalls(pid) - calls, processor(pid) - seconds
        return calls / per, (mount.status()["thread_hops"] - hops) / per, 1000 * seconds / per

    def store(number: int) -> None:
        fd = os.open(kv / f"{number}.tmp", os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
        write_aligned(fd, content)
        os.close(fd)
        os.rename(kv / f"{number}.tmp", kv / f"{number}")

    # A WRITE is read, written to the device and answered, a READ the same; eleven small requests an object are read and
    # answered.
    calls, hops, milliseconds = costs(store)
    assert calls < 3 + 2 * 14 / 8 + 1
    assert hops < 1 + 2 / 8 + 0.5
    assert milliseconds < 6
    calls, hops, milliseconds = costs(lambda number: load_direct(kv / f"{number}"))
    assert calls < 3 + 2 * 5 / 8 + 2
    assert hops < 2
    assert milliseconds < 5


def syscalls(pid: int) -> int:
    """System calls so far that read or write."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["syscr"]) + int(counts["syscw"])


def processor(pid: int) -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_aligned(fd: int, content: bytes) -> None:
    with mmap.mmap(-1, len(content)) as buffer:
        buffer[:] = content
        assert os.write(fd, buffer) == len(content)


@pytest.mark.parametrize(
    ("memory", "nbytes"),
    [(1, 128), (32, 128), (64, 256), (127, 256), (128, 512), (255, 512), (256, 1024), (4096, 1024)],
)
def test_writes_are_smaller_where_memory_is(memory: int, nbytes: int) -> None:
    """MiB of --memory, KiB of the largest WRITE: 64 of them fit in the quarter that is theirs."""
    assert write_bytes(memory * MIB) == nbytes << 10
    assert memory < 32 or 64 * write_bytes(memory * MIB) <= memory * MIB // 4
