"""One store with ever more objects: what of it stays the same, and what doesn't.

For each size: mounting from a checkpoint, the daemon's memory, creating, looking up, listing, and how long another
client waits at most while the daemon lists, creates and writes a checkpoint. Times on a shared machine are noisy: the
daemon's CPU time stands beside them, and a row of one run is to be compared with that run's other rows."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

from lab.harness import programs
from lab.harness.many import OBJECT_BYTES, fill, format_image, names
from lab.harness.places import Place
from lab.scale.holds import holds

HCFS = [sys.executable, "-m", "hcfs"]
STARTING_LIMIT = 60.0
CHECKPOINT_LIMIT = 300.0
FILLER = bytes(60 << 10)
"""An extended attribute's value: sets of it fill the log until a checkpoint is due."""


@dataclass
class Stall:
    """How long requests of another client took, in milliseconds."""

    requests: int
    median: float
    p999: float
    longest: float


@dataclass
class Row:
    """What was measured with so many objects."""

    objects: int
    mount_s: list[float] = field(default_factory=list)
    mount_cpu_s: list[float] = field(default_factory=list)
    bytes_per_object: float = 0.0
    """the daemon's proportional set size above that of an empty store's, by object"""
    bytes_per_known_inode: float = 0.0
    """what it grows by for each object that the kernel then knows, all listed and looked up"""
    create_per_s: float = 0.0
    create_cpu_us: float = 0.0
    """the daemon's CPU time for each"""
    lookup_median_us: float = 0.0
    lookup_p99_us: float = 0.0
    lookup_cpu_us: float = 0.0
    listing_s: list[float] = field(default_factory=list)
    listing_cpu_us: float = 0.0
    """by entry"""
    stalls: dict[str, Stall] = field(default_factory=dict)
    """by what the daemon was doing meanwhile"""
    removal_s: float = 0.0
    """`rm -rf` of the namespace; 0 where it wasn't tried"""
    holds_ms: dict[str, float] = field(default_factory=dict)
    """processor time for which the store's lock was held at most"""


REMOVED_MOST = 100_000
"""Objects up to which `rm -rf` is tried: a million take minutes."""


class Daemon:
    """A mount of one loop device."""

    def __init__(self, device: str, directory: Path) -> None:
        self.dir = directory
        self._device = device
        self.pid = 0
        self.starting = False
        """`hcfs mount` was begun and hasn't come back: a daemon may serve a moment later"""

    def mount(self) -> float:
        """Seconds until it serves."""
        begin = time.perf_counter()
        log = self.dir.with_name("log")
        words = [*HCFS, "mount", self._device, str(self.dir), "--log", str(log), "-o", "commit_interval=1s"]
        self.starting = True
        subprocess.run(words, check=True)
        self.starting = False
        took = time.perf_counter() - begin
        self.pid = int(self.status()["pid"])  # type: ignore[call-overload]
        return took

    def umount(self) -> None:
        subprocess.run([*HCFS, "umount", str(self.dir)], check=True)

    def status(self) -> dict[str, object]:
        return dict(json.loads((self.dir / ".hcfs/status.json").read_bytes()))

    def checkpoints(self) -> int:
        counters = self.status()["counters"]
        assert isinstance(counters, dict)
        return int(counters["checkpoints"])

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pss(self) -> int:
        """Bytes: the daemon's proportional set size."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("smaps_rollup has no Pss")


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    words = ["losetup", "--direct-io=on", "-f", "--show", str(image)]
    device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@contextmanager
def mounted(device: str, directory: Path) -> Iterator[Daemon]:
    daemon = Daemon(device, directory)
    try:
        yield daemon
    finally:
        deadline = time.monotonic() + STARTING_LIMIT
        while daemon.starting and not os.path.ismount(directory) and time.monotonic() < deadline:
            time.sleep(0.1)
        if os.path.ismount(directory):
            daemon.umount()


class Probe:
    """A client that asks for small things while the block runs."""

    def __init__(self, daemon: Daemon, skip: int) -> None:
        self._process = subprocess.Popen(
            programs.command("lab.scale.probe", daemon.dir / "kv", daemon.dir / "kv" / "probe", skip),
            env=programs.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> Stall:
        answer, _ = self._process.communicate(b"end\n", timeout=60)
        took = sorted(json.loads(answer))
        at = min(len(took) - 1, int(len(took) * 0.999))
        return Stall(len(took), statistics.median(took) * 1e3, took[at] * 1e3, took[-1] * 1e3)


def listed(directory: Path) -> int:
    """How many entries a listing gives; a process of its own, so that its time isn't the probe's."""
    words = [sys.executable, "-c", "import os, sys; print(sum(1 for _ in os.scandir(sys.argv[1])))", str(directory)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def create(directory: Path, count: int, tag: str) -> float:
    """Files of 4 KiB made in a second, one after the other."""
    content = bytes(OBJECT_BYTES)
    begin = time.perf_counter()
    for number in range(count):
        fd = os.open(directory / f"created-{tag}-{number:08}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, content)
        os.close(fd)
    return count / (time.perf_counter() - begin)


def look_up(directory: Path, objects: int, count: int) -> list[float]:
    """Seconds for each of `count` lookups of names that the kernel doesn't know, spread over all."""
    wanted = list(islice(names(), objects))
    random.Random(7).shuffle(wanted)
    took = []
    for name in wanted[:count]:
        path = os.path.join(os.fsencode(directory), name)
        begin = time.perf_counter()
        os.stat(path)
        took.append(time.perf_counter() - begin)
    return took


