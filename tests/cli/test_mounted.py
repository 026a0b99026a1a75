"""Commands about a mount: status, ns, keys, lmcache-config, umount."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from hcfs.cli.commands import group
from hcfs.daemon.daemon import unmount
from hcfs.mountpoint import mountpoint
from hcfs.mountpoint.fuse_connections import is_stopped
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.users import hcfs_as_nobody

SPACE = ("used", "free", "staged", "pending", "quarantined")
STATUS_FIELDS = """
    uuid label device state io granule_bytes capacity_bytes used_bytes free_bytes staged_bytes pending_bytes
    quarantined_bytes evictable_bytes dirty_bytes objects staged_objects quarantined_objects max_objects counters
    namespaces
"""
COUNTERS = """
    lookups lookup_misses opens read_bytes written_bytes commits abandoned evictions evicted_bytes checksum_errors
    device_errors ingests uploads upload_failures
"""
NAMESPACE_FIELDS = (
    "objects used_bytes staged_bytes quota_bytes salt_quota_bytes local_only origin write_policy dirty_bytes evictions "
    "salts"
)


def failed(*words: str | Path, code: int = 1) -> str:
    result = hcfs(*words, check=False)
    assert result.returncode == code, result.stderr
    (line,) = result.stderr.splitlines()
    return line


def test_status_has_the_fields_that_others_rely_on(shared_mount: Mount, kv: Path) -> None:
    (kv / "object").write_bytes(b"x" * 5000)
    status = json.loads(hcfs("status", shared_mount.dir, "--json").stdout)
    assert set(STATUS_FIELDS.split()) <= set(status)
    assert set(COUNTERS.split()) <= set(status["counters"])
    assert set(NAMESPACE_FIELDS.split()) <= set(status["namespaces"][kv.name])
    assert sum(status[f"{part}_bytes"] for part in SPACE) == status["capacity_bytes"]
    assert status["device"] == str(shared_mount.source)
    assert set(status) == set(shared_mount.status())


def test_status_as_text(shared_mount: Mount, kv: Path) -> None:
    text = hcfs("status", shared_mount.dir).stdout
    assert "state:" in text
    assert "checksum_errors" in text
    assert f"\n{kv.name} " in text


def test_status_is_quick(shared_mount: Mount) -> None:
    """Scripts poll it, so it loads nothing of the daemon's: trio and pyfuse3 alone would double its time."""
    command = [sys.executable, "-X", "importtime", "-m", "hcfs", "status", shared_mount.dir, "--json"]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    modules = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "click" in modules
    assert not modules & {"trio", "pyfuse3", "sortedcontainers", "hcfs.store", "prometheus_client"}


@pytest.mark.parametrize("words", [["status"], ["ns", "list"], ["umount"]])
def test_what_is_no_mount_is_named(tmp_path: Path, words: list[str]) -> None:
    assert str(tmp_path) in failed(*words, tmp_path)
    assert str(tmp_path / "absent") in failed(*words, tmp_path / "absent")


