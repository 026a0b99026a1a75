from __future__ import annotations

import dataclasses
import struct

import pytest
from crc32c import crc32c
from store.devices import Fault, Watched
from store.rig import UUID, new_device, recover

from hcfs.device import MemoryDevice
from hcfs.errors import UsageError
from hcfs.store import BLOCK, Superblock, UnrecoveredStore, format_device, plan, read_superblock
from hcfs.store.errors import DeviceSizeMismatch, NotAStore, ReadOnlyStore, UnsupportedFormat
from hcfs.store.superblock import LABEL_BYTES, decode, read_pair, write_copies


@pytest.fixture
def superblock() -> Superblock:
    return plan("memory", 16 << 20, label="cäche", granule=128 << 10, max_objects=100, uuid=UUID)


def sealed(block: bytearray) -> bytes:
    """The block with a checksum that fits it again."""
    block[-4:] = struct.pack("<I", crc32c(bytes(block[:-4])))
    return bytes(block)


def test_fields_come_back(superblock: Superblock) -> None:
    encoded = superblock.encode()
    assert len(encoded) == BLOCK
    assert decode(encoded) == superblock
    assert decode(superblock.newer().encode()) == dataclasses.replace(superblock, generation=2)


def test_a_flip_of_any_byte_is_refused(superblock: Superblock) -> None:
    encoded = superblock.encode()
    for at in range(BLOCK):
        block = bytearray(encoded)
        block[at] ^= 1 << at % 8
        assert decode(block) is None, f"byte {at}"


def test_fields_lie_where_the_document_says(superblock: Superblock) -> None:
    block = superblock.encode()
    assert block[:8] == bytes.fromhex("484346538 90d0a1a".replace(" ", ""))
    u32, u64 = (lambda at: struct.unpack_from("<I", block, at)[0]), (lambda at: struct.unpack_from("<Q", block, at)[0])
    assert (u32(8), u32(12), u64(16), u64(24), u64(32)) == (1, 4096, 0, 0, 0)
    assert (block[40:56], block[56:120]) == (UUID.bytes, "cäche".encode().ljust(64, b"\0"))
    assert [u64(at) for at in (120, 128, 136)] == [1, superblock.created_ns, superblock.device_blocks]
    assert (u32(144), u32(148)) == (128 << 10, 0)
    assert [u64(at) for at in range(152, 200, 8)] == [
        *(*superblock.regions, superblock.region_blocks, superblock.data_start, superblock.data_blocks, 100)
    ]
    assert block[200:4092] == bytes(3892)
    assert u32(4092) == crc32c(block[:4092])


def test_unknown_feature_bits(superblock: Superblock) -> None:
    assert decode(dataclasses.replace(superblock, compat=1 << 63).encode()) is not None
    assert decode(dataclasses.replace(superblock, ro_compat=4).encode()) is not None
    with pytest.raises(UnsupportedFormat, match="incompat bits 0x10"):
        decode(dataclasses.replace(superblock, incompat=16).encode())


def test_unknown_ro_compat_bits_allow_reading_only() -> None:
    device = new_device()
    write_copies(device, dataclasses.replace(read_superblock(device), ro_compat=8))
    with pytest.raises(ReadOnlyStore, match=r"ro-compat bits 0x8.*-o ro"):
        recover(device)
    assert recover(device, read_only=True).state == "read-only"


@pytest.mark.parametrize(("at", "value"), [(8, 2), (12, 512)])
def test_another_version_or_block_size_is_named(superblock: Superblock, at: int, value: int) -> None:
    block = bytearray(superblock.encode())
    struct.pack_into("<I", block, at, value)
    with pytest.raises(UnsupportedFormat, match="use a newer hcfs"):
        decode(sealed(block))


@pytest.mark.parametrize(
    "change",
    [
        {"granule": 1000},
        {"granule": 2048},
        {"region_blocks": 3},
        {"regions": (0, 1000)},
        {"regions": (1, 2)},
        {"data_start": 3},
        {"data_blocks": 0},
        {"data_blocks": 1 << 40},
    ],
)
def test_impossible_geometry_is_refused(superblock: Superblock, change: dict[str, object]) -> None:
    assert decode(dataclasses.replace(superblock, **change).encode()) is None  # type: ignore[arg-type]


def test_a_label_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 64 fit"):
        plan("memory", 16 << 20, label="ä" * 33)
    with pytest.raises(ValueError, match="at most 64"):
        dataclasses.replace(plan("memory", 16 << 20), label="x" * (LABEL_BYTES + 1)).encode()