def mount_and_list(row: Row, daemon: Daemon, repeats: int, empty_pss: int) -> None:
    """Mounts from a checkpoint, and listings by a kernel that knows nothing."""
    for _ in range(repeats):
        row.mount_s.append(daemon.mount())
        row.mount_cpu_s.append(daemon.cpu_s())
        row.bytes_per_object = (daemon.pss() - empty_pss) / row.objects
        before, begin = daemon.cpu_s(), time.perf_counter()
        found = listed(daemon.dir / "kv")
        row.listing_s.append(time.perf_counter() - begin)
        row.listing_cpu_us = (daemon.cpu_s() - before) / found * 1e6
        assert found == row.objects + 1, f"{found} entries listed of {row.objects + 1}"
        daemon.umount()


def latencies(row: Row, daemon: Daemon, count: int) -> None:
    """Lookups and creations, one client alone."""
    before = daemon.cpu_s()
    took = sorted(look_up(daemon.dir / "kv", row.objects, count))
    row.lookup_cpu_us = (daemon.cpu_s() - before) / len(took) * 1e6
    row.lookup_median_us = statistics.median(took) * 1e6
    row.lookup_p99_us = took[int(len(took) * 0.99)] * 1e6
    before = daemon.cpu_s()
    row.create_per_s = create(daemon.dir / "kv", count, "alone")
    row.create_cpu_us = (daemon.cpu_s() - before) / count * 1e6


def stalls(row: Row, daemon: Daemon, count: int, pss: int, idle: float) -> None:
    """Another client's waits, while nothing happens and while each of the daemon's larger tasks does."""
    skip = 0

    def phase(name: str, work: object) -> None:
        nonlocal skip
        probe = Probe(daemon, skip % max(1, row.objects - 1))
        work()  # type: ignore[operator]
        row.stalls[name] = probe.end()
        skip += row.stalls[name].requests // 3

    phase("nothing", lambda: time.sleep(idle))
    phase("creating", lambda: create(daemon.dir / "kv", count, "probed"))
    phase("listing", lambda: listed(daemon.dir / "kv"))
    row.bytes_per_known_inode = (daemon.pss() - pss) / row.objects
    filled = daemon.dir / "kv" / "probe"
    before = daemon.checkpoints()
    deadline = time.monotonic() + CHECKPOINT_LIMIT

    def until_checkpoint() -> None:
        number = 0
        while number % 16 or daemon.checkpoints() == before:
            os.setxattr(filled, "user.filler", FILLER)
            number += 1
            assert time.monotonic() < deadline, "no checkpoint came"

    phase("checkpoint", until_checkpoint)


def remove(row: Row, daemon: Daemon) -> None:
    begin = time.perf_counter()
    subprocess.run(["rm", "-rf", daemon.dir / "kv"], check=True)
    row.removal_s = time.perf_counter() - begin
    left = daemon.status()["objects"]
    assert left == 0, f"{left} objects are left"


