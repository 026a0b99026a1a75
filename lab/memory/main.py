"""The daemon's memory: 200 readers and 64 writers of 64 MiB objects at once, or 100,000 opens.

`load` starts readers and writers in a few processes, watches the daemon's resident memory, and says what it was at most
beside the budget (--memory of the mount). With --limit the daemon lives in a control group of so much memory: the
kernel then kills it if it needs more. `opens` opens, looks up, lists and stores again and again, and compares memory,
descriptors and handles before and after, when the bounded caches of the daemon are full (--warm-up). Exit code 1:
something failed, or grew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lab.harness import programs
from lab.harness.cli import hcfs
from lab.harness.images import create_image, parse_size
from lab.harness.mounts import Mount
from lab.harness.places import Place

MIB = 1 << 20
PROCESSES = 4
GROUPS = Path("/sys/fs/cgroup/memory")
"""Of version 1; with version 2 groups lie in GROUPS_2."""
GROUPS_2 = Path("/sys/fs/cgroup")
OPENS_GROWTH = 2 * MIB
"""Resident bytes that the opens may add: allocators aren't exact."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/lab memory", description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    load = commands.add_parser("load", help="readers and writers at once")
    load.add_argument("--readers", type=int, default=200)
    load.add_argument("--writers", type=int, default=64)
    load.add_argument("--object", type=parse_size, default=64 * MIB, help="bytes of each (default: 64M)")
    load.add_argument("--memory", default="64M", help="of the mount (default: 64M)")
    load.add_argument("--limit", type=parse_size, default=None, help="of a control group for the daemon, as 512M")
    opens = commands.add_parser("opens", help="opens, lookups, listings and stores")
    opens.add_argument("--opens", type=int, default=100_000)
    opens.add_argument(
        "--warm-up",
        type=int,
        default=70_000,
        help="opens before, which replace more files than the daemon remembers (default: 70000)",
    )
    for command in (load, opens):
        command.add_argument("--directory", type=Path, default=None, help="where to work (default: a temporary one)")
    return parser.parse_args(words)


@contextmanager
def control_group(limit: int | None) -> Iterator[Path | None]:
    """A group whose processes may have so many bytes together; None without a limit."""
    if limit is None:
        yield None
        return
    first = (GROUPS / "memory.limit_in_bytes").exists()
    group = (GROUPS if first else GROUPS_2) / f"hcfs-memory-{os.getpid()}"
    if not first and not (GROUPS_2 / "cgroup.controllers").exists():
        raise SystemExit("there are no control groups for memory here")
    place = Place(group)
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
        yield group
    finally:
        deadline = time.monotonic() + 30
        while True:
            try:
                group.rmdir()
                place.close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def of_group(group: Path) -> str:
    """What the kernel counted."""
    names = ("memory.max_usage_in_bytes", "memory.failcnt", "memory.oom_control", "memory.peak", "memory.events")
    found = [f"{name}: {(group / name).read_text().split()}" for name in names if (group / name).exists()]
    return "; ".join(found)


