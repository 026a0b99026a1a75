"""A run of the tests that is interrupted or killed leaves nothing: no mount, loop device, daemon, guard or file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.harness import places
from lab.harness.traces import Traces

ROOT = Path(__file__).resolve().parents[2]
NESTED = [str(ROOT / "tests" / "mount" / name) for name in ("test_statfs.py", "test_discard.py", "test_slow_device.py")]


@contextmanager
def running(traces: Traces, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A pytest over some tests with mounts and loop devices, as from a terminal: a process group of its own. It comes
    when it has made some, and, whatever becomes of it, ends with the block."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words, *NESTED]
    said = traces.temporary.with_name("said")
    with (
        said.open("wb") as output,
        subprocess.Popen(
            command, cwd=ROOT, env=traces.environment, stdout=output, stderr=output, start_new_session=True
        ) as run,
    ):
        try:
            deadline = time.monotonic() + 100
            while not any(places.mounts_in(place) for place in traces.look()):
                assert run.poll() is None, said.read_text()
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.01)
            yield run
        finally:
            with_what_it_started = [*traces.processes(), *([] if run.poll() is not None else [run.pid])]
            if run.poll() is None:
                for pid in with_what_it_started:
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    (tmp_path / "t").mkdir()
    return Traces(tmp_path / "t")


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-C twice", "SIGTERM", "SIGHUP", "kill -9"])
def test_an_interrupted_run_leaves_nothing(traces: Traces, words: tuple[str, ...], how: str) -> None:
    chance = random.Random(f"{how} {words}")
    with running(traces, *words) as run:
        time.sleep(chance.uniform(0, 0.7))
        traces.look()
        if how.startswith("Ctrl-C"):
            os.killpg(run.pid, signal.SIGINT)
            if how.endswith("twice"):
                time.sleep(chance.uniform(0, 0.2))
                os.killpg(run.pid, signal.SIGINT)
        elif how == "SIGHUP":  # of a terminal that is closed, to all
            os.killpg(run.pid, signal.SIGHUP)
        else:
            run.send_signal(signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)
        run.wait(100)
    traces.must_go()


def test_a_killed_worker_leaves_nothing(traces: Traces) -> None:
    """The run goes on with another one."""
    with running(traces, "-n", "1") as run:
        (worker,) = {owner for owner in owners(traces) if owner != run.pid}
        of_the_worker = {place for place in traces.look() if "popen-gw0" in place.parts[-1]}
        assert of_the_worker
        os.kill(worker, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(place.exists() for place in of_the_worker):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGINT)
        run.wait(100)
    traces.must_go()


def test_the_next_run_clears_what_a_killed_one_has_left(traces: Traces) -> None:
    """With its watcher killed too. What a living process owns stays."""
    with running(traces) as run:
        (owner,) = [each for each in owners(traces) if each == run.pid]
        for watcher in watchers(owner):
            os.kill(watcher, signal.SIGKILL)
        run.kill()
        run.wait(100)
    assert traces.left()
    with places.Place.make("hcfs-test-") as mine:
        subprocess.run([sys.executable, "-c", "from lab.harness import places; places.begin()"], cwd=ROOT, check=True)
        traces.must_go()
        assert mine.exists()


def owners(traces: Traces) -> set[int]:
    """Processes of the run that have places."""
    pids = set(traces.processes())
    return {pid for entry in places.register().iterdir() if (pid := number(entry.name)) in pids}


def number(name: str) -> int:
    first = name.partition("-")[0]
    return int(first) if first.isdigit() else 0


def watchers(owner: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(places.__file__) in words and places.identity(owner).encode() in words:
            found.append(int(name))
    return found
