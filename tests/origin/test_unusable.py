"""Origins that can't be used: their namespace is EIO, with a reason that names the cause; all else serves."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from hcfs.doctor.mounted import mounted, status_of
from lab.harness.actors import errno_of, load, pattern, put
from lab.harness.cli import hcfs
from lab.harness.faulty import FaultyDaemon
from lab.harness.mounts import Mount
from lab.harness.origins.clients import namespace, origin_status
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import BUCKET, Answer, Asked

UNUSABLE = [r"can't be used", r"can't be listed", r"isn't fetched", r"failed unexpectedly", r"^Traceback"]

BROKEN = {
    "without a scheme": ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL in the daemon's environment has no"),
    "a name without a scheme": ({"AWS_ENDPOINT_URL": "localhost:9000"}, "AWS_ENDPOINT_URL in the daemon's environment"),
    "no host": ({"AWS_ENDPOINT_URL": "http://"}, "AWS_ENDPOINT_URL in the daemon's environment names no host"),
    "no such port": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:99999"}, "AWS_ENDPOINT_URL in the daemon's environment"),
    "brackets": ({"AWS_ENDPOINT_URL": "http://[::1"}, "AWS_ENDPOINT_URL in the daemon's environment isn't a URL"),
    "the other name": ({"AWS_ENDPOINT_URL_S3": "host"}, "AWS_ENDPOINT_URL_S3 in the daemon's environment has no"),
    "a line break inside a key": ({"AWS_ACCESS_KEY_ID": "se\ncret"}, "AWS_ACCESS_KEY_ID in the daemon's environment"),
    "and a token": ({"AWS_SESSION_TOKEN": "se\r\ncret"}, "AWS_SESSION_TOKEN in the daemon's environment"),
    "a region": ({"AWS_REGION": "us\neast"}, "AWS_REGION in the daemon's environment has a line break"),
    "a flag": ({"AWS_SKIP_SIGNATURE": "secretly"}, "as boolean"),
}


def set_up(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def everything_else_serves(mount: Mount, other: Path) -> None:
    kv = mount.ns("kv")
    put(kv / "chunk", b"chunk")
    assert load(kv / "chunk") == b"chunk"
    assert load(other / "file") == b"content"


def doctor_on(directory: Path) -> str:
    """What it says of origins."""
    status, _ = status_of(str(directory))
    assert status is not None
    findings = mounted(str(directory), status)
    return " ".join(each.detail for each in findings if each.check == "origin" and each.verdict != "ok")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory as origin, which needs nothing of the environment."""
    path = tmp_path / "directory"
    path.mkdir()
    (path / "file").write_bytes(b"content")
    return path


@pytest.mark.parametrize(
    ("what", "front_end"), [*((what, "on") for what in BROKEN), *((what, "off") for what in list(BROKEN)[:1])]
)
def test_an_environment_that_cannot_be_used(
    make_mount: Callable[..., Mount],
    s3: S3,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    front_end: str,
) -> None:
    """Each of these makes the library panic, or refuse; none is a secret's place in log or status."""
    environment, reason = BROKEN[what]
    set_up(monkeypatch, environment)
    mount = make_mount(options=f"data_plane={front_end}", size="64M", allow_warnings=UNUSABLE)
    pid = mount.pid
    broken, _ = namespace(mount, s3, {"model": b"model"}, name="broken")
    other = mount.dir / "other"
    other.mkdir()
    os.setxattr(other, "user.hcfs.origin", str(directory).encode())
    for _ in range(2):
        assert errno_of(os.listdir, broken) == "EIO"
        assert errno_of(os.stat, broken / "model") == "EIO"
        everything_else_serves(mount, other)
    assert mount.pid == pid
    assert reason in origin_status(mount, broken)["last_error"]
    assert reason in doctor_on(mount.dir)
    if what == "without a scheme":
        assert reason in hcfs("doctor", mount.dir, check=False).stdout
    said = mount.log.read_text() + json.dumps(mount.status())
    assert reason in said
    assert "cret" not in said.replace("secretly", "")
    mount.umount()
    mount.mount()  # with the namespace in the image, too
    everything_else_serves(mount, other)


