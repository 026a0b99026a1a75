"""Which origins a mount allows, who may set one, and what becomes of a namespace whose origin isn't allowed. The
daemons here are root's, and so are the directories that a stranger's image would have them read and write."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.harness.actors import errno_of, eventually, load, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import ALLOWED, evict_all, is_clean, namespace, origin_status, state, sync
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import BUCKET
from lab.harness.users import NOBODY, hcfs_as_nobody

FRONT_ENDS = ("data_plane=on", "data_plane=off")
ALLOWED_PREFIXES = re.findall(r"allow_origin=([^,]+)", ALLOWED)
REFUSED = r"is refused|isn't uploaded|can't be listed"


def as_nobody(program: str, *words: str | Path) -> str:
    """What a Python program prints that has os and sys, run as nobody."""
    drop = f"import os, sys; os.setgroups([]); os.setresgid(*3 * [{NOBODY}]); os.setresuid(*3 * [{NOBODY}])\n"
    done = subprocess.run([sys.executable, "-c", drop + program, *map(str, words)], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


SET = """
for option in sys.argv[2:]:
    name, _, value = option.partition("=")
    try:
        os.setxattr(sys.argv[1], "user.hcfs." + name, value.encode())
        print("done")
    except OSError as error:
        print(error.errno)
"""
REMOVE = """
try:
    os.removexattr(sys.argv[1], "user.hcfs." + sys.argv[2])
    print("done")
except OSError as error:
    print(error.errno)
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A directory of root's alone."""
    path = tmp_path / "secret"
    path.mkdir(mode=0o700)
    (path / "key").write_bytes(b"secret")
    return path


@contextmanager
def during_an_outage(secret: Path, path: Path, data: bytes) -> Iterator[None]:
    """A file is published, and stays dirty, while the directory isn't there; it comes back afterwards."""
    away = secret.with_name("away")
    writer = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(writer, data)
    secret.rename(away)
    secret.write_bytes(b"in the way")
    os.close(writer)
    eventually(lambda: state(path) in ("dirty", "uploading"), "it is published")
    yield
    secret.unlink()
    away.rename(secret)


@pytest.fixture
def nobodys(make_image: Callable[..., Path], secret: Path) -> Iterator[Mount]:
    """A mount by root whose root directory is nobody's, in a place that everybody reaches; `secret` is allowed."""
    source = make_image("64M")
    hcfs("mkfs", source)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o711)
        mount = Mount(source, Path(place) / "mnt", options=f"allow_other,lookup_grace=0,allow_origin={secret}")
        try:
            mount.mount()
            os.chown(mount.dir, NOBODY, NOBODY)
            os.chown(mount.ns("there"), NOBODY, NOBODY)
            yield mount
        finally:
            mount.close()


def test_who_owns_the_mounts_root_sets_no_origin(nobodys: Mount, secret: Path) -> None:
    """The directory is allowed, for root: whoever the mount's root belongs to may set all other options."""
    mount, there = nobodys, nobodys.dir / "there"
    words = (f"origin={secret}", "write_policy=write-back", "verify=open", "quota=1M")
    assert as_nobody(SET, there, *words).split() == ["1", "1", "done", "done"]
    hcfs("ns", "set", mount.dir, "there", "--origin", secret, "--quota", "none")
    words = ("write_policy=write-back", "origin_changes=revalidate=0", "origin_check=length", "origin_open=whole")
    assert as_nobody(SET, there, *words, "origin=none").split() == ["1"] * 5
    assert as_nobody(REMOVE, there, "origin") == "1"
    options = json.loads(hcfs("ns", "show", mount.dir, "there", "--json").stdout)["options"]
    assert (options["origin"], options["write_policy"], options["origin_open"]) == (str(secret), "read-only", "whole")
    assert as_nobody(SET, there, "verify=read", "quota=2M").split() == ["done"] * 2


def test_the_command_says_who_may(nobodys: Mount, secret: Path) -> None:
    code, said = hcfs_as_nobody("ns", "set", nobodys.dir, "there", "--origin", secret)
    assert code == 1
    assert f"refused origin={secret}: what concerns an origin is set by root" in said


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_what_the_mount_does_not_allow_is_not_set(
    make_mount: Callable[..., Mount], secret: Path, s3: S3, front_end: str
) -> None:
    mount = make_mount(options=f"{front_end},{ALLOWED}")
    there = mount.ns("there")
    for origin in (str(secret), f"file://{secret}", "s3://elsewhere/x"):
        assert errno_of(os.setxattr, there, "user.hcfs.origin", origin.encode()) == "EACCES"
        for words in (("create", mount.dir, "new"), ("set", mount.dir, "there")):
            done = hcfs("ns", *words, "--origin", origin, check=False)
            assert done.returncode == 1
            assert done.stderr.endswith(
                f"the mount doesn't allow its origin {origin}: mount with -o allow_origin={origin}.\n"
            ), done.stderr
    assert sorted(os.listdir(mount.dir)) == [".hcfs", "there"]
    assert any("gets no origin" in line and str(secret) in line for line in mount.log_lines())
    assert json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())["allow_origin"] == ALLOWED_PREFIXES
    assert mount.status()["origins"] == {}


