"""The demo does what it says, with and without LMCache, and leaves nothing behind, also when it is interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from lab.harness import programs

TOOLS = Path(__file__).parent.parent / "tools"


def environment(tmp_path: Path, *, lmcache: bool) -> dict[str, str]:
    """Temporary files under tmp_path; without LMCache, a package of its name that can't be imported comes first."""
    found = {**programs.environment(), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    if not lmcache:
        (tmp_path / "without" / "lmcache").mkdir(parents=True)
        (tmp_path / "without" / "lmcache" / "__init__.py").write_text("raise ImportError('not installed')\n")
        found["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "without"), str(programs.ROOT)])
    return found


def left_behind(tmp_path: Path) -> list[str]:
    """Mounts, and entries of the temporary directory, but for those of the test itself."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line]
    return mounts + [str(path) for path in tmp_path.glob("hcfs-demo-*")]


@pytest.mark.parametrize("lmcache", [True, False])
def test_the_demo(tmp_path: Path, lmcache: bool) -> None:
    done = subprocess.run(
        programs.command("lab.demo.steps"),
        env=environment(tmp_path, lmcache=lmcache),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("the fs_native adapter of LMCache" in done.stdout) is lmcache
    assert done.stdout.count("): a miss") == 1
    assert "WRONG" not in done.stdout
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        programs.command("lab.demo.steps"),
        env=environment(tmp_path, lmcache=False),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "ordinary files" in line:
                demo.send_signal(number)
                break
        _, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 128 + number
    assert "Traceback" not in complaint
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("words", [["--nonsense"], ["--with-lmcache", "more"]])
def test_the_set_up_refuses_what_it_does_not_know(words: list[str]) -> None:
    done = subprocess.run([TOOLS / "setup", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert words[-1] in done.stderr


PYTHON = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/../../asked"
"""


def asked_of_pip(directory: Path, *words: str) -> set[str]:
    """The extras that one run of the set-up has pip install, `hcfs` among them when it is asked at all."""
    asked = directory / "asked"
    asked.unlink(missing_ok=True)
    subprocess.run([directory / "tools" / "setup", *words], check=True, capture_output=True, timeout=60)
    if not asked.exists():
        return set()
    (line,) = asked.read_text().splitlines()
    return {"hcfs", *line.partition("[")[2].rstrip("]").split(",")} - {""}


def test_the_set_up_adds_what_is_missing_in_any_order(tmp_path: Path) -> None:
    """In a checkout whose interpreter only writes down what it is asked: nothing twice, and nothing that is there is
    left out when something is added."""
    (tmp_path / "tools").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(TOOLS / "setup", tmp_path / "tools")
    shutil.copy(TOOLS.parent / "pyproject.toml", tmp_path)
    for name in ("python", "pip"):
        (tmp_path / ".venv" / "bin" / name).write_text(PYTHON)
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    users = {"hcfs", "weights", "origins"}
    lmcache = {"lmcache", "weights-bench"}
    assert asked_of_pip(tmp_path, "--minimal") == {"hcfs"}
    assert asked_of_pip(tmp_path, "--minimal") == set()
    assert asked_of_pip(tmp_path, "--with-lmcache", "--minimal") == {"hcfs"} | lmcache
    assert asked_of_pip(tmp_path) == users | lmcache
    assert asked_of_pip(tmp_path, "--minimal") == set()
    assert asked_of_pip(tmp_path, "--with-tests", "--with-lmcache") == users | lmcache | {"dev", "lab"}
    assert asked_of_pip(tmp_path, "--with-docs") == users | lmcache | {"dev", "lab", "docs"}
    for words in ([], ["--minimal"], ["--with-lmcache"], ["--with-tests"], ["--with-docs"]):
        assert asked_of_pip(tmp_path, *words) == set()
    with (tmp_path / "pyproject.toml").open("a") as project:
        project.write("# another one\n")
    assert asked_of_pip(tmp_path) == users
