"""Mount options, from the command line and a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcfs.errors import UsageError
from hcfs.options.mount_options import MountOptions
from hcfs.remote.allowed_origins import AllowedOrigins


def test_values() -> None:
    options = MountOptions.parse(
        "commit_interval=500ms,staging_ttl=5m,lookup_grace=0,high_watermark=90%,low_watermark=0.5,memory=1G"
    )
    assert (options.commit_interval, options.staging_ttl, options.lookup_grace) == (0.5, 300.0, 0.0)
    assert (options.high_watermark, options.low_watermark, options.memory) == (0.9, 0.5, 1 << 30)
    assert options.entry_timeout == 60.0
    assert MountOptions.parse("lookup_grace=12s").entry_timeout == 4.0


def test_words_of_mount() -> None:
    words = "rw,nofail,_netdev,noauto,user,noatime,allow_other,x-systemd.device-timeout=30,x-gvfs-hide,dev,suid"
    options = MountOptions.parse(words)
    told = options.kernel_options("/dev/nvme0n1")
    assert told >= {"allow_other", "noatime", "default_permissions", "fsname=/dev/nvme0n1", "subtype=hcfs"}
    assert not told & {"nofail", "_netdev", "noauto", "user", "ro"}
    assert options.in_force()["nofail"] is True
    assert options.in_force()["x-systemd.device-timeout"] == "30"


def test_allowed_origins_add_up() -> None:
    words = "allow_origin=s3://b/x,ro,allow_origin=/srv/models,allow_origin=gs://"
    options = MountOptions.parse(words)
    assert options.allow_origin == ("s3://b/x", "/srv/models", "gs://")
    assert not any("allow_origin" in word for word in options.kernel_options("x"))
    assert MountOptions.parse("").in_force()["allow_origin"] == ()


@pytest.mark.parametrize(
    ("origin", "value"),
    [
        ("s3://b/x", "s3://b/x"),
        ("/srv/a, b", "file:///srv/a%2C%20b"),
        ("s3://b/a,b c", "s3://b/a%2Cb%20c"),
        ("file:///srv/%2C", "file:///srv/%2C"),
        ("/srv/new\nline", "file:///srv/new%0Aline"),
    ],
)
def test_the_value_that_a_refusal_names_is_one_that_allows(origin: str, value: str) -> None:
    said = AllowedOrigins([]).refusal(origin)
    assert said is not None
    assert said.endswith(f": mount with -o allow_origin={value}")
    assert said.isprintable()
    assert AllowedOrigins(MountOptions.parse(f"allow_origin={value}").allow_origin).refusal(origin) is None


def test_the_last_of_ro_and_rw_counts() -> None:
    assert MountOptions.parse("rw,ro").read_only
    assert "ro" in MountOptions.parse("ro").kernel_options("x")
    assert not MountOptions.parse("ro,rw").read_only


def test_a_comma_in_the_source() -> None:
    assert "fsname=/a\\,b" in MountOptions.parse("").kernel_options("/a,b")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("colour=red", "colour=red"),
        ("sync", "sync"),
        ("commit_interval", "commit_interval"),
        ("commit_interval=fast", "commit_interval=fast"),
        ("commit_interval=0", "commit_interval"),
        ("high_watermark=2", "high_watermark=2"),
        ("high_watermark=0.5,low_watermark=0.6", "low_watermark=0.6"),
        ("memory=1M", "memory"),
        ("memory=lots", "memory=lots"),
        ("allow_origin", "allow_origin can't be set: it names no origin"),
        ("allow_origin=/", "a directory must be named"),
        ("allow_origin=file:///srv/%2e%2e", "a directory must be named"),
        ("allow_origin=srv/models", "allow_origin=srv/models"),
        ("allow_origin=s3://b/../c", "its prefix"),
        ("allow_origin=s3://[", "isn't a URL"),
        ("allow_origin=none", "without the option no origin is allowed"),
    ],
)
def test_what_cannot_be_taken_is_named(words: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        MountOptions.parse(words)


def test_a_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "hcfs.toml"
    file.write_text('lookup_grace = "5s"\ncommit_interval = 2\nallow_other = true\nmemory = "64M"\n')
    options = MountOptions.parse("lookup_grace=7", config=str(file), memory=32 << 20)
    assert (options.lookup_grace, options.commit_interval, options.memory) == (7.0, 2.0, 32 << 20)
    assert options.in_force()["allow_other"] is True


@pytest.mark.parametrize(("text", "said"), [("a b", "not TOML"), ("colour = 1", "colour=1"), (None, "can't be read")])
def test_a_file_that_cannot_be_taken(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "hcfs.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=said):
        MountOptions.parse(config=str(file))


def test_false_words_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hcfs.toml"
    file.write_text("allow_other = false\nro = false\n")
    options = MountOptions.parse(config=str(file))
    assert "allow_other" not in options.kernel_options("x")
    assert not options.read_only