@pytest.mark.parametrize("ending", ["\n", "\r\n", " ", "\t\n"])
def test_line_ends_of_mounted_secrets_are_taken_off(
    make_mount: Callable[..., Mount], s3: S3, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    for name, value in {**s3.environment(), "AWS_SESSION_TOKEN": "token"}.items():
        monkeypatch.setenv(name, value + ending)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ending)  # nothing is left of it, as of an empty one
    mount = make_mount(size="64M")
    path, _ = namespace(mount, s3, {"model": b"model"})
    assert os.listdir(path) == ["model"]
    assert load(path / "model") == b"model"
    told = [line for line in mount.log_lines() if "taken off" in line]
    assert len(told) == 1
    assert "AWS_ACCESS_KEY_ID" in told[0]
    assert not any(secret in mount.log.read_text() for secret in s3.secrets)


def with_etag(s3: S3, monkeypatch: pytest.MonkeyPatch, etag: str) -> None:
    """Listings say that this is the ETag of everything."""
    served = s3.serve

    def serve(asked: Asked, target: str, headers: dict[str, str], body: bytes) -> Answer:
        answer = served(asked, target, headers, body)
        if not asked.lists:
            return answer
        before, _, rest = answer.content.partition(b"<ETag>")
        content = before + b"<ETag>" + etag.encode() + b"</ETag>" + rest.partition(b"</ETag>")[2]
        return answer._replace(content=content)

    monkeypatch.setattr(s3, "serve", serve)


@pytest.mark.parametrize("front_end", ["on", "off"])
@pytest.mark.parametrize("size", [5, 3 << 20])
def test_an_etag_that_no_header_can_hold(
    make_mount: Callable[..., Mount], s3: S3, monkeypatch: pytest.MonkeyPatch, size: int, front_end: str
) -> None:
    """The open is answered, and the mount can be unmounted."""
    with_etag(s3, monkeypatch, "&quot;an&#10;etag&quot;")
    mount = make_mount(options=f"data_plane={front_end}", size="64M", allow_warnings=UNUSABLE)
    path, _ = namespace(mount, s3, {"model": pattern("etag", size)})
    for _ in range(2):
        assert errno_of(load, path / "model") == "EIO"
    assert "has a control character" in origin_status(mount, path)["last_error"]
    put(mount.ns("kv") / "x", b"x")
    mount.umount()


LIBRARY_IS_MISSING = """
import importlib.util
_find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "obstore" else _find(name, *more)
sys.modules["obstore"] = None
"""

LIBRARY_IS_BROKEN = """
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "obstore.store":
            raise PanicException("a fault in the library's initialization")
sys.meta_path.insert(0, Broken())
"""


PANICS = {"listing": "obstore.store:S3Store.list", "fetch": "obstore:get", "upload": "obstore:put"}


@pytest.mark.parametrize("front_end", ["on", "off"])
@pytest.mark.parametrize("what", PANICS)
def test_a_panic_of_the_library(tmp_path: Path, s3: S3, what: str, front_end: str) -> None:
    """The call is answered, and the next one has a new client."""
    target = PANICS[what]
    prefix = f"panics-{what}-{front_end}"
    s3.put(f"{prefix}/file", b"content")
    daemon = FaultyDaemon(tmp_path, [target], options=f"data_plane={front_end}")
    try:
        path = daemon.dir / "weights"
        path.mkdir()
        os.setxattr(path, "user.hcfs.origin", s3.url(prefix).encode())
        os.setxattr(path, "user.hcfs.write_policy", b"write-through")
        if what != "listing":
            assert os.listdir(path) == ["file"]
        for kind in ("", "KeyboardInterrupt", "RuntimeError"):
            with daemon.failing(target, kind):
                call = {
                    "listing": (os.listdir, path),
                    "fetch": (load, path / "file"),
                    "upload": (put, path / "new", b"x"),
                }
                function, *arguments = call[what]
                assert errno_of(function, *arguments) == "EIO"
            daemon.wait_for_traceback(target)
            status = json.loads((daemon.dir / ".hcfs" / "status.json").read_bytes())
            assert "obstore failed unexpectedly" in status["origins"]["weights"]["last_error"]
        assert load(path / "file") == b"content"
        put(path / "new", b"new")
        assert s3.get(f"{prefix}/new") == b"new"
        daemon.umount()
    finally:
        daemon.close()