def measure(objects: int, scratch: Path, args: argparse.Namespace, empty_pss: int) -> Row:
    image, directory = scratch / "image", scratch / "mnt"
    directory.mkdir(exist_ok=True)
    format_image(image, objects, 2 * args.count)
    fill(image, objects)
    row = Row(objects)
    with loop_device(image) as device, mounted(device, directory) as daemon:
        daemon.mount()
        (directory / "kv" / "probe").write_bytes(bytes(OBJECT_BYTES))
        daemon.umount()
        mount_and_list(row, daemon, args.repeats, empty_pss)
        daemon.mount()
        pss = daemon.pss()
        latencies(row, daemon, args.count)
        stalls(row, daemon, args.count, pss, args.idle)
        if objects <= REMOVED_MOST:
            remove(row, daemon)
        daemon.umount()
    image.unlink()
    format_image(image, objects, 2 * args.count)
    fill(image, objects)
    row.holds_ms = holds(image, args.count)
    image.unlink()
    return row


def empty_daemon(scratch: Path) -> int:
    """The proportional set size of a daemon without objects."""
    image, directory = scratch / "image", scratch / "mnt"
    directory.mkdir(exist_ok=True)
    format_image(image, 0, 1000)
    fill(image, 0)
    with loop_device(image) as device, mounted(device, directory) as daemon:
        daemon.mount()
        pss = daemon.pss()
        daemon.umount()
    return pss


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown."""
    heads = ["", *(f"{row.objects:,}" for row in rows)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]

    def line(label: str, values: Sequence[str]) -> None:
        lines.append("| " + " | ".join([label, *values]) + " |")

    line("mount, s (daemon's CPU s)", [f"{middle(r.mount_s):.2f} ({middle(r.mount_cpu_s):.2f})" for r in rows])
    line("daemon's memory, bytes an object", [f"{r.bytes_per_object:.0f}" for r in rows])
    line("more for each that the kernel knows", [f"{r.bytes_per_known_inode:.0f}" for r in rows])
    line("creations/s (CPU us)", [f"{r.create_per_s:.0f} ({r.create_cpu_us:.0f})" for r in rows])
    line("lookup, median / p99 us", [f"{r.lookup_median_us:.0f} / {r.lookup_p99_us:.0f}" for r in rows])
    line("lookup, CPU us", [f"{r.lookup_cpu_us:.0f}" for r in rows])
    line("cold listing, s", [f"{middle(r.listing_s):.3f}" for r in rows])
    line("listing, CPU us an entry", [f"{r.listing_cpu_us:.1f}" for r in rows])
    for name in rows[0].stalls if rows else ():
        stalls = [row.stalls[name] for row in rows]
        line(f"another's wait, {name}: p99.9 / longest ms", [f"{s.p999:.1f} / {s.longest:.1f}" for s in stalls])
    line("rm -rf, s", [f"{r.removal_s:.1f}" if r.removal_s else "" for r in rows])
    for name in rows[0].holds_ms if rows else ():
        line(f"longest hold of the lock, {name}: CPU ms", [f"{r.holds_ms[name]:.1f}" for r in rows])
    return "\n".join(lines)


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/lab scale", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000", help="numbers of objects")
    parser.add_argument("--count", type=int, default=3000, help="creations and lookups measured at each size")
    parser.add_argument("--repeats", type=int, default=3, help="mounts and cold listings at each size")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds of another client alone, to compare with")
    parser.add_argument("--scratch", type=Path, default=None, help="where the sparse image lies")
    parser.add_argument("--json", type=Path, default=None, help="write all figures to this file")
    parser.add_argument("--picture", type=Path, default=None, help="write the picture to this SVG file")
    parser.add_argument("--from-json", type=Path, default=None, help="measure nothing, print and draw these figures")
    args = parser.parse_args(words)
    if args.picture is not None:
        # Here, so that a library that is missing is missed before hours of measuring.
        from lab.scale.picture import draw
    if args.from_json is not None:
        rows = read(args.from_json)
    else:
        rows = []
        with Place.make("hcfs-scale-", args.scratch) as scratch:
            empty = empty_daemon(scratch)
            for size in (int(word) for word in args.sizes.split(",")):
                rows.append(measure(size, scratch, args, empty))
                print(table(rows[-1:]), flush=True)
                if args.json is not None:
                    write(args.json, rows)
    print(table(rows))
    if args.picture is not None:
        draw(rows, args.picture)
    return 0


def write(path: Path, rows: Sequence[Row]) -> None:
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, {platform.machine()}"
    document = {"date": dt.datetime.now(dt.UTC).isoformat(), "machine": machine, "rows": [asdict(r) for r in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def read(path: Path) -> list[Row]:
    rows = []
    for fields in json.loads(path.read_text())["rows"]:
        stalls = {name: Stall(**stall) for name, stall in fields.pop("stalls").items()}
        rows.append(Row(**fields, stalls=stalls))
    return rows
