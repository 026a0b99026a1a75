"""Images that somebody made: every structure verifies, and every field may be a lie.

The bytes that a function here takes are where its chance starts, so an input is a seed: mutating it gives another
image."""

from __future__ import annotations

import json
import random
import struct
from array import array
from dataclasses import dataclass, fields, replace
from typing import Any

from hcfs.cache import Cache
from hcfs.daemon.scrubbing import Scrubbing
from hcfs.device import BlockDevice, BufferPool, open_device
from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Caller, finish
from hcfs.filesystem.filesystem import Filesystem
from hcfs.remote.allowed_origins import AllowedOrigins
from hcfs.remote.kinds import add_origins
from hcfs.store import BLOCK, ROOT_ID, Kind, Store, UnrecoveredStore, format_device, frame
from hcfs.store.attributes import Extra
from hcfs.store.frame import MAX_PAYLOAD, FrameType
from hcfs.store.page import HEAD
from hcfs.store.region_header import RegionHeader, write_headers
from hcfs.store.superblock import Superblock

NUMBERS = (0, 1, 2, 3, 63, 255, 4095, 4096, 65_535, 2**16, 2**20, 2**26, 2**31, 2**32 - 1, 2**48, 2**62, 2**63 - 1)
HUGE = (*NUMBERS, 2**63, 2**64 - 1)
DIRECTORY, FILE, SYMLINK = 0o040755, 0o100644, 0o120777
NAMES = (
    b"a",
    b"b",
    b".hcfs",
    b"x.tmp",
    b"x.lock",
    b"\xff\xfe",
    b"\x1b[2J",
    b"new\nline",
    b"n" * 1024,
    b"..",
    b"",
    b"/",
)
TEXTS = (b"", b"{", b"[]", b"null", b'{"base": 7}', b'{"base": {"a": []}}', b'{"base": "e", "reason": 1}', b"[" * 9000)
PASS = b'{"position": %s, "objects": 0, "checked_bytes": 1, "damaged": 0, "began_at": %s, "finished_at": null}'
OPTIONS: dict[bytes, tuple[bytes, ...]] = {
    b"hcfs.origin": (
        b"/",
        b"/root",
        b"s3://b/x",
        b"s3://[",
        b"s3://b/../x",
        b"file:///%ff",
        b"/\xff",
        b"http://x",
        b"",
    ),
    b"hcfs.write_policy": (b"write-back", b"write-through", b"always", b"\xff"),
    b"hcfs.origin_changes": (b"revalidate=0", b"revalidate=99999999999", b"revalidate=x"),
    b"hcfs.quota": (b"0", b"1", b"99999999999999999999999", b"-1", b"1e9", b"\xd9\xa1"),
    b"hcfs.salt_quota": (b"0", b"9" * 5000),
    b"hcfs.staging_patterns": (b"*", b"[", b"[!", b"?" * 300, b",".join([b"*a*b*c*d*e*f"] * 16), b"\xff*"),
    b"hcfs.verify": (b"open", b"never"),
    b"hcfs.unknown": (b"1",),
    b"hcfs.sync": TEXTS,
    b"hcfs.etag": (b"", b"\xff\xfe", b'"e"', b"e" * 70_000),
    b"hcfs.doubt": (b"", b"x"),
    b"hcfs.quarantine": TEXTS,
    b"hcfs.scrub": (
        *TEXTS,
        b'{"position": "x"}',
        PASS % (b"[]", b"1"),
        PASS % (b"-5", b"1e999"),
        PASS % (b"1e999", b"NaN"),
    ),
    b"user.\xff": (b"\xff",),
}
MOST_LOOKED_AT = 60
GENERATION = 7


@dataclass
class HostileRow:
    """A row of a checkpoint page."""

    id: int
    mode: int
    parent: int
    name: bytes
    size: int
    extents: list[tuple[int, int, int]]
    granules: int
    extra: bytes
    rest: list[int]
    """uid, gid, flags, crc; atime, mtime, ctime, generation, last access"""

    def column(self, name: str) -> int:
        names = ("uid", "gid", "flags", "crc", "atime_ns", "mtime_ns", "ctime_ns", "generation", "last_access_ns")
        return self.rest[names.index(name)] if name in names else int(getattr(self, name))