def of_process(pid: int, field: str) -> int:
    """Bytes of a field of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(field)


def load(options: argparse.Namespace, directory: Path) -> bool:
    """Readers and writers."""
    count, length = options.writers, options.object
    sources = 8
    image = create_image(directory / "memory.img", (count + sources + 4) * (length + MIB) * 11 // 10 + (64 << 20))
    hcfs("mkfs", image)
    mount = Mount(image, directory / "mnt", options="lookup_grace=0", allow_warnings=[".*"])
    with ExitStack() as stack:
        group = stack.enter_context(control_group(options.limit))
        stack.callback(mount.close)
        words = [sys.executable, "-m", "hcfs", "mount", str(image), str(mount.dir), "--log", str(mount.log)]
        words += ["--memory", options.memory, "-o", mount.options]
        enter = f"echo $$ > {group}/cgroup.procs; " if group is not None else ""
        subprocess.run(["sh", "-c", f'{enter}exec "$@"', "sh", *words], check=True)
        kv, pid = mount.ns(), mount.pid
        for number in range(sources):
            (kv / f"source{number}").write_bytes(os.urandom(MIB) * (length // MIB))
        idle = of_process(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here on
        begun = time.monotonic()
        shares = [
            {
                "directory": str(kv),
                "process": process,
                "readers": options.readers // PROCESSES,
                "writers": count // PROCESSES,
                "length": length,
                "sources": sources,
            }
            for process in range(PROCESSES)
        ]
        clients = [
            subprocess.Popen(
                programs.command("lab.memory.client", json.dumps(share)),
                env=programs.environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
            for share in shares
        ]
        for client in clients:
            stack.callback(client.wait)
            stack.callback(client.kill)
        waiting: list[int] = []
        done = threading.Event()
        watcher = threading.Thread(target=watch, args=(mount, waiting, done))
        watcher.start()
        answers = [json.loads(client.communicate()[0] or '{"problems": ["ended"]}') for client in clients]
        done.set()
        watcher.join()
        seconds = time.monotonic() - begun
        peak, status = of_process(pid, "VmHWM"), mount.status()
        problems = [problem for answer in answers for problem in answer["problems"]]
        moved = sum(answer.get("read", 0) for answer in answers)
        print(
            f"{options.readers} readers and {count} writers of {length // MIB} MiB in {seconds:.0f} s:"
            f" {moved // MIB} MiB read, {count * length // MIB} MiB written, {len(problems)} calls failed"
        )
        pool = status["memory"]
        print(f"{len(waiting)} looks at the status meanwhile, the slowest after {max(waiting, default=0)} ms")
        print(
            f"daemon: {idle / MIB:.0f} MiB resident before, {peak / MIB:.0f} MiB at most; pool: budget"
            f" {pool['budget'] / MIB:.0f} MiB, at most {pool['peak'] / MIB:.0f} MiB in use, {pool['waits']} waits"
        )
        if group is not None:
            print(f"control group of {options.limit // MIB} MiB: {of_group(group)}")
        for problem in problems[:5]:
            print(problem)
    # pyfuse3 alone holds what has come in beside the budget; docs/benchmarks.md has how much.
    resident = peak - idle <= parse_size(options.memory) or status["data_plane"] != "threads"
    return not problems and resident and bool(pool["peak"] <= pool["budget"])


def watch(mount: Mount, waiting: list[int], done: threading.Event) -> None:
    """A status is answered in time whatever goes on; how long each took, in milliseconds."""
    while not done.wait(0.5):
        begun = time.monotonic()
        mount.status()
        waiting.append(int((time.monotonic() - begun) * 1000))


def opens(options: argparse.Namespace, directory: Path) -> bool:
    """Opens, lookups, listings and stores."""
    image = create_image(directory / "memory.img", "64M")
    hcfs("mkfs", image)
    mount = Mount(image, directory / "mnt", options="lookup_grace=0")
    with ExitStack() as stack:
        stack.callback(mount.close)
        mount.mount("", "--memory", "16M")  # its cache of granules is full soon
        kv, pid = mount.ns(), mount.pid
        for number in range(200):
            (kv / f"{number}").write_bytes(b"x" * number)

        def work(first: int, end: int) -> None:
            for number in range(first, end):
                with open(kv / f"{number % 200}", "rb") as file:
                    file.read()
                (kv / f"absent{number}").exists()
                if number % 20 == 0:
                    os.listdir(kv)
                    (kv / f"{number % 200}").write_bytes(b"y" * (number % 5000))
                if number % 50 == 0:
                    os.truncate(kv / f"{number % 200}", 10)

        def now() -> dict[str, Any]:
            status = mount.status()
            return {
                "resident": of_process(pid, "VmRSS"),
                "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                "handles": status["open_handles"],
                "staged": status["staged_objects"],
            }

        work(0, options.warm_up)
        before = now()
        work(options.warm_up, options.warm_up + options.opens)
        deadline = time.monotonic() + 20
        while (after := now())["handles"] > before["handles"] and time.monotonic() < deadline:
            time.sleep(0.1)
        print(f"after {options.warm_up} opens: {before}\nafter {options.opens} more: {after}")
    return bool(
        after["resident"] <= before["resident"] + OPENS_GROWTH
        and after["descriptors"] <= before["descriptors"] + 2
        and after["handles"] <= before["handles"]
        and after["staged"] == 0
    )


def main(words: Sequence[str]) -> int:
    """Run one of them."""
    options = parse(words)
    with Place.make("hcfs-memory-", options.directory) as directory:
        right = {"load": load, "opens": opens}[options.command](options, directory)
    print("kept" if right else "NOT kept")
    return 0 if right else 1
