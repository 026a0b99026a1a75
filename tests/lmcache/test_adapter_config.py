"""What hcfs tells LMCache and reads from its names, against LMCache's own parsers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from hcfs.lmcache.accepts import ask
from hcfs.lmcache.config import adapter_json, adapter_spec
from hcfs.lmcache.keys import ChunkName, Key, OtherName, file_name, parse_name
from lab.harness.cli import hcfs
from lab.harness.lmcache.driver import Chunk, Client, Worker, WorkerError, make_chunks, make_key
from lab.harness.mounts import Mount

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(("workers", "direct"), [(4, True), (16, False)])
def test_lmcache_accepts_the_json(worker: Worker, workers: int, direct: bool) -> None:
    text = adapter_json('/mnt/it\'s "hc"', "k v", num_workers=workers, use_odirect=direct)
    config = worker.ask(op="parse-spec", json=text)
    assert config["base_path"] == '/mnt/it\'s "hc"/k v'
    assert (config["num_workers"], config["use_odirect"]) == (workers, direct)
    # Nothing that LMCache does to the files beside storing, loading and deleting them:
    assert (config["eviction_config"], config["max_capacity_gb"], config["relative_tmp_dir"]) == (None, 0, "")


def test_what_adapter_spec_refuses_lmcache_refuses_too(worker: Worker) -> None:
    spec = adapter_spec("/mnt/hc", "kv")
    for change in ({"num_workers": 0}, {"base_path": ""}, {"use_odirect": "yes"}):
        with pytest.raises(WorkerError, match="must be"):
            worker.ask(op="parse-spec", json=json.dumps({**spec, **change}))


@pytest.mark.parametrize(
    "key",
    [
        Key("m", 0, 0, HASH),
        Key("org/a b/m", 0x01000100, 31, HASH),
        Key("m", 0x08070807, 0, HASH, "tenant"),
        Key("Ü/m", 1 << 33, 0x0FFFFFFF, HASH[:8], "ö" * 128),
    ],
)
def test_names_are_lmcaches_own(worker: Worker, key: Key) -> None:
    name = worker.ask(op="file-name", key={name: getattr(key, name) for name in Key.__slots__})
    assert file_name(key) == name
    found = parse_name(name)
    theirs = worker.ask(op="parse-file-name", name=name)
    assert isinstance(found, ChunkName)
    assert (found.key.model, found.key.rank, found.key.group, found.key.hash, found.key.salt) == (
        theirs["model_name"],
        theirs["kv_rank"],
        theirs["object_group_id"],
        theirs["chunk_hash"],
        theirs["cache_salt"],
    )


@pytest.mark.parametrize("name", ["x.txt", "m.data", "m@0x1@0@zz.data", f"m@0x00000001@0@{HASH}@a@b.data"])
def test_what_lmcache_does_not_read_is_not_read_here(worker: Worker, name: str) -> None:
    assert worker.ask(op="parse-file-name", name=name) is None
    assert isinstance(parse_name(name), OtherName)


def test_the_commands_json_makes_a_working_adapter(worker: Worker, make_mount: Callable[..., Mount]) -> None:
    mount = make_mount()
    mount.ns("kv")
    spec = json.loads(hcfs("lmcache-config", mount.dir, "kv").stdout)
    assert worker.ask(op="parse-spec", json=json.dumps(spec))["base_path"] == str(mount.dir / "kv")
    handle = worker.ask(op="open", kind="adapter", spec=spec)
    assert worker.ask(op="status", client=handle)["is_healthy"]
    worker.ask(op="close", client=handle)


def test_the_keys_command_lists_what_was_stored(worker: Worker, make_mount: Callable[..., Mount]) -> None:
    mount = make_mount()
    chunks = [*make_chunks(3, 4096), Chunk(make_key(7, salt="tenant", group=3), 10000)]
    with Client(worker, "client", mount.ns("kv")) as client:
        client.store(chunks)
    (mount.ns("kv") / "notes.txt").write_text("not a chunk")
    listed = json.loads(hcfs("keys", mount.dir, "kv", "--json").stdout)
    seen = {
        (Key(*(entry[name] for name in ("model", "rank", "group", "hash", "salt"))), entry["size"]) for entry in listed
    }
    assert seen == {(chunk.key, chunk.length) for chunk in chunks}
    assert len(listed) == 4


def test_the_doctor_asks_the_lmcache_that_is_installed(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount()
    mount.ns("kv")
    result = json.loads(hcfs("doctor", mount.dir, "--json").stdout)
    said = [each for each in result["checks"] if each["check"] == "LMCache"]
    assert [each["verdict"] for each in said] == ["ok", "ok"]
    assert "namespace kv" in said[1]["detail"]
    good = adapter_spec(mount.dir, "kv")
    taken, refused = ask([good, {**good, "num_workers": 0}])
    assert taken is None
    assert "num_workers" in (refused or "")
