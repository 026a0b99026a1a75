"""Checks of the machine: each says the truth about this one, and names what is wrong with another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcfs.doctor import machine, packages
from hcfs.doctor.finding import Finding
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.namespaces import own_mounts

MIB = 1 << 20


def verdicts(findings: Any) -> list[str]:
    return [each.verdict for each in findings]


def doctor(*words: str | Path, code: int = 0, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """The checks by name; where several have one name, the worst."""
    result = hcfs("doctor", *words, "--json", check=False, env=env)
    assert result.returncode == code, result.stdout + result.stderr
    document = json.loads(result.stdout)
    order = ["failed", "warning", "ok"]
    assert sum(document[verdict] for verdict in order) == len(document["checks"])
    for each in document["checks"]:
        assert (each["remedy"] is None) == (each["verdict"] == "ok"), each
    return {each["check"]: each for each in sorted(document["checks"], key=lambda each: -order.index(each["verdict"]))}


def test_this_machine_can_mount_and_nothing_is_left(tmp_path: Path) -> None:
    found = doctor(env={"TMPDIR": str(tmp_path)})
    names = ("kernel", "libfuse", "fuse device", "fusermount3", "packages", "memory", "trial mount", "data plane")
    assert {name: found[name]["verdict"] for name in (*names, "max_background")} == dict.fromkeys(
        (*names, "max_background"), "ok"
    )
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_as_text() -> None:
    result = hcfs("doctor")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ok       kernel          Linux ")
    assert lines[-1].startswith("0 failed, ")
    assert "\x1b" not in result.stdout


def test_without_the_data_plane() -> None:
    found = doctor(env={"HCFS_DATA_PLANE": "off"})
    assert found["data plane"]["verdict"] == "ok"
    assert "pyfuse3 serves" in found["data plane"]["detail"]


def test_without_fusermount_root_has_no_data_plane(tmp_path: Path) -> None:
    for program in ("cat", "stat", "mount"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    found = doctor(env={"PATH": str(tmp_path)})
    assert found["fusermount3"]["verdict"] == found["data plane"]["verdict"] == "warning"
    assert "fuse3" in found["fusermount3"]["remedy"]
    assert "fusermount3 isn't installed" in found["data plane"]["detail"]
    assert found["trial mount"]["verdict"] == "ok"


def test_where_fuse_does_not_work_the_trial_fails(tmp_path: Path) -> None:
    """In a mount namespace of its own, /dev/null stands where /dev/fuse should."""
    script = 'mount --bind /dev/null /dev/fuse && exec "$0" -m hcfs doctor --json'
    result = subprocess.run(
        own_mounts(script, sys.executable),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1, result.stderr
    checks = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert checks["trial mount"]["verdict"] == "failed"
    assert checks["trial mount"]["remedy"]
    assert list(tmp_path.iterdir()) == []


def test_no_fuse_device(tmp_path: Path) -> None:
    (absent,) = machine.fuse_device(str(tmp_path / "fuse"))
    assert (absent.verdict, "modprobe fuse" in (absent.remedy or "")) == ("failed", True)
    (other,) = machine.fuse_device(str(tmp_path))
    assert other.verdict == "failed"


def test_memory(tmp_path: Path) -> None:
    assert verdicts(machine.memory_for(16 * MIB)) == ["ok"]
    available, where = machine.memory_available()
    assert where == "the machine" or where.startswith("the cgroup")
    assert verdicts(machine.memory_for(available + (1 << 40))) == ["failed"]
    assert verdicts(machine.memory_for(available * 3 // 4)) == ["warning"]
    # What the daemon has already need not be found again.
    assert verdicts(machine.memory_for(available + (1 << 40), used=available + (1 << 40))) == ["ok"]
    assert doctor("--memory", "512T", code=1)["memory"]["verdict"] == "failed"


def test_memory_of_a_cgroup(tmp_path: Path) -> None:
    """The tightest limit of all groups above counts."""
    line = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    group = Path(f"{tmp_path}{line[3:]}")
    group.mkdir(parents=True, exist_ok=True)
    for name, text in (("memory.max", str(100 * MIB)), ("memory.current", str(70 * MIB))):
        (tmp_path / name).write_text(text + "\n")
    assert machine.memory_available("self", str(tmp_path)) == (30 * MIB, f"the cgroup {tmp_path}")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_available("self", str(tmp_path))[1] == "the machine"


@pytest.mark.parametrize(
    ("now", "kept", "verdict"),
    [(2e9, True, "ok"), (2e9, False, "warning"), (1e9, True, "failed"), (0, False, "failed")],
)
def test_clock(now: float, kept: bool, verdict: str) -> None:
    assert verdicts(machine.clock_at(now, 1.5e9, kept=kept)) == [verdict]


def test_dead_mounts_are_named(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    assert not any(str(mount.dir) in each.detail for each in machine.dead_mounts())
    mount.kill()
    (found,) = [each for each in machine.dead_mounts() if f"{mount.dir} " in each.detail]
    assert (found.verdict, f"'hcfs umount {mount.dir}'" in (found.remedy or "")) == ("warning", True)
    mount.umount()


def test_packages_of_this_environment() -> None:
    found: list[Finding] = list(packages.packages())
    assert verdicts(found) == ["ok"] * len(found)
    assert "pyfuse3 " in found[0].detail
    assert [each.check for each in found[1:]] == ["extra origins", "extra weights"]


@pytest.mark.parametrize(
    ("version", "how", "bound", "right"),
    [
        ("8.1", ">=", "8.1", True),
        ("8.1.0", "==", "8.1", True),
        ("10.0", ">=", "9.5", True),
        ("2.9.post0", ">=", "2.7", True),
        ("0.24", ">=", "0.25", False),
        ("0.5.6", "==", "0.5.5", False),
    ],
)
def test_versions(version: str, how: str, bound: str, right: bool) -> None:
    assert packages.fits(version, how, bound) is right