@pytest.fixture
def with_origin(make_mount: Callable[..., Mount], directory: Path, s3: S3) -> Mount:
    """An unmounted image with a namespace that has an origin, `weights`, and one that hasn't, `kv`."""
    mount = make_mount(size="64M")
    put(mount.ns("kv") / "chunk", b"chunk")
    weights, _ = namespace(mount, s3, {"file": b"content"}, name="weights", write_policy="write-back")
    os.setxattr(mount.ns("beside"), "user.hcfs.origin", str(directory).encode())
    assert load(weights / "file") == b"content"
    os.mkdir(mount.dir / "new")
    mount.umount()
    return mount


@pytest.fixture
def run_daemon(tmp_path: Path) -> Iterator[Callable[..., FaultyDaemon]]:
    started: list[FaultyDaemon] = []

    def run(source: Path, patch: str, **more: str) -> FaultyDaemon:
        top = tmp_path / f"daemon{len(started)}"
        top.mkdir()
        started.append(FaultyDaemon(top, patch=patch, source=source, **more))
        return started[-1]

    yield run
    for daemon in started:
        daemon.close()


@pytest.mark.parametrize("front_end", ["on", "off"])
@pytest.mark.parametrize(
    ("patch", "reason"),
    [(LIBRARY_IS_MISSING, "install hcfs[origins]"), (LIBRARY_IS_BROKEN, "obstore failed unexpectedly (PanicException")],
)
def test_a_library_that_is_missing_or_broken(
    with_origin: Mount, run_daemon: Callable[..., FaultyDaemon], patch: str, reason: str, front_end: str
) -> None:
    daemon = run_daemon(with_origin.source, patch, options=f"data_plane={front_end}")
    kv, weights = daemon.dir / "kv", daemon.dir / "weights"
    assert load(kv / "chunk") == b"chunk"
    put(kv / "other", b"other")
    assert errno_of(os.listdir, weights) == "EIO"
    assert errno_of(os.stat, weights / "absent") == "EIO"
    assert load(weights / "file") == b"content"  # it is on the device
    assert load(daemon.dir / "beside" / "file") == b"content"  # a directory needs no library
    status = json.loads((daemon.dir / ".hcfs" / "status.json").read_bytes())
    assert reason in status["origins"]["weights"]["last_error"]
    assert reason in doctor_on(daemon.dir)
    if patch == LIBRARY_IS_MISSING:
        assert errno_of(os.setxattr, daemon.dir / "new", "user.hcfs.origin", f"s3://{BUCKET}/x".encode()) == "EINVAL"
        assert errno_of(os.getxattr, daemon.dir / "new", "user.hcfs.origin") in ("ENODATA", "ok")
        put(daemon.dir / "new" / "x", b"local as before")
    assert load(kv / "chunk") == b"chunk"
    daemon.umount()


def test_an_origin_that_only_a_later_version_reads(
    make_mount: Callable[..., Mount], run_daemon: Callable[..., FaultyDaemon], with_origin: Mount
) -> None:
    """It was written by that version into the image."""
    patch = (
        "import hcfs.options.values as v, hcfs.remote.allowed_origins as a; v.problem_of = lambda url: ''; "
        "a.AllowedOrigins.refusal = lambda self, origin: None"
    )
    daemon = run_daemon(with_origin.source, patch)
    os.setxattr(daemon.dir / "new", "user.hcfs.origin", b"tape://reel/7")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0
    later = make_mount(with_origin.source, allow_warnings=UNUSABLE)
    assert errno_of(os.listdir, later.dir / "new") == "EIO"
    assert "tape://reel/7" in later.status()["origins"]["new"]["last_error"]
    assert "none of those that this version" in doctor_on(later.dir)
    assert load(later.dir / "kv" / "chunk") == b"chunk"
    assert load(later.dir / "weights" / "file") == b"content"
