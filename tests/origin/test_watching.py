"""What `hcfs top` shows of a fetch that is under way."""

from __future__ import annotations

import json
from collections.abc import Callable

from lab.harness.actors import eventually
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, content, namespace, openers, origin_status
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Fault


def test_a_fetch_is_seen_on_its_way(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(allow_warnings=WARNINGS)
    size = 16 << 20
    weights, _ = namespace(mount, s3, {"model": content("model", size)})
    s3.faults = lambda asked, _: None if asked.lists else Fault(slow=0.02)
    opening = openers(weights / "model", 2)
    eventually(lambda: origin_status(mount, weights)["ingesting"], "the fetch has begun")
    lines = hcfs("top", mount.dir, "--json", "--iterations", "6", "--interval", "0.3").stdout.splitlines()
    s3.fresh()
    assert opening.join()
    fetches = [each for line in lines for each in json.loads(line)["fetches"]]
    assert {(each["namespace"], each["key"], each["size"]) for each in fetches} == {(weights.name, "model", size)}
    assert [each["bytes"] for each in fetches] == sorted(each["bytes"] for each in fetches)
    assert any(each["bytes_rate"] for each in fetches)
