"""What the mount refuses of a namespace's options, in its own words."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.errors import HcfsError
from hcfs.mountpoint.client import administer
from hcfs.options.namespace_options import OPTIONS
from lab.harness.actors import errno_of, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount


def refused(*words: object) -> str:
    done = hcfs(*words, check=False)
    assert done.returncode != 0
    return done.stderr


def test_the_sentences_are_the_daemons(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    mount = make_mount(options=f"allow_origin={tmp_path}", size="64M")
    kv = mount.ns("kv")
    put(kv / "chunk", b"chunk")
    there = "the mount refused origin="
    said = refused("ns", "set", mount.dir, "kv", "--origin", tmp_path)
    assert f"{there}{tmp_path}: the namespace holds files" in said
    assert errno_of(os.setxattr, kv, "user.hcfs.origin", str(tmp_path).encode()) == "ENOTEMPTY"
    assert "the mount doesn't allow its origin /srv" in refused("ns", "create", mount.dir, "new", "--origin", "/srv")
    assert not (mount.dir / "new").exists()
    said = refused("ns", "set", mount.dir, "kv", "--origin-check", "length")
    assert "origin_check=length can't be set: the namespace has no origin" in said
    assert errno_of(os.setxattr, kv, "user.hcfs.origin_check", b"length") == "EINVAL"
    assert "--write-policy needs an --origin" in refused("ns", "create", mount.dir, "n", "--write-policy", "write-back")


def test_a_command_sets_each_option(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    mount = make_mount(options=f"allow_origin={tmp_path}", size="64M")
    kv = mount.ns("kv")
    for row in sorted(OPTIONS.values(), key=lambda row: row.needs is not None):
        value = str(tmp_path) if row.name == "origin" else row.example
        administer(str(mount.dir), "set", namespace="kv", option=row.name, value=value)
        shown = os.getxattr(kv, f"user.hcfs.{row.name}").decode()
        assert shown == row.shown(row.parse(value))
        options = json.loads((mount.dir / ".hcfs" / "namespaces" / "kv.json").read_bytes())["options"]
        assert options[row.name] == json.loads(json.dumps(row.parse(value)))
    for row in sorted(OPTIONS.values(), key=lambda row: row.needs is None):
        administer(str(mount.dir), "set", namespace="kv", option=row.name)
        assert os.getxattr(kv, f"user.hcfs.{row.name}").decode() in (row.default, "none", "whole")
    for words, reason in (
        ({"option": "colour", "value": "blue"}, "there is no such option; give one of"),
        ({"option": "quota", "value": "much"}, "quota=much can't be set: it isn't a size"),
        ({"option": "quota", "value": "1G", "more": 1}, "isn't known here"),
        ({"value": "1G"}, "'option' is missing"),
    ):
        with pytest.raises(HcfsError, match=reason):
            administer(str(mount.dir), "set", **{"namespace": "kv", **words})
    with pytest.raises(HcfsError, match="there is no namespace"):
        administer(str(mount.dir), "set", namespace="absent", option="quota", value="1G")
