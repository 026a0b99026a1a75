"""Images that somebody made to do harm: refused or degraded in a sentence, with bounded memory and time. The commands
run as processes with limits of the kernel's; tools/lab fuzz-parsers makes as many images as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hcfs.device import BufferPool, MemoryDevice, open_device
from hcfs.device.mounts import mounts
from hcfs.store import ROOT_ID, UnrecoveredStore, format_device, memory
from hcfs.store.check import check
from hcfs.store.errors import ReadOnlyStore, TooLittleMemory
from hcfs.store.frame import MAX_COUNT
from hcfs.store.region_header import read_headers, write_headers
from hcfs.store.replay import EXHAUSTED
from hcfs.store.superblock import REGION_BLOCKS_MAX, decode
from lab.harness.mounts import Mount
from lab.reliability import hostile

MIB = 1 << 20
RSS_MAX = 512 * MIB
CPU_S = 120
"""Of the kernel's limit: what takes the square of an image's objects takes hours."""

LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S}))
from hcfs.cli.run import run
sys.exit(run(sys.argv[1:]))
"""
SAMPLE = """
import logging, resource, sys
logging.disable(logging.CRITICAL)
from lab.reliability.campaigns import fuzz_parsers
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
print(fuzz_parsers.campaign(hostile=True).finish(51, goal=240).counts["inputs"])
"""


PEAK = """
import atexit, os, re
def _tell_peak():
    with open("/proc/self/status") as status, open(os.environ["HCFS_TEST_PEAK"], "w") as peak:
        peak.write(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1])
atexit.register(_tell_peak)
"""
"""The kernel's own count for a child begins with what its parent had in memory when it forked."""


def run_limited(program: str, *words: str | Path) -> tuple[int, str, int]:
    """Exit code, what was said on stderr, and the most memory that was resident, in bytes."""
    with tempfile.NamedTemporaryFile("r") as peak:
        process = subprocess.Popen(
            [sys.executable, "-c", PEAK + program, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HCFS_TEST_PEAK": peak.name},
        )
        said: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: said.append(process.stderr.read()))  # type: ignore[union-attr]
        reader.start()
        process.wait()
        reader.join()
        process.stderr.close()
        return process.returncode, said[0], int(peak.read() or 0) << 10


def look(image: Path) -> dict[str, tuple[int, str]]:
    """Exit code and complaint of each command that reads an image; none has a bug, and none takes much memory."""
    found = {}
    for words in (("info",), ("fsck",), ("fsck", "--data"), ("inspect", "objects"), ("inspect", "extents")):
        code, said, resident = run_limited(LIMITED, words[0], image, *words[1:])
        assert "a bug in hcfs" not in said, said
        assert "Traceback" not in said, said
        assert code in (0, 1, 4, 8), (words, code, said)
        assert resident < RSS_MAX, (words, resident)
        found[" ".join(words)] = (code, said)
    return found


def test_a_sample_of_hostile_images() -> None:
    code, said, resident = run_limited(SAMPLE)
    assert code == 0, said
    assert resident < RSS_MAX


@pytest.mark.parametrize("ring", [True, False], ids=["ring", "chain"])
def test_very_many_directories_in_each_other(tmp_path: Path, ring: bool) -> None:
    """What walks up from each of them takes the square of their number."""
    image = tmp_path / "image"
    hostile.write_image(str(image), 128 * MIB, 60_000, hostile.many_directories(20_000, ring=ring))
    found = look(image)
    assert found["fsck"][0] == (4 if ring else 0)
    mount = Mount(image, tmp_path / "mnt", allow_warnings=["has no name that leads to it", "is degraded"])
    try:
        mount.mount()
        assert mount.status()["state"] == ("degraded" if ring else "ok")
        assert os.path.exists(mount.dir / "d" / "d" / "f") != ring
    finally:
        mount.close()