def test_a_dead_mount_is_named(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    mount.kill()
    assert str(mount.dir) in failed("status", mount.dir)
    mount.mount()
    assert mount.status()["state"] == "ok"


def test_ns_create_show_list_set(shared_mount: Mount) -> None:
    name = f"ns{os.getpid()}"
    made = hcfs("ns", "create", shared_mount.dir, name, "--verify", "open").stdout
    assert made == f"{shared_mount.dir / name}\n"
    assert (shared_mount.dir / name).is_dir()
    shown = json.loads(hcfs("ns", "show", shared_mount.dir, name, "--json").stdout)
    assert shown["options"]["verify"] == "open"
    assert shown["options"]["staging_patterns"] == ["*.tmp"]
    hcfs("ns", "set", shared_mount.dir, name, "--verify", "read", "--staging-patterns", "*.tmp,*.part")
    shown = json.loads(hcfs("ns", "show", shared_mount.dir, name, "--json").stdout)
    assert shown["options"]["verify"] == "read"
    assert shown["options"]["staging_patterns"] == ["*.tmp", "*.part"]
    assert "*.part" in hcfs("ns", "show", shared_mount.dir, name).stdout
    assert name in json.loads(hcfs("ns", "list", shared_mount.dir, "--json").stdout)
    assert f"\n{name} " in hcfs("ns", "list", shared_mount.dir).stdout


def test_ns_create_and_set_as_json(shared_mount: Mount) -> None:
    name = f"json{os.getpid()}"
    made = json.loads(hcfs("ns", "create", shared_mount.dir, name, "--quota", "1M", "--json").stdout)
    assert (made["name"], made["quota_bytes"]) == (name, 1 << 20)
    changed = json.loads(hcfs("ns", "set", shared_mount.dir, name, "--quota", "none", "--json").stdout)
    assert changed["quota_bytes"] is None
    assert changed == json.loads(hcfs("ns", "show", shared_mount.dir, name, "--json").stdout)


def test_a_mount_reports_as_json(make_image: Callable[..., Path], tmp_path: Path) -> None:
    image = make_image("64M")
    hcfs("mkfs", image)
    mount = Mount(image, tmp_path / "mnt")
    try:
        report = json.loads(hcfs("mount", image, mount.dir, "--log", mount.log, "--json").stdout)
        status = mount.status()
        assert report == {name: status[name] for name in report}
        assert {"device", "directory", "uuid", "pid", "state", "data_plane"} <= set(report)
        assert "-f" in failed("mount", "-f", image, mount.dir, "--json", code=2)
    finally:
        mount.close()


def test_every_command_that_reports_has_json() -> None:
    def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from leaves(inner, f"{path} {name}")

    without = {
        path for path, command in leaves(group, "hcfs") if not any("--json" in each.opts for each in command.params)
    }
    assert without == {"hcfs umount"}


@pytest.mark.parametrize("words", [["info"], ["fsck"], ["inspect"]])
def test_a_mount_is_no_device(shared_mount: Mount, words: list[str]) -> None:
    more = ["superblock"] if words == ["inspect"] else []
    said = failed(*words, shared_mount.dir, *more, code=8 if words == ["fsck"] else 1)
    assert said == (
        f"hcfs: {shared_mount.dir} is a mount of {shared_mount.source}, and not a device: give {shared_mount.source}; "
        f"'hcfs status {shared_mount.dir}' tells about the mount."
    )


def test_a_stopped_daemon_is_given_up_at_once(
    make_mount: Callable[..., Mount], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for its answer. Continued, it ends, since its mount is gone."""
    mount = make_mount(size="64M", allow_warnings=[r"."])
    daemon = mount.pid
    monkeypatch.setattr(mountpoint, "condition_of", lambda path: pytest.fail("it was asked"))
    os.kill(daemon, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 30
        while not is_stopped(daemon):
            assert time.monotonic() < deadline
        unmount(str(mount.dir), lazy=True)
        assert not mount.mounted
    finally:
        os.kill(daemon, signal.SIGCONT)
    while os.path.exists(f"/proc/{daemon}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_namespace_made_by_mkdir_is_one(shared_mount: Mount, kv: Path) -> None:
    assert json.loads(hcfs("ns", "show", shared_mount.dir, kv.name, "--json").stdout)["local_only"] is True


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--quota", "1Q"], "it isn't a size"),
        (["--salt-quota", "-1"], "it isn't a size"),
        (["--origin", "https://x.example/"], "none of those that this version"),
        (["--write-policy", "always"], "there is no such policy"),
        (["--origin", "s3://key:word@bucket/x"], "credentials aren't part of it"),
        (["--origin-changes", "sometimes"], "revalidate=SECONDS"),
        (["--verify", "never"], "read or open"),
        (["--staging-patterns", "*"], "every name"),
        (["--staging-patterns", "a/b"], "'a/b'"),
    ],
)
def test_options_are_refused_with_the_reason_and_nothing_is_made(
    shared_mount: Mount, kv: Path, words: list[str], reason: str
) -> None:
    assert reason in failed("ns", "create", shared_mount.dir, "refused", *words, code=2)
    assert not (shared_mount.dir / "refused").exists()
    assert reason in failed("ns", "set", shared_mount.dir, kv.name, *words, code=2)


@pytest.mark.parametrize("name", ["a/b", ".", "..", ".hcfs", ""])
def test_what_is_no_name_of_a_namespace(shared_mount: Mount, name: str) -> None:
    assert "can't be a namespace" in failed("ns", "create", shared_mount.dir, name, code=2)


def test_names_that_are_taken_or_absent(shared_mount: Mount, kv: Path) -> None:
    assert "exists already" in failed("ns", "create", shared_mount.dir, kv.name)
    for words in (["ns", "show"], ["ns", "set"], ["keys"], ["lmcache-config"]):
        extra = ["--verify", "open"] if words[-1] == "set" else []
        assert "no namespace 'absent'" in failed(*words, shared_mount.dir, "absent", *extra, code=2)
    assert "no option is given" in failed("ns", "set", shared_mount.dir, kv.name, code=2)


def test_keys(shared_mount: Mount, kv: Path) -> None:
    salted = f"meta-llama-SEP-Llama-3.1-8B@0x01000100@0@{'ab' * 16}@tenant-7.data"
    plain = f"model@0x01000100@1a@{'cd' * 16}.data"
    old = f"model@0x01000100@{'ef' * 16}.data"
    (kv / salted).write_bytes(b"1" * 100)
    (kv / plain).write_bytes(b"2" * 200)
    (kv / "sub").mkdir()
    (kv / "sub" / old).write_bytes(b"3" * 300)
    (kv / "other.txt").write_bytes(b"no chunk")
    keys = json.loads(hcfs("keys", shared_mount.dir, kv.name, "--json").stdout)
    found = {key["hash"][:2]: key for key in keys}
    assert len(keys) == 3
    assert {name: found["ab"][name] for name in ("model", "rank", "group", "salt", "size", "state")} == {
        "model": "meta-llama/Llama-3.1-8B",
        "rank": 0x01000100,
        "group": 0,
        "salt": "tenant-7",
        "size": 100,
        "state": "local-only",
    }
    assert found["ab"]["model_is_ambiguous"] is True
    assert (found["cd"]["group"], found["cd"]["salt"], found["cd"]["size"]) == (0x1A, "", 200)
    assert found["ef"]["group"] is None
    text = hcfs("keys", shared_mount.dir, kv.name).stdout.splitlines()
    assert text[0].split() == ["model", "rank", "group", "hash", "salt", "size", "state"]
    assert len(text) == 4
    assert any("tenant-7" in line and "0x01000100" in line for line in text)


def test_lmcache_config_is_ready_to_paste(shared_mount: Mount, kv: Path) -> None:
    printed = hcfs("lmcache-config", shared_mount.dir, kv.name).stdout
    assert printed.count("\n") == 1
    spec = json.loads(printed)
    assert spec == {"type": "fs_native", "base_path": str(kv), "num_workers": 4, "use_odirect": True}
    words = ["--num-workers", "8", "--no-odirect", "--json"]
    spec = json.loads(hcfs("lmcache-config", shared_mount.dir, kv.name, *words).stdout)
    assert (spec["num_workers"], spec["use_odirect"]) == (8, False)
    assert "num_workers" in failed("lmcache-config", shared_mount.dir, kv.name, "--num-workers", "0", code=2)


def test_umount_leaves_the_device_free(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M", loop=True)
    pid = mount.pid
    mount.umount()
    assert not mount.mounted
    assert not Path(f"/proc/{pid}").exists()
    os.close(os.open(mount.source, os.O_RDWR | os.O_EXCL))


def test_umount_of_a_busy_mount(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    with (mount.ns() / "open").open("wb"):
        assert str(mount.dir) in failed("umount", mount.dir)
        assert mount.mounted


def test_a_mounted_store_can_be_looked_at_but_not_checked(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    (mount.ns() / "object").write_bytes(b"x" * 10000)
    handle = os.open(mount.ns(), os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    in_use = json.loads(hcfs("info", mount.source, "--json").stdout)["in_use"]
    assert (str(mount.dir) in in_use, "info" in in_use) == (True, False)
    objects = json.loads(hcfs("inspect", mount.source, "objects", "--json").stdout)
    assert "/kv/object" in [each["path"] for each in objects]
    assert "in use" in failed("fsck", mount.source, code=8)
    assert "in use" in failed("mkfs", mount.source, "--force")


def test_a_source_without_a_command_mounts_for_real(make_image: Callable[..., Path], tmp_path: Path) -> None:
    image = make_image("64M")
    hcfs("mkfs", image)
    mount = Mount(image, tmp_path / "mnt")
    hcfs(image, mount.dir, "-o", f"rw,nofail,log={mount.log}")
    try:
        assert mount.status()["state"] == "ok"
    finally:
        mount.close()


def test_a_label_mounts(make_loop: Callable[..., Path], tmp_path: Path) -> None:
    loop = make_loop("64M")
    label = f"test-{os.getpid()}-{loop.name}"
    hcfs("mkfs", loop, "--label", label)
    mount = Mount(Path(f"LABEL={label}"), tmp_path / "mnt")
    try:
        assert mount.mount().status()["device"] == str(loop)
    finally:
        mount.close()


def test_the_foreground_stays_and_ends_with_the_mount(make_image: Callable[..., Path], tmp_path: Path) -> None:
    image = make_image("64M")
    hcfs("mkfs", image)
    mount = Mount(image, tmp_path / "mnt")
    command = [*hcfs("--version").args[:3], "mount", "-f", str(image), str(mount.dir), "--log", str(mount.log)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not mount.mounted:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert mount.status()["pid"] == process.pid
        mount.umount()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        mount.close()


def test_options_are_for_the_owner_of_the_mount(make_image: Callable[..., Path]) -> None:
    """Another user may make a namespace where the root directory's mode lets him, and set no option of it: then none
    is made."""
    source = make_image("64M")
    hcfs("mkfs", source)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o711)
        mount = Mount(source, Path(place) / "mnt", options="allow_other")
        try:
            mount.mount()
            os.chmod(mount.dir, 0o777)
            mount.ns("kv")
            for words in (["set", "kv"], ["create", "another"]):
                code, said = hcfs_as_nobody("ns", words[0], mount.dir, words[1], "--verify", "open")
                assert code == 1
                assert "only root and the owner" in said
            assert not (mount.dir / "another").exists()
        finally:
            mount.close()
