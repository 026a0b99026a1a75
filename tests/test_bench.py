"""Every command of tools/lab bench works, says what it is to say, and leaves nothing behind. What it measures is not
looked at: that a figure is there, with its ratio, is."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lab.bench import main as bench_main
from lab.bench import rounds as bench_rounds
from lab.harness import programs

RATES = ("store MiB/s", "load MiB/s")
COSTS = ("CPU ms/MiB", "READ+WRITE/MiB", "other requests/object", "copied MiB/MiB")
# By command: the candidates, the measures that each of them has, and those that hcfs alone has.
COMMANDS: dict[str, tuple[set[str], tuple[str, ...], tuple[str, ...]]] = {
    "l2": (
        {"ext4", "hcfs"},
        RATES,
        (*(f"{phase} {cost}" for phase in ("store", "load") for cost in COSTS), "daemon's peak MiB"),
    ),
    "small": (
        {"ext4", "hcfs"},
        ("store 1/s", "durable store 1/s", "load 1/s"),
        ("store CPU us/object", "store other requests/object", "load READ+WRITE/object"),
    ),
    "lookups": (
        {"ext4", "hcfs", "empty pyfuse3"},
        ("absent, first 1/s", "absent, repeated 1/s"),
        ("present, first CPU us/lookup",),
    ),
    "commit": ({"device", "ext4", "hcfs"}, ("store median ms", "store p99 ms"), ()),
    "reads": (
        {"ext4", "hcfs"},
        ("cold, 1 thread MiB/s", "warm, 1 thread MiB/s", "cold, 4 threads MiB/s"),
        ("cold, 1 thread CPU ms/MiB", "daemon's peak MiB"),
    ),
    "layout": (
        {"written serially", "written 8 ways"},
        ("read by 1 thread MiB/s", "read by 4 threads MiB/s", "extents an object"),
        (),
    ),
    "mount": ({"ext4", "hcfs"}, ("mount s", "umount s"), ("mount after kill s",)),
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Temporary files go under tmp_path."""
    return {**programs.environment(), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}


@contextmanager
def start(command: str, *words: str, **others: Any) -> Iterator[subprocess.Popen[str]]:
    """The tool; in the end nothing may be left of what it makes: mounts, loop devices, files on disk and in memory."""
    tool = programs.lab("bench", command, *words)
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **others) as process:
        yield process
    mark = f"hcfs-bench-{process.pid}-"
    loops = subprocess.run(["losetup", "-n", "-l", "-O", "BACK-FILE"], capture_output=True, text=True, check=True)
    assert mark not in loops.stdout
    assert mark not in Path("/proc/mounts").read_text()
    assert [*Path(others["env"]["TMPDIR"]).glob(mark + "*"), *Path("/dev/shm").glob(mark + "*")] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command(command: str, environment: dict[str, str], tmp_path: Path) -> None:
    candidates, measures, costs = COMMANDS[command]
    picture = tmp_path / "picture.svg"
    words = ["--quick", "--json", "--picture", str(picture)]
    if command == "l2":
        candidates = candidates | add_what_is_installed(words)
    with start(command, *words, env=environment) as tool:
        said, complaint = tool.communicate(timeout=150)
    assert tool.returncode == 0, complaint
    result = json.loads(said)
    assert (result["command"], result["backing"]) == (command, "memory")
    assert result["cases"]
    for case in result["cases"]:
        assert (case["rounds"], case["steady"], case["ended_by"]) == (1, False, "rounds")
        table = case["measures"]
        assert {name for entries in table.values() for name in entries} == candidates
        for measure in measures:
            assert set(table[measure]) == candidates, measure
            for entry in table[measure].values():
                assert entry["low"] <= entry["median"] <= entry["high"]
                ratio = entry.get("ratio", entry)
                assert ratio["low"] <= ratio["median"] <= ratio["high"]
        for measure in costs:
            assert set(table[measure]) == {"hcfs"}, measure
        for measure in case["judged"]:
            assert sum("ratio" not in entry for entry in table[measure].values()) == 1, measure
    bars = [part for part in ET.parse(picture).iter() if part.get("id", "").startswith("bar-")]
    assert len(bars) == sum(
        "ratio" in entry
        for case in result["cases"]
        for measure in case["judged"]
        for entry in case["measures"][measure].values()
    )


def add_what_is_installed(words: list[str]) -> set[str]:
    """Candidates besides ext4 and hcfs, which tools/setup --with-bench brings; the words select them."""
    chosen, found = ["ext4", "hcfs"], set()
    if shutil.which("fio"):
        chosen.append("device")
        found.add("device")
    if importlib.util.find_spec("lmcache_rust_raw_block_io"):
        chosen.append("raw_block")
        found |= {"raw_block posix", "raw_block io_uring"}
    words += ["--candidates", ",".join(chosen)]
    return found


def only_case(environment: dict[str, str], command: str, *words: str) -> dict[str, Any]:
    """The result of a quick run that has one case."""
    with start(command, "--quick", "--json", *words, env=environment) as tool:
        said, complaint = tool.communicate(timeout=150)
    assert tool.returncode == 0, complaint
    (case,) = json.loads(said)["cases"]
    assert isinstance(case, dict)
    return case