def test_a_slot_that_asks_for_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few KiB of an image with holes can say that the index has tens of millions of slots."""
    image, meminfo = tmp_path / "image", tmp_path / "meminfo"
    directory = tmp_path / "mnt"
    directory.mkdir()
    hostile.write_image(str(image), 64 << 30, 1 << 25, hostile.far_slot((1 << 26) - 1))
    assert os.stat(image).st_blocks * 512 < 16 * MIB
    meminfo.write_text("MemTotal: 4194304 kB\nMemAvailable:    4194304 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", str(meminfo))
    program = f"from hcfs.store import memory\nmemory.MEMINFO = {str(meminfo)!r}\n{LIMITED}"
    for words in (
        ("fsck", image),
        ("inspect", image, "objects"),
        ("mount", image, directory, "--log", tmp_path / "log"),
    ):
        code, said, resident = run_limited(program, *words)
        assert code in (1, 8)
        assert "MiB of memory for slots of which most are empty, and the machine has 4096 MiB available" in said
        assert said.count("\n") == 1
        assert resident < RSS_MAX
    code, said, _ = run_limited(program, "info", image)
    assert (code, "its namespaces can't be read: the store's index needs" in said) == (0, True)
    with pytest.raises(TooLittleMemory):
        memory.require_memory(2 << 30)
    memory.require_memory(1 << 30)


def test_a_region_that_is_larger_than_any() -> None:
    """A mount reads one to its end, holes included."""
    device = MemoryDevice(8 * MIB)
    sound = format_device(device, max_objects=64)
    blocks = REGION_BLOCKS_MAX + 1
    large = replace(
        sound,
        region_blocks=blocks,
        regions=(1, 1 + blocks),
        data_start=1 + 2 * blocks,
        data_blocks=64,
        device_blocks=4 * blocks,
    )
    assert decode(large.encode()) is None
    assert decode(replace(large, region_blocks=blocks - 1).encode()) is not None


def test_a_mount_table_with_any_path(tmp_path: Path, make_mount: Callable[..., Mount]) -> None:
    """Characters that some take for the end of a line don't end one there."""
    mount = make_mount(size="64M")
    strange = tmp_path / "a\rb\x0b\x1c\x85\u2028c"
    strange.mkdir()
    subprocess.run(["mount", "--bind", mount.dir, strange], check=True)
    try:
        assert str(strange) in [each.directory for each in mounts()]
    finally:
        subprocess.run(["umount", strange], check=True)


def test_a_directory_whose_extents_make_no_sense_keeps_what_is_in_it(tmp_path: Path) -> None:
    """It was dropped, and what was in it had no name that led to it at the mount after that."""
    image = tmp_path / "image"
    rest = [0] * 4 + [1] * 5
    rows = [
        hostile.HostileRow(ROOT_ID, hostile.DIRECTORY, 0, b"", 0, [], 0, b"", rest),
        hostile.HostileRow(1 << 32 | 2, hostile.DIRECTORY, ROOT_ID, b"d", 0, [(0, 3, 2**63)], 0, b"", rest),
        hostile.HostileRow(1 << 32 | 3, hostile.FILE, 1 << 32 | 2, b"f", 0, [], 0, b"", rest),
    ]
    hostile.write_image(str(image), 16 * MIB, 64, [hostile.page(rows)])
    for expected in ("degraded", "ok"):
        device = open_device(str(image), BufferPool(16 * MIB))
        store = UnrecoveredStore.open(device, BufferPool(16 * MIB)).recover()
        directory = store.lookup(ROOT_ID, b"d")
        assert store.state == expected
        assert directory is not None
        assert store.lookup(directory, b"f") is not None
        store.close()
        device.close()


def test_counts_that_are_at_their_end(tmp_path: Path) -> None:
    """What is written behind them couldn't be read: it is refused instead."""
    device = MemoryDevice(8 * MIB)
    sb = format_device(device, max_objects=64)
    found = [read_headers(device, sb, number).header for number in (0, 1)]
    header = max((each for each in found if each is not None), key=lambda each: each.generation)
    region = found.index(header)
    # The same pages and log under another generation don't verify, so only a serial is at its end.
    write_headers(device, sb, region, replace(header, next_serial=MAX_COUNT))
    store = UnrecoveredStore.open(device, BufferPool(16 * MIB)).recover()
    assert (store.state, EXHAUSTED in store.state_reason) == ("read-only", True)
    with pytest.raises(ReadOnlyStore):
        store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)
    assert EXHAUSTED in [problem.detail for problem in check(device).problems]