def superblock(data: bytes, sound: Superblock) -> Superblock:
    """The sound one with some fields that can't be, or nearly can."""
    chance = random.Random(data)
    changed = sound
    numeric = [field.name for field in fields(sound) if isinstance(getattr(sound, field.name), int)]
    for name in chance.sample(numeric, chance.choice((1, 1, 2, 3))):
        near = getattr(sound, name) + chance.choice((-1, 1, 2, -sound.region_blocks, sound.region_blocks))
        most = 2**32 - 1 if name in ("granule", "format_version") else 2**64 - 1
        value: Any = chance.choice((*HUGE, near, near, near)) % (most + 1)
        changed = replace(changed, **{name: value})
    if chance.random() < 0.3:
        first, second = (chance.choice((*HUGE, *sound.regions, at + 1)) % 2**64 for at in sound.regions)
        changed = replace(changed, regions=(first, second))
    return changed


def header(data: bytes, sound: RegionHeader) -> RegionHeader:
    """The sound one with some fields that can't be, or nearly can."""
    chance = random.Random(data)
    changed = sound
    for field in chance.sample(fields(sound), chance.choice((1, 1, 2, 3))):
        near = getattr(sound, field.name) + chance.choice((-1, 1, 2, 64))
        changed = replace(changed, **{field.name: chance.choice((*HUGE, near, near)) % 2**64})
    if chance.random() < 0.5:
        changed = replace(changed, log_block=1 + -(-changed.checkpoint_bytes // 4096) & 2**64 - 1)
    return changed


def pages(data: bytes, *, granule: int, data_start: int) -> list[bytes]:
    """Payloads of checkpoint pages: chains and rings of directories, extents anywhere, slots far apart, attributes of
    hcfs's own."""
    chance = random.Random(data)
    rows = [
        HostileRow(ROOT_ID, DIRECTORY, 0, b"", 0, [], 0, _extra(chance, [1], False), [0, 0, 0, 0, 1, 1, 1, 1, 1])
    ] * chance.choice((1, 1, 0))
    count = chance.choice((1, 3, 10, 40, 200))
    slots = sorted(chance.sample(range(2, 2 + 2 * count), count))
    if chance.random() < 0.2:
        slots[-1] = chance.choice((60_000, 66_000, 66_000, 2**20, 2**26, 2**32 - 1))
    ids = [chance.choice((1, 1, 1, 2, 2**31 - 1)) << 32 | slot for slot in slots]
    if chance.random() < 0.1:
        ids[0] |= 1 << 63
    impossible = chance.random() < 0.3
    shape = chance.choice(("tree", "tree", "chain", "ring", "star", "any"))
    for at, oid in enumerate(ids):
        mode = chance.choice((DIRECTORY, DIRECTORY, FILE, FILE, FILE, SYMLINK, 0, 0o160000, 2**32 - 1))
        parent = {
            "tree": chance.choice([ROOT_ID, *ids[:at]]),
            "chain": ids[at - 1] if at else ROOT_ID,
            "ring": ids[at - 1],
            "star": ROOT_ID,
            "any": chance.choice([ROOT_ID, *ids, 0, 2**64 - 1]),
        }[shape]
        if shape in ("chain", "ring") and chance.random() < 0.9:
            mode = DIRECTORY
        name = b"%d" % at if chance.random() < 0.9 else chance.choice(NAMES if impossible else NAMES[:9])
        is_file = mode == FILE
        size = chance.choice((0, 5, 9000, granule, 3 * granule + 1)) if is_file else 0
        if impossible and chance.random() < 0.03:
            size = chance.choice(HUGE)
        granules = -(-size // granule) % 2**32 if chance.random() < 0.98 or not impossible else 2**32 - 1
        extents = []
        for _ in range(chance.choice((0, 1, 1, 2, 5)) if size else chance.choice((0, 0, 0, 1))):
            block = chance.choice((data_start, data_start + chance.randrange(50), 0, *HUGE)) % 2**64
            extents.append((chance.choice((0, 1, 3, 2**32 - 1)), chance.choice((0, 1, 2, 3, 2**32 - 1)), block))
        rest = [0, 0, chance.choice((0, 0, 0, 1, 2**32 - 1)), 7]
        rest += (
            [chance.choice((1, 2**62, 2**63 - 1, -1, -(2**63))) for _ in range(3)] if chance.random() < 0.2 else [1] * 3
        )
        rest += [chance.choice((1, 1, 1, 2**64 - 1)), chance.choice((1, 1, at, 2**64 - 1))]
        rows.append(HostileRow(oid, mode, parent, name, size, extents, granules, _extra(chance, ids, impossible), rest))
    parts, size = [], chance.choice((len(rows), 3, 1000)) or 1
    for first in range(0, len(rows), size):
        part = _page(rows[first : first + size], chance, impossible)
        if 0 < len(part) <= MAX_PAYLOAD:
            parts.append(part)
    return parts or [HEAD.pack(0, 0)]


def _extra(chance: random.Random, ids: list[int], impossible: bool) -> bytes:
    if chance.random() < 0.6:
        return b""
    names = chance.sample(sorted(OPTIONS), chance.choice((1, 1, 2, 4)))
    extra = Extra(xattrs={name: chance.choice(OPTIONS[name]) for name in names})
    if chance.random() < 0.2:
        extra.target = chance.choice((b"", b"x", b"t" * 5000, b"\0"))
    extra.links = [
        (chance.choice([*ids, 1, 0]), chance.choice(NAMES if impossible else NAMES[:9]))
        for _ in range(chance.choice((0, 0, 1, 5)))
    ]
    encoded = extra.encode()
    return encoded if not impossible or chance.random() < 0.97 else encoded[:-1] + b"\xff\xff"


def _page(rows: list[HostileRow], chance: random.Random, impossible: bool) -> bytes:
    def column(code: str, values: list[int]) -> bytes:
        bits = 64 if code in "Qq" else 32
        return array("Q" if bits == 64 else "I", [value % 2**bits for value in values]).tobytes()

    out = HEAD.pack(
        len(rows) if not impossible or chance.random() < 0.9 else chance.choice((0, len(rows) + 1, 1025, 2**32 - 1)), 0
    )
    out += column("Q", [row.id for row in rows])
    for name in ("mode", "uid", "gid", "flags", "crc"):
        out += column("I", [row.column(name) for row in rows])
    for name in ("size", "atime_ns", "mtime_ns", "ctime_ns", "generation", "last_access_ns"):
        out += column("Q", [row.column(name) for row in rows])
    out += column("Q", [row.parent for row in rows])
    for lengths in (
        [len(row.name) for row in rows],
        [len(row.extents) for row in rows],
        [row.granules for row in rows],
        [len(row.extra) for row in rows],
    ):
        if impossible and chance.random() < 0.03:
            lengths[chance.randrange(len(lengths))] = chance.choice((2**31, 2**32 - 1))
        out += column("I", lengths)
    out += b"".join(row.name for row in rows)
    out += b"".join(struct.pack("<IIQ", *extent) for row in rows for extent in row.extents)
    out += b"".join(bytes(4 * row.granules) for row in rows if 1 < row.granules < 1000)
    return out + b"".join(row.extra for row in rows)


class DeafKernel:
    """A kernel that keeps nothing."""

    def forget_name(self, parent: int, name: bytes) -> None: ...

    def forget_names_now(self, names: object) -> None: ...

    def forget_attributes(self, ino: int) -> None: ...

    def forget_pages(self, ino: int) -> None: ...


def mount(device: BlockDevice) -> None:
    """What the daemon does with a store before and while it serves, as far as it needs no kernel: what is refused is
    refused with an error of hcfs's own."""
    store = UnrecoveredStore.open(device, BufferPool(4 << 20)).recover(False)
    cache = Cache(store, lookup_grace_s=0, entry_timeout_s=1, on_evicted=lambda _: None)
    filesystem = Filesystem(store, cache, DeafKernel(), entry_timeout=1)
    origins = add_origins(filesystem, upload_attempts=1, allowed=AllowedOrigins([]))
    try:
        json.dumps(origins.status())
        for namespace in cache.namespaces.names().values():
            json.dumps([str(cache.namespaces.usage(namespace)), cache.unsynced_bytes(namespace)])
        json.dumps(Scrubbing(filesystem).status())
        json.dumps([str(each) for each in store.removals.quarantined()])
        _look_around(filesystem, store)
        cache.make_room(1)
    finally:
        origins.close()
        filesystem.close()


def _look_around(filesystem: Filesystem, store: Store) -> None:
    caller, todo, looked = Caller(0, 0, 0), [ROOT_ID], 0
    while todo and looked < MOST_LOOKED_AT:
        directory = todo.pop()
        for name, _ in store.list_directory(directory):
            looked += 1
            if looked > MOST_LOOKED_AT:
                return
            try:
                entry = finish(filesystem.lookup(directory, name, caller))
                for attribute in filesystem.listxattr(entry.ino):
                    finish(filesystem.getxattr(entry.ino, attribute))
                filesystem.getattr(entry.ino)
                kind = store.attributes(entry.ino).kind
                if kind is Kind.DIRECTORY:
                    todo.append(entry.ino)
                elif kind is Kind.FILE:
                    opened = filesystem.open(entry.ino, 0, caller)
                    finish(opened)
                elif kind is Kind.SYMLINK:
                    store.readlink(entry.ino)
            except HcfsError:
                continue


def write_image(path: str, size: int, max_objects: int, payloads: list[bytes]) -> None:
    """An image file with a store of these checkpoint pages, as large as is said and with holes for what isn't used."""
    with open(path, "xb") as file:
        file.truncate(size)
    device = open_device(path, BufferPool(16 << 20))
    try:
        sb = format_device(device, max_objects=max_objects)
        seed = frame.seed(sb.uuid, GENERATION)
        pages = b"".join(frame.encode(FrameType.PAGE, 0, number, page, seed) for number, page in enumerate(payloads))
        blocks = -(-len(pages) // BLOCK)
        device.write((sb.regions[0] + 1) * BLOCK, pages.ljust((blocks + 1) * BLOCK, b"\0"))
        write_headers(device, sb, 0, RegionHeader(GENERATION, 0, len(pages), 1 + blocks, len(payloads), 1, 1))
    finally:
        device.close()


def many_directories(count: int, *, ring: bool) -> list[bytes]:
    """Pages of directories that lie in each other, in a ring that hangs nowhere or in one chain below the root,
    and of a file in each."""
    rows = [HostileRow(ROOT_ID, DIRECTORY, 0, b"", 0, [], 0, b"", [0, 0, 0, 0, 1, 1, 1, 1, 1])]
    first = count + 1 if ring else ROOT_ID
    for slot in range(2, 2 + 2 * count, 2):
        parent = slot - 2 if slot > 2 else first
        parent = 1 << 32 | (2 * count if ring and slot == 2 else parent) if parent != ROOT_ID else ROOT_ID
        rows.append(HostileRow(1 << 32 | slot, DIRECTORY, parent, b"d", 0, [], 0, b"", [0] * 4 + [1] * 5))
        rows.append(HostileRow(1 << 32 | slot + 1, FILE, 1 << 32 | slot, b"f", 0, [], 0, b"", [0] * 4 + [1] * 5))
    rows.sort(key=lambda row: row.id & 0xFFFFFFFF)
    return [_page(rows[at : at + 1000], random.Random(0), False) for at in range(0, len(rows), 1000)]


def page(rows: list[HostileRow]) -> bytes:
    """A page of just these rows."""
    return _page(rows, random.Random(0), False)


def far_slot(slot: int) -> list[bytes]:
    """A page of the root and one file with that slot."""
    rest = [0] * 4 + [1] * 5
    root = HostileRow(ROOT_ID, DIRECTORY, 0, b"", 0, [], 0, b"", rest)
    return [
        _page([root, HostileRow(1 << 32 | slot, FILE, ROOT_ID, b"f", 0, [], 0, b"", rest)], random.Random(0), False)
    ]
