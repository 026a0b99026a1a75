"""What `hcfs inspect` prints, of the golden image: plain values that JSON can hold."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from store.devices import Fault, Watched
from store.rig import namespace, new_store

from hcfs.device import MemoryDevice
from hcfs.store import BLOCK, inspect, read_superblock
from hcfs.store.errors import NoSuchName

IMAGE = Path(__file__).parent / "golden" / "format1.img.xz"


@pytest.fixture
def device() -> MemoryDevice:
    return MemoryDevice.holding(lzma.decompress(IMAGE.read_bytes()))


def test_superblocks(device: MemoryDevice) -> None:
    found = inspect.superblocks(device)
    json.dumps(found)
    assert found["superblock"]["label"] == "golden 1"
    assert found["copies"]["first"] == found["copies"]["last"] == found["superblock"]
    assert found["current_region"] == 1
    assert found["regions"][0]["generation"] == 1
    assert found["region_problems"] == []
    device.contents[-1] ^= 1
    starts = [start * BLOCK for start in read_superblock(device).regions]
    device.contents[starts[0]] ^= 1
    device.contents[starts[0] + read_superblock(device).header_copy * BLOCK] ^= 1
    device.contents[starts[1]] ^= 1
    damaged = Watched(device, Fault("read", 0, 1, first=2))
    found = inspect.superblocks(damaged)
    assert "failed" in found["copies"]["first"]["error"]
    assert found["copies"]["last"] == {"error": "doesn't verify"}
    assert found["regions"][0] is None
    assert found["regions"][1]["pages"] > 0
    assert found["region_problems"] == [
        "metadata region 0 has no valid header",
        "the header of metadata region 1 is damaged: its copy is used",
    ]


def test_log(device: MemoryDevice) -> None:
    *transactions, end = inspect.log_transactions(device)
    json.dumps(transactions)
    assert [t["sequence"] for t in transactions] == list(range(35, 46))
    assert [t["sequence"] for t in transactions if t["first_in_batch"]] == [35, 38]
    assert (end["next_sequence"], end["torn_tail"], end["damage"]) == (46, True, [])
    kinds = {item["item"] for t in transactions for item in t["items"]}
    assert kinds >= {"serial", "object", "name", "unname", "drop", "attributes", "extra", "touch"} - {"serial"}
    objects = [item for t in transactions for item in t["items"] if item["item"] == "object"]
    assert objects[0]["size"] == 65537
    assert objects[0]["xattrs"] == ["user.why"]
    assert objects[0]["granules"] == 2


def test_a_serial_is_shown() -> None:
    store = new_store()
    namespace(store)
    store.commit()
    first, second, _ = inspect.log_transactions(store.device)
    assert first["items"] == [{"item": "serial", "next_serial": 1 + (1 << 16)}]
    assert [item["item"] for item in second["items"]] == ["object", "name"]


def test_objects(device: MemoryDevice) -> None:
    found = list(inspect.objects(device))
    json.dumps(found)
    assert len(found) == 17
    by_path = {o["path"]: o for o in found}
    assert by_path["/"]["kind"] == "directory"
    assert by_path["/kv/small"]["names"] == ["/kv/small", "/kv/directory/small too"]
    assert by_path["/kv/holes"]["extents"] == [
        {"logical": 32, "block": 577, "count": 2, "offset": 577 * BLOCK, "bytes": 2 * BLOCK}
    ]
    assert [o["state"] for o in found if o["path"] is None] == ["quarantined", "quarantined"]


def test_extents_cover_the_data_area(device: MemoryDevice) -> None:
    superblock, at = read_superblock(device), read_superblock(device).data_start
    found = list(inspect.extents(device))
    json.dumps(found)
    for extent in found:
        assert extent["block"] == at
        at += extent["count"]
    assert at == superblock.data_start + superblock.data_blocks
    assert sum(e["count"] for e in found if e["id"] is None) * BLOCK == 13783040


def test_one_object(device: MemoryDevice) -> None:
    found = inspect.one_object(device, "/kv/large")
    json.dumps(found)
    assert [c["verifies"] for c in found["checksums"]] == [True] * 4
    assert inspect.one_object(device, str(found["id"])) == found
    assert inspect.one_object(device, "kv//small/")["xattrs"] == {"user.note": "of a file"}
    assert inspect.one_object(device, "/kv/symlink")["target"] == "directory/deep/caf\udce9"
    assert inspect.one_object(device, "/")["id"] == 1
    assert inspect.one_object(device, "/kv/empty")["checksums"] == []
    # Of an object that a checkpoint holds, the checksums are read from there.
    assert [c["verifies"] for c in inspect.one_object(device, "/kv/directory/scattered 0")["checksums"]] == [True] * 3
    assert [c["verifies"] for c in inspect.one_object(device, "/kv/holes")["checksums"]] == [True] * 6
    for key in ("/kv/absent", "/kv/small/x", "123456"):
        with pytest.raises(NoSuchName, match="give a path"):
            inspect.one_object(device, key)


def test_one_damaged_object(device: MemoryDevice) -> None:
    extents = inspect.one_object(device, "/kv/large")["extents"]
    device.contents[extents[0]["offset"] + 65536] ^= 1
    bad = extents[0]["offset"] + 2 * 65536
    found = inspect.one_object(Watched(device, Fault("read", bad, bad + 1)), "/kv/large")
    assert [c["verifies"] for c in found["checksums"]] == [True, False, False, True]
    assert found["checksums"][1]["read"] != found["checksums"][1]["stored"]
    assert "failed" in found["checksums"][2]["error"]
