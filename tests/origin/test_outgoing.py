"""What can be uploaded: nothing that is stored in a local-only namespace, by the types and by the traffic."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable

import pytest
from origin.test_local_only import work_on_kv

from hcfs.origin import OriginUploader, Outgoing, object_store_writer
from lab.harness.actors import eventually, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, content, namespace, sync
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import BUCKET, Fault


def test_an_uploader_takes_nothing_else() -> None:
    methods = {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(OriginUploader, inspect.isfunction)
        if not name.startswith("_")
    }
    assert set(methods) == {"put", "delete"}
    assert list(methods["put"].parameters) == ["self", "outgoing", "base"]
    assert methods["put"].parameters["outgoing"].annotation == "Outgoing"
    assert list(methods["delete"].parameters) == ["self", "key"]
    first = next(iter(inspect.signature(Outgoing).parameters.values()))
    assert (first.name, first.annotation, first.default) == ("uploader", "OriginUploader", inspect.Parameter.empty)
    assert inspect.getsource(object_store_writer).count("obstore.put(") == 2


@pytest.mark.parametrize("front_end", ["data_plane=on", "data_plane=off"])
def test_no_request_for_kv_while_another_namespace_uploads(
    make_mount: Callable[..., Mount], s3: S3, front_end: str
) -> None:
    mount = make_mount(options=f"{front_end},lookup_grace=0", allow_warnings=(*WARNINGS, r"scrub"))
    runs, prefix = namespace(mount, s3, {}, write_policy="write-back")
    hold = threading.Event()
    s3.faults = lambda asked, number: Fault(hold=hold) if asked.method == "PUT" and number == 0 else None
    for number in range(8):
        put(runs / f"{number}", content(f"run {number}", 100_000))
    eventually(lambda: len(s3.sent(prefix)) == 4, "uploads are under way")
    work_on_kv(mount, mount.ns("kv"))
    hold.set()
    assert sync(mount, runs, "--wait")["objects"] == []
    work_on_kv(mount, mount.ns("kv-after"))
    hcfs("evict", mount.dir, runs.name, "--all")
    asked = [each.path for each in s3.asked if not each.lists]
    assert len(asked) == 8
    assert all(path.startswith(f"/{BUCKET}/{prefix}/") for path in asked)
    assert s3.keys(prefix) == [f"{number}" for number in range(8)]