@pytest.mark.parametrize(
    ("size", "options", "error"),
    [
        (4 << 20, {}, DeviceSizeMismatch),
        (16 << 20, {"granule": 32 << 10}, UsageError),
        (16 << 20, {"granule": 96 << 10}, UsageError),
        (16 << 20, {"granule": 2 << 20}, UsageError),
        (16 << 20, {"max_objects": 15}, UsageError),
        (16 << 20, {"max_objects": 1 << 26}, UsageError),
        (16 << 20, {"max_objects": 20_000}, UsageError),
    ],
)
def test_mkfs_refuses_before_it_writes(size: int, options: dict[str, int], error: type[Exception]) -> None:
    device = MemoryDevice(size)
    device.contents[:] = b"precious" * (size // 8)
    with pytest.raises(error):
        format_device(device, **options)  # type: ignore[arg-type]
    assert device.contents == b"precious" * (size // 8)


@pytest.mark.parametrize("size", [8 << 20, 9 << 20, 1 << 30, 64 << 30, 8 << 40])
def test_planned_areas_follow_each_other(size: int) -> None:
    sb = plan("memory", size)
    assert sb.regions == (1, 1 + sb.region_blocks)
    assert sb.data_start == 1 + 2 * sb.region_blocks
    assert sb.data_start + sb.data_blocks == sb.device_blocks - 1 == size // BLOCK - 1
    assert sb.data_blocks * BLOCK > size * 0.6
    # A row with a name of 90 bytes for every object fits the part of a region that a checkpoint may take.
    assert sb.max_objects * (100 + 90 + 16) < (sb.region_blocks - 1) * BLOCK * 3 / 4


def test_both_ends_hold_the_same(superblock: Superblock) -> None:
    device = new_device()
    assert device.contents[:BLOCK] == device.contents[-BLOCK:]
    assert read_pair(device).damaged == ()


@pytest.mark.parametrize(("place", "at"), [("first", 0), ("last", -BLOCK)])
def test_one_end_is_enough(place: str, at: int) -> None:
    device = new_device()
    expected = read_superblock(device)
    device.contents[at + 130] ^= 4
    pair = read_pair(device)
    assert (pair.superblock, pair.damaged) == (expected, (place,))
    store = recover(device)
    assert store.state == "degraded"
    assert f"superblock at the {place} block is damaged" in store.state_reason


@pytest.mark.parametrize("place", ["first", "last"])
def test_one_end_that_cannot_be_read_is_like_a_damaged_one(place: str) -> None:
    device = new_device()
    start = 0 if place == "first" else device.size - BLOCK
    watched = Watched(device, Fault("read", start, start + BLOCK))
    assert read_pair(watched).damaged == (place,)


def test_the_newer_copy_is_taken() -> None:
    device = new_device()
    newer = read_superblock(device).newer()
    device.contents[-BLOCK:] = newer.encode()
    assert (read_pair(device).superblock, read_pair(device).damaged) == (newer, ("first",))


def test_the_last_block_of_another_store_does_not_count() -> None:
    device = new_device()
    ours = read_superblock(device)
    device.contents[-BLOCK:] = dataclasses.replace(ours, uuid=plan("x", 16 << 20).uuid, generation=9).encode()
    assert (read_pair(device).superblock, read_pair(device).damaged) == (ours, ("last",))


def test_nothing_valid_is_no_store() -> None:
    device = new_device()
    device.contents[8] ^= 1
    device.contents[-8] ^= 1
    with pytest.raises(NotAStore, match="'hcfs mkfs --dry-run memory'"):
        UnrecoveredStore.open(device, None)  # type: ignore[arg-type]
    with pytest.raises(NotAStore, match="too small"):
        read_pair(MemoryDevice(BLOCK))


def test_a_truncated_device_is_named() -> None:
    device = new_device()
    with pytest.raises(DeviceSizeMismatch, match="truncated"):
        read_pair(MemoryDevice.holding(device.contents[: 8 << 20]))


def test_a_grown_device_is_found_by_its_first_block_only() -> None:
    device = new_device()
    grown = MemoryDevice.holding(device.contents + bytes(1 << 20))
    assert read_pair(grown).damaged == ()
    grown.contents[200] ^= 1
    with pytest.raises(NotAStore):
        read_pair(grown)
    # A copy of the last block at the new end says itself that it doesn't belong there.
    grown.contents[-BLOCK:] = device.contents[-BLOCK:]
    with pytest.raises(NotAStore):
        read_pair(grown)


def test_an_interrupted_mkfs_leaves_no_store() -> None:
    size = 12 << 20
    whole = Watched(MemoryDevice(size))
    format_device(whole, granule=64 << 10, max_objects=64)
    writes = [call for call in whole.calls if call[0] == "write"]
    assert [call[1] for call in writes[-2:]] == [size - BLOCK, 0]
    for first in range(1, len(writes)):
        device = new_device(size)
        with pytest.raises(Exception, match="faulty"):
            format_device(Watched(device, Fault("write", first=first + 1)), max_objects=64)
        if first < 2:
            continue
        found = device.contents[:BLOCK] == bytes(BLOCK)
        assert found, "block 0 is written last"
