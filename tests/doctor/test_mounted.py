"""Checks of a mount: well, and with each thing that may be wrong with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mount.damage import flip

from hcfs.device import BLOCK
from hcfs.doctor import medium, mounted
from hcfs.doctor.finding import Finding
from hcfs.mountpoint.client import connection_of
from hcfs.options import schemes
from hcfs.origin import CONFLICT
from lab.harness.actors import pattern
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount


def checked(mount: Mount, *, code: int = 0) -> dict[str, dict[str, Any]]:
    """The findings about the mount itself, by check."""
    result = hcfs("doctor", mount.dir, "--json", check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return {each["check"]: each for each in json.loads(result.stdout)["checks"]}


OF_MOUNT = (
    *("mount", "state", "version", "data plane", "max_background", "device", "alignment", "discard", "direct I/O"),
    *("memory", "room", "quarantine", "medium errors", "writers"),
)


def test_a_mount_that_is_well(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M", loop=True)
    found = checked(mount)
    assert {name: found[name]["verdict"] for name in OF_MOUNT} == dict.fromkeys(OF_MOUNT, "ok")
    assert "block device" in found["device"]["detail"]
    assert "trial mount" not in found


def test_what_is_no_mount_has_failed(tmp_path: Path, make_mount: Callable[..., Mount]) -> None:
    result = hcfs("doctor", tmp_path, check=False)
    assert result.returncode == 1
    assert f"failed   mount           {tmp_path} is not an hcfs mount" in result.stdout
    mount = make_mount(size="64M")
    mount.kill()
    assert "has died" in checked(mount, code=1)["mount"]["detail"]
    mount.umount()
    assert hcfs("doctor", tmp_path, "--memory", "1G", check=False).returncode == 2


def test_a_daemon_that_hangs(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    daemon = mount.pid
    os.kill(daemon, signal.SIGSTOP)
    try:
        found = checked(mount, code=1)
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert "doesn't answer" in found["mount"]["detail"]


def test_damage_is_told(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M", allow_warnings=[r"quarantin", r"checksum"])
    content = pattern("doctor", 300_000)
    (mount.ns() / "object").write_bytes(content)
    mount.umount()
    mount.mount()
    flip(mount.source, content, 1000)
    with pytest.raises(OSError, match="Input/output"):
        (mount.ns() / "object").read_bytes()
    found = {each.check: each for each in mounted.mounted(str(mount.dir), mount.status())}
    assert found["quarantine"].verdict == found["medium errors"].verdict == "warning"
    assert f"{mount.dir}/.hcfs/quarantine" in (found["quarantine"].remedy or "")


def test_data_plane_and_limits_of_the_kernel(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M", options="data_plane=off")
    limit = Path(f"/sys/fs/fuse/connections/{connection_of(str(mount.dir))}/max_background")
    limit.write_text("12")
    found = checked(mount)
    assert "pyfuse3 serves" in found["data plane"]["detail"]
    assert (found["max_background"]["verdict"], str(limit) in found["max_background"]["remedy"]) == ("warning", True)


STATES: list[tuple[dict[str, Any], str, str]] = [
    ({"state": "degraded", "state_reason": "why"}, "state", "failed"),
    ({"state": "read-only", "state_reason": "why"}, "state", "failed"),
    ({"state": "read-only", "state_reason": "why", "read_only": True}, "state", "ok"),
    ({"version": "0.0.1"}, "version", "warning"),
    ({"data_plane": "pyfuse3", "data_plane_reason": "too old"}, "data plane", "warning"),
    ({"sharing": "handle"}, "writers", "warning"),
    ({"free_bytes": 0, "evictable_bytes": 0}, "room", "warning"),
    ({"io": "buffered"}, "direct I/O", "warning"),
    ({"origins": {"w": {"url": "s3://b/p", "last_error": "gone", "listings": 1}}}, "origin", "warning"),
    ({"origins": {"w": {"url": "s3://b/p", "last_error": None, "listings": 1}}}, "origin", "ok"),
    (
        {"origins": {"w": {"url": "s3://b/p", "not_allowed": "the mount doesn't allow it", "listings": 0}}},
        "origin",
        "failed",
    ),
    ({"origins": {"w": {"url": "s3://b/p", "last_error": None, "failed_objects": 2}}}, "uploads", "warning"),
    ({"origins": {"w": {"url": "s3://b/p", "last_error": CONFLICT, "listings": 1}}}, "origin", "ok"),
    ({"device": "/absent/device"}, "device", "warning"),
]


@pytest.mark.parametrize(("changes", "check", "verdict"), STATES)
def test_what_a_status_may_say(shared_mount: Mount, changes: dict[str, Any], check: str, verdict: str) -> None:
    found = {each.check: each for each in mounted.mounted(str(shared_mount.dir), shared_mount.status() | changes)}
    assert found[check].verdict == verdict
    assert (found[check].remedy is None) == (verdict == "ok")
    assert ("uploads" in found) is (check == "uploads")


def test_uploads_that_were_given_up(shared_mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    status = shared_mount.status()
    status["counters"] = {**status["counters"], "upload_failures": 3}
    origin: dict[str, Any] = {"url": "s3://b/p", "listings": 1, "last_error": f"s3://b/p/c {CONFLICT}"}
    status["origins"] = {"w": origin}
    status["namespaces"] = {"w": {"origin": "s3://b/p"}}

    def found() -> dict[str, Finding]:
        return {each.check: each for each in mounted._origins(status)}

    assert set(found()) == {"origin"}  # all is resolved
    origin |= {"failed_objects": 1, "failed": [{"path": "c", "reason": f"s3://b/p/c {CONFLICT}"}]}
    remedy = f"'hcfs sync {shared_mount.dir} w --overwrite PATH' or '--discard PATH'"
    assert remedy in (found()["uploads"].remedy or "")
    assert found()["origin"].verdict == "ok"
    origin |= {"last_error": "AccessDenied", "failed": [{"path": "c", "reason": "AccessDenied"}]}
    assert "--retry" in (found()["uploads"].remedy or "")
    assert found()["origin"].verdict == "ok"
    origin |= {"last_error": "SlowDown", "last_error_s": 61.2}
    assert found()["origin"].detail.endswith("SlowDown (61 s ago)")
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)
    assert found()["extra origins"].verdict == "warning"
    status["namespaces"] = {"kv": {}}
    assert "extra origins" not in found()


def test_a_partition_between_blocks(make_loop: Callable[..., Path]) -> None:
    loop = make_loop("64M")
    table = b"label: gpt\nstart=2049,size=32768\nstart=40960,size=32768\n"
    subprocess.run(["sfdisk", "-q", "--no-reread", loop], input=table, check=True, capture_output=True)
    subprocess.run(["partx", "-a", loop], check=True, capture_output=True)
    try:
        (skew,) = [each for each in medium.medium(f"{loop}p1", "direct") if each.check == "alignment"]
        (even,) = [each for each in medium.medium(f"{loop}p2", "direct") if each.check == "alignment"]
    finally:
        subprocess.run(["partx", "-d", loop], check=True, capture_output=True)
    assert (skew.verdict, even.verdict) == ("warning", "ok")
    assert f"{2049 * 512} bytes" in skew.detail
    assert f"a multiple of {BLOCK}" in even.detail
