"""The golden image of format 1, written once by the code of its day: it is read by every later one, to the byte."""

from __future__ import annotations

import lzma
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from store.rig import check_space, get, put, recover

from hcfs.device import MemoryDevice
from hcfs.store import ROOT_ID, Kind, Store, Superblock, read_superblock
from hcfs.store.check import check

IMAGE = Path(__file__).parent / "golden" / "format1.img.xz"
NOW = 1_700_000_000_000_000_000
GRANULE = 65536
LONG = b"n\xff" * 512
DIRECTORY, FILE, LINK = 0o040000, 0o100000, 0o120000


def pattern(name: bytes, size: int) -> bytes:
    """Lines of 32 bytes: the object's first name and the line's number."""
    return b"".join(name[:18].ljust(18) + b"%13d\n" % number for number in range(size // 32 + 1))[:size]


def tick(number: int) -> int:
    return NOW + number * 1000


def large() -> bytes:
    data = bytearray(pattern(b"large", 3 * GRANULE + 1234))
    data[GRANULE - 3 : GRANULE + 3] = b"middle"
    return bytes(data)


def holes() -> bytes:
    data = bytearray(5 * GRANULE + 17)
    data[2 * GRANULE + 100 : 2 * GRANULE + 5100] = pattern(b"holes", 5000)
    return bytes(data)


# path: (serial, slot), mode, uid, gid, nlink, size, blocks, (atime, mtime, ctime, last access), generation
ATTRIBUTES: dict[bytes, tuple[object, ...]] = {
    b"": ((0, 1), DIRECTORY | 0o755, 1000, 100, 4, 0, 0, (NOW, tick(5), tick(5), NOW), 1),
    b"/kv": ((1, 2), DIRECTORY | 0o755, 1000, 100, 3, 0, 0, (NOW, tick(81), tick(81), NOW + 10**15), 2),
    b"/kv/directory": (
        *((2, 3), DIRECTORY | 0o2750, 1002, 102, 3, 0, 0),
        *((NOW + 1, tick(89), tick(89), NOW + 10**15 + 1), 3),
    ),
    b"/kv/directory/deep": (
        *((3, 4), DIRECTORY | 0o700, 0, 0, 2, 0, 0),
        *((NOW + 2, tick(86), tick(86), NOW + 10**15 + 2), 4),
    ),
    b"/kv/directory/scattered 0": (
        *((9, 10), FILE | 0o644, 0, 0, 1, 3 * GRANULE, 48),
        *((tick(24), tick(30), tick(32), tick(33)), 14),
    ),
    b"/kv/directory/small too": (
        *((6, 7), FILE | 0o640, 1001, 101, 2, 5, 1),
        *((NOW + 4, -4, tick(86), NOW + 10**15 + 4), 9),
    ),
    b"/kv/directory/renamed away": (
        *((17, 18), FILE | 0o640, 1001, 101, 1, 16384, 4),
        *((tick(61), tick(62), tick(78), tick(64)), 26),
    ),
    b"/kv/empty": ((5, 6), FILE | 0o600, 7, 8, 1, 0, 0, (NOW + 3, -3, NOW - 3, NOW + 10**15 + 3), 8),
    b"/kv/small": ((6, 7), FILE | 0o640, 1001, 101, 2, 5, 1, (NOW + 4, -4, tick(86), NOW + 10**15 + 4), 9),
    b"/kv/holes": (
        *((8, 9), FILE | 0o644, 0, 0, 1, 5 * GRANULE + 17, 2),
        *((tick(19), tick(21), tick(22), tick(23)), 13),
    ),
    b"/kv/symlink": ((11, 12), LINK | 0o777, 5, 4, 1, 0, 0, (tick(36), tick(36), tick(87), tick(36)), 16),
    b"/kv/a.lock": ((13, 14), FILE | 0o666, 0, 0, 1, 7, 1, (NOW + 99, -99, NOW - 99, NOW + 10**15 + 99), 22),
    b"/kv/" + LONG: ((14, 15), FILE | 0o640, 1001, 101, 1, 100, 1, (tick(49), tick(50), tick(51), tick(52)), 23),
    b"/kv/replaced": (
        *((18, 16), FILE | 0o640, 1001, 101, 1, GRANULE + 1, 17),
        *((tick(74), tick(75), tick(76), tick(77)), 35),
    ),
    b"/kv/large": (
        *((19, 17), FILE | 0o640, 1001, 101, 1, 3 * GRANULE + 1234, 49),
        *((NOW + 5, tick(80), tick(81), tick(82)), 37),
    ),
    b"/other namespace": ((4, 5), DIRECTORY | 0o1777, 0, 0, 2, 0, 0, (tick(5), tick(5), tick(5), tick(5)), 5),
}

CONTENT: dict[bytes, bytes] = {
    b"/kv/directory/scattered 0": pattern(b"scattered 0", 3 * GRANULE),
    b"/kv/directory/small too": b"small",
    b"/kv/directory/renamed away": pattern(b"renamed", 16384),
    b"/kv/empty": b"",
    b"/kv/small": b"small",
    b"/kv/holes": holes(),
    b"/kv/a.lock": b"pid 17\n",
    b"/kv/" + LONG: pattern(LONG, 100),
    b"/kv/replaced": pattern(b"replaced", GRANULE + 1),
    b"/kv/large": large(),
}

XATTRS: dict[bytes, dict[bytes, bytes]] = {
    b"/kv": {b"hcfs.quota": b"1048576", b"user.kept": b"1"},
    b"/kv/directory": {b"user.note": b"of a directory"},
    b"/kv/directory/small too": {b"user.note": b"of a file"},
    b"/kv/small": {b"user.note": b"of a file"},
    b"/kv/replaced": {b"user.why": b"in the log"},
}

EXTENTS: dict[bytes, list[tuple[int, int, int]]] = {
    b"/kv/directory/scattered 0": [(0, 579, 16), (16, 611, 16), (32, 643, 16)],
    b"/kv/holes": [(32, 577, 2)],
    b"/kv/large": [(0, 803, 49)],
}


@pytest.fixture(scope="module")
def image() -> bytes:
    return lzma.decompress(IMAGE.read_bytes())


def paths(store: Store, directory: int = ROOT_ID, path: bytes = b"") -> Iterator[tuple[bytes, int]]:
    yield path, directory
    for name, oid in store.list_directory(directory):
        if store.attributes(oid).kind is Kind.DIRECTORY:
            yield from paths(store, oid, path + b"/" + name)
        else:
            yield path + b"/" + name, oid


def test_the_superblock(image: bytes) -> None:
    assert read_superblock(MemoryDevice.holding(image)) == Superblock(
        uuid=uuid.UUID("601de001-0000-4000-8000-000000000001"),
        label="golden 1",
        granule=GRANULE,
        device_blocks=4096,
        regions=(1, 264),
        region_blocks=263,
        data_start=527,
        data_blocks=3568,
        max_objects=64,
        created_ns=NOW,
    )


def test_every_attribute_and_byte(image: bytes) -> None:
    device = MemoryDevice.holding(image)
    store = recover(device, read_only=True)
    assert (store.state, store.state_reason) == ("read-only", "mounted read-only")
    found = dict(paths(store))
    assert found.keys() == ATTRIBUTES.keys()
    for path, oid in found.items():
        a = store.attributes(oid)
        times = (a.atime_ns, a.mtime_ns, a.ctime_ns, a.last_access_ns)
        values = ((oid >> 32, oid & 0xFFFFFFFF), a.mode, a.uid, a.gid, a.nlink, a.size, a.blocks, times, a.generation)
        assert values == ATTRIBUTES[path], path
        assert {key: store.get_xattr(oid, key) for key in store.list_xattrs(oid)} == XATTRS.get(path, {}), path
        if path in CONTENT:
            assert get(store, oid) == CONTENT[path], path
        if path in EXTENTS:
            assert [(e.logical, e.block, e.count) for e in store.content.extents_of(oid)] == EXTENTS[path]
    assert store.readlink(found[b"/kv/symlink"]) == b"directory/deep/caf\xe9"
    assert len(CONTENT) == sum(store.attributes(oid).kind is Kind.FILE for oid in found.values())
    assert device.contents == image


def test_what_is_quarantined(image: bytes) -> None:
    store = recover(MemoryDevice.holding(image))
    assert [(q.id >> 32, q.path, q.reason, q.blocks, q.since_ns) for q in store.removals.quarantined()] == [
        (10, b"kv/directory/scattered 1", "unreadable", 48, tick(88)),
        (12, b"kv/bad", "granule 1 doesn't match its checksum", 32, tick(43)),
    ]
    for found, name, size in zip(
        store.removals.quarantined(), (b"scattered 1", b"bad"), (3 * GRANULE, 2 * GRANULE), strict=True
    ):
        assert get(store, found.id) == pattern(name, size)


def test_the_image_is_sound_and_its_tail_is_torn(image: bytes) -> None:
    report = check(MemoryDevice.holding(image), data=True)
    assert report.problems == []
    assert (report.files, report.directories, report.symlinks, report.quarantined) == (9, 5, 1, 2)
    assert (report.region, report.transactions, report.torn_tail) == (1, 11, True)
    assert (report.used_bytes, report.quarantined_bytes, report.free_bytes) == (503808, 327680, 13783040)


def test_life_goes_on(image: bytes) -> None:
    device = MemoryDevice.holding(image)
    store = recover(device)
    assert store.state == "ok"
    kv = store.lookup(ROOT_ID, b"kv") or 0
    oid = put(store, b"new", pattern(b"new", 70_000), parent=kv)
    assert oid >> 32 >= 65, "serials below were given out"
    store.commit()
    store.checkpoint()
    store.unlink(kv, b"holes")
    store.commit()
    store = recover(device)
    assert store.state == "ok"
    found = dict(paths(store))
    assert found.keys() == ATTRIBUTES.keys() - {b"/kv/holes"} | {b"/kv/new"}
    assert all(get(store, found[path]) == data for path, data in CONTENT.items() if path in found)
    check_space(store)
    assert check(device, data=True).clean