def test_a_prefix_is_compared_part_by_part(make_mount: Callable[..., Mount], s3: S3, tmp_path: Path) -> None:
    """Nor does anything escape by .. or by a symlink."""
    hub, outside = tmp_path / "hub", tmp_path / "hub-not"
    for path in (hub / "team", outside):
        path.mkdir(parents=True)
        (path / "f").write_bytes(b"f")
    (hub / "out").symlink_to(outside)
    (hub / "in").symlink_to(hub / "team")
    (tmp_path / "alias").symlink_to(hub)
    words = f"allow_origin={hub},allow_origin={tmp_path}/alias,allow_origin=s3://other/a,{ALLOWED}"
    mount = make_mount(options=words)
    there = mount.ns("there")

    def answer(origin: str | Path) -> str | None:
        try:
            os.setxattr(there, "user.hcfs.origin", str(origin).encode())
        except OSError as error:
            return os.strerror(error.errno or 0)
        os.setxattr(there, "user.hcfs.origin", b"none")
        return None

    fine = ["s3://other/a", "s3://other/a/b", "s3://other/%61/b", f"s3://{BUCKET}", hub, f"{hub}/", hub / "team"]
    fine += [hub / "in", f"{hub}/team/..", f"file://{hub}/team", tmp_path / "alias" / "team"]
    wrong = ["s3://other/ab", "s3://other", "s3://others/a", "gs://other/a", outside, tmp_path, "/"]
    wrong += [hub / "out", f"{hub}/../hub-not", f"{hub}/team/../../hub-not", f"file://{hub}/%2e%2e/hub-not"]
    assert {str(origin): answer(origin) for origin in fine} == {str(origin): None for origin in fine}
    assert {str(origin): answer(origin) for origin in wrong} == {str(origin): "Permission denied" for origin in wrong}
    led = hcfs("ns", "set", mount.dir, "there", "--origin", hub / "out", check=False).stderr
    assert f"its origin {hub}/out leads to {outside}, which the mount doesn't allow: mount with -o allow_origin" in led


@pytest.mark.parametrize("changes", ["immutable", "revalidate=0"])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_foreign_image_gets_nothing(
    make_mount: Callable[..., Mount], secret: Path, tmp_path: Path, front_end: str, changes: str
) -> None:
    """It has a file to be sent into a directory of the host's, and one that came from there. Nothing is sent or
    fetched, and nothing is lost; a mount that allows it goes on."""
    mount = make_mount(options=f"allow_origin={secret},lookup_grace=0,{front_end}", allow_warnings=[REFUSED])
    (secret / "other").write_bytes(b"other")
    hcfs("ns", "create", mount.dir, "there", "--origin", secret, "--origin-changes", changes)
    there, kv = mount.dir / "there", mount.ns("kv")
    put(kv / "chunk", b"kv")
    assert load(there / "key") == b"secret"
    hcfs("ns", "set", mount.dir, "there", "--write-policy", "write-back")
    with during_an_outage(secret, there / "key", b"dirty"):
        mount.umount()
    for others in ("", f",allow_origin={tmp_path}/elsewhere,allow_origin=s3://x"):
        mount.mount(f"lookup_grace=0,{front_end}{others}")
        os.rename(there, mount.dir / "renamed")
        os.rename(mount.dir / "renamed", there)
        reason = f"the mount doesn't allow its origin {secret}: mount with -o allow_origin={secret}"
        assert origin_status(mount, there)["not_allowed"] == reason
        assert f"namespace there is refused: {reason}" in mount.log.read_text()
        found = hcfs("doctor", mount.dir, check=False)
        assert f"there: {reason}" in found.stdout
        # What it has is served, and what it hasn't is an error: not absent.
        assert load(there / "key") == b"dirty"
        assert state(there / "key") == "dirty"
        assert errno_of(os.listdir, there) == errno_of(os.stat, there / "other") == "EIO"
        assert errno_of(os.stat, there / "absent") == "EIO"
        for call in (
            (os.unlink, there / "key"),
            (os.open, there / "key", os.O_WRONLY),
            (os.truncate, there / "key", 0),
            (os.open, there / "new", os.O_WRONLY | os.O_CREAT),
            (os.rename, there / "key", there / "new"),
        ):
            assert errno_of(*call) in ("EROFS", "EIO"), call
        assert load(kv / "chunk") == b"kv"
        put(kv / "more", b"more")
        for words in (("--wait",), ("--retry",), ("--overwrite", "key")):
            said = hcfs("sync", mount.dir, "there", *words, check=False)
            assert said.returncode == 1
            assert reason in said.stderr
        assert [each["state"] for each in sync(mount, there)["objects"]] == ["dirty"]
        evict_all(mount, there)
        refused = hcfs("ns", "set", mount.dir, "there", "--origin", secret, check=False)
        assert reason in refused.stderr
        hcfs("ns", "set", mount.dir, "there", "--quota", "1M")
        hcfs("ns", "set", mount.dir, "there", "--quota", "none")
        refused = hcfs("ns", "rm", mount.dir, "there", "--force", check=False)
        assert "its origin doesn't have yet" in refused.stderr
        mount.umount()
        assert (secret / "key").read_bytes() == b"secret"
        assert sorted(os.listdir(secret)) == ["key", "other"]
    mount.mount(f"lookup_grace=0,{front_end},allow_origin={secret}")
    eventually(lambda: is_clean(there / "key"), "a mount that allows it uploads")
    assert (secret / "key").read_bytes() == b"dirty"
    assert load(there / "other") == b"other"
    assert hcfs("umount", mount.dir).returncode == 0
    mount.mount()
    assert origin_status(mount, there)["not_allowed"] is None