def test_levers_are_candidates(environment: dict[str, str]) -> None:
    case = only_case(environment, "reads", "--size", "4M", "--levers", "small-pages,read-ahead=128")
    candidates = {"ext4", "hcfs", "hcfs small-pages", "hcfs read-ahead=128"}
    assert {name for entries in case["measures"].values() for name in entries} == candidates
    with start("reads", "--quick", "--levers", "longer", env=environment) as tool:
        _, complaint = tool.communicate(timeout=60)
    assert tool.returncode == 1
    assert "there are small-pages and read-ahead=KIB" in complaint


def test_what_the_kernel_has_costs_the_daemon_nothing(environment: dict[str, str]) -> None:
    """Buffered: the loads read what the stores have left in the page cache."""
    case = only_case(environment, "l2", "--modes", "buffered", "--candidates", "hcfs")
    assert set(case["measures"]["load MiB/s"]) == {"ext4", "hcfs"}


def test_for_people(environment: dict[str, str]) -> None:
    """With one round it says that nothing is known yet."""
    with start("commit", "--quick", "--backing", "disk", env=environment) as tool:
        said, complaint = tool.communicate(timeout=100)
    assert tool.returncode == 0, complaint
    assert "NOT STEADY" in said
    assert "x device" in said
    assert "over a disk file" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_cleans_up(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with start("commit", "--device", "128M", "--size-kb", "64", env=environment) as tool:
        deadline = time.monotonic() + 60
        while f"{tmp_path}" not in Path("/proc/mounts").read_text():
            assert time.monotonic() < deadline
            assert tool.poll() is None
            time.sleep(0.01)
        tool.send_signal(number)
        _, complaint = tool.communicate(timeout=60)
    assert tool.returncode == 128 + number
    assert complaint.splitlines()[-1] == f"tools/lab bench was ended by {number.name}"


def test_stores_that_fail_fail_the_run(environment: dict[str, str]) -> None:
    """LMCache's benchmark goes on and exits with 0 when the device is full."""
    words = ["--device", "64M", "--sizes", "512", "--rounds", "5", "--candidates", "ext4"]
    with start("l2", *words, env=environment) as tool:
        said, complaint = tool.communicate(timeout=100)
    assert (tool.returncode, said) == (1, "")
    assert " failed:\n" in complaint
    assert "Traceback" not in complaint


def test_what_is_missing_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    """A program that isn't there, as one sentence with the remedy."""
    for name in ("dd", "losetup", "sync"):
        path = shutil.which(name)
        assert path is not None
        (tmp_path / name).symlink_to(path)
    with start("commit", "--quick", env={**environment, "PATH": str(tmp_path)}) as tool:
        _, complaint = tool.communicate(timeout=60)
    assert tool.returncode == 1
    assert complaint.splitlines()[-1] == ("tools/lab bench commit: gcc isn't installed: run tools/setup --with-bench")


def test_the_commands_in_the_documentation() -> None:
    """They are all there, and the examples are understood."""
    page = (programs.ROOT / "docs" / "benchmarks.md").read_text()
    shown = re.findall(r"^\* `tools/lab bench (\w+)` ", page, re.MULTILINE)
    assert shown == [*bench_main.COMMANDS]
    examples = re.findall(r"^tools/lab bench (.*?)(?: > .*)?$", page, re.MULTILINE)
    assert len(examples) > 2
    for example in examples:
        bench_main.parser().parse_args(shlex.split(example))


class TestRounds:
    """rounds: which interval is given, and when a case ends."""

    @pytest.mark.parametrize(
        ("count", "first", "last"), [(1, 1, 1), (5, 1, 5), (7, 1, 7), (8, 2, 7), (11, 3, 9), (20, 6, 15), (30, 11, 20)]
    )
    def test_the_interval_holds_the_median_in_90_of_100_samples(self, count: int, first: int, last: int) -> None:
        """Ranks from tables of the sign test."""
        assert bench_rounds.interval(range(1, count + 1)) == (first, last)

    @pytest.mark.parametrize(
        ("values", "budget", "rounds", "ended_by", "steady"),
        [
            ([1.0], 1000.0, 6, "steady", True),
            ([1.0, 2.0], 1000.0, 12, "rounds", False),
            ([1.0, 2.0], 0.0, 1, "budget", False),
        ],
    )
    def test_a_case_ends(self, values: list[float], budget: float, rounds: int, ended_by: str, steady: bool) -> None:
        order: list[str] = []
        hcfs = itertools.cycle(values)

        def measured(name: str, value: float) -> dict[str, float]:
            order.append(name)
            return {"rate 1/s": value}

        case = bench_rounds.Case(
            "a case",
            {"ext4": lambda: measured("ext4", 4.0), "hcfs": lambda: measured("hcfs", next(hcfs))},
            ["rate 1/s"],
        )
        result = bench_rounds.compare(case, bench_rounds.Limits(6, 12, 0.05), budget, lambda _: None)
        assert (result["rounds"], result["ended_by"], result["steady"]) == (rounds, ended_by, steady)
        assert order == ["ext4", "hcfs"] * rounds
        assert result["measures"]["rate 1/s"]["hcfs"]["ratio"]["values"] == [
            value / 4 for value in itertools.islice(itertools.cycle(values), rounds)
        ]
        assert ("NOT STEADY" in bench_rounds.text(result)) is not steady