def test_what_a_refused_namespace_has_can_be_given_up(make_mount: Callable[..., Mount], secret: Path) -> None:
    mount = make_mount(options=f"allow_origin={secret}", allow_warnings=[REFUSED])
    hcfs("ns", "create", mount.dir, "there", "--origin", secret, "--write-policy", "write-back")
    there = mount.dir / "there"
    put(there / "one", b"1")
    sync(mount, there, "--wait")
    with during_an_outage(secret, there / "one", b"2"):
        mount.umount()
    said = hcfs("mount", mount.source, mount.dir, "--log", mount.log).stderr
    assert "namespace there is refused: the mount doesn't allow its origin" in said
    hcfs("sync", mount.dir, "there", "--discard", "one")
    assert sync(mount, there)["objects"] == []
    hcfs("ns", "rm", mount.dir, "there", "--force")
    assert not there.exists()


def test_info_lists_what_an_image_wants(make_mount: Callable[..., Mount], s3: S3, tmp_path: Path) -> None:
    mount = make_mount(options=f"{ALLOWED},allow_origin={tmp_path}")
    mount.ns("kv")
    namespace(mount, s3, {}, name="runs", write_policy="write-through")
    hcfs("ns", "create", mount.dir, "models", "--origin", tmp_path / "a b")
    mount.umount()
    found = json.loads(hcfs("info", mount.source, "--json").stdout)
    assert found["namespaces_problem"] is None
    runs = next(each for each in found["namespaces"] if each["name"] == "runs")
    assert {each["name"]: (each["origin"], each["write_policy"], each["problem"]) for each in found["namespaces"]} == {
        "kv": (None, None, None),
        "runs": (runs["origin"], "write-through", None),
        "models": (f"{tmp_path}/a b", "read-only", None),
    }
    lines = [line.split(None, 1) for line in hcfs("info", mount.source).stdout.splitlines()]
    assert [line[0] for line in lines if line][-3:] == ["kv", "runs", "models"]
    assert lines[-1][1].split("  ") == [f"{tmp_path}/a b", "read-only"]
    mount.mount()
    assert [each["name"] for each in json.loads(hcfs("info", mount.source, "--json").stdout)["namespaces"]]


def test_the_option_in_a_configuration(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """A list there; what is said on the command line is in its place."""
    source, config = make_image("64M"), tmp_path / "hcfs.toml"
    hcfs("mkfs", source)
    config.write_text('allow_origin = ["s3://b/x", "/srv/a, b"]\n')
    mount = Mount(source, tmp_path / "configured")
    try:
        for options, expected in (("", ["s3://b/x", "/srv/a, b"]), ("allow_origin=gs://b", ["gs://b"])):
            mount.mount(options, "--config", str(config))
            assert json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())["allow_origin"] == expected
            mount.umount()
    finally:
        mount.close()
