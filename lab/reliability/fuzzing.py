"""The parsers of everything that is on a device, each as a function of arbitrary bytes.

A parser may answer, or refuse with one of the errors that it is said to raise; anything else (another exception, a
hang, memory out of proportion to the input) is a finding. The bytes stand behind right checksums: what a faulty program
or a hostile person could have written, not only what a medium damages.
"""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from crc32c import crc32c

from hcfs.device import BufferPool, MemoryDevice
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, UnrecoveredStore, inspect, superblock
from hcfs.store.attributes import UNSYNCED_XATTR, Extra
from hcfs.store.check import check
from hcfs.store.errors import CorruptMetadata, UnsupportedFormat
from hcfs.store.extents import decode_extents
from hcfs.store.frame import MAX_PAYLOAD, FrameType, encode, seed
from hcfs.store.log import encode_batch
from hcfs.store.mkfs import format_device
from hcfs.store.page_reader import load
from hcfs.store.region import LogScan, RegionReader
from hcfs.store.region_header import RegionHeader, decode_header, read_headers
from hcfs.store.repair import repair
from hcfs.store.replay import EXHAUSTED
from hcfs.store.transactions import MetadataIndex, apply
from lab.reliability import hostile, snapshots, workloads
from lab.reliability.overlay import OverlayDevice

SECONDS_MAX = 5.0
BYTES_MAX = 64 << 20
"""memory that one input of at most a few KiB may take: the pools and windows of a small store included"""
GENERATION = 7
UUID_BYTES = workloads.STORE_UUID.bytes
REGION_SEED = seed(workloads.STORE_UUID, GENERATION)


class Finding(AssertionError):
    """An input that a parser doesn't deal with."""


def with_checksum(body: bytes, length: int) -> bytes:
    """`body` cut or padded to `length` - 4 bytes, and its CRC32C."""
    body = body[: length - 4].ljust(length - 4, b"\0")
    return body + struct.pack("<I", crc32c(body))


@cache
def base() -> bytes:
    return workloads.base_image()


@cache
def base_superblock() -> superblock.Superblock:
    return superblock.read_superblock(OverlayDevice(base(), []))


# --- the parsers ------------------------------------------------------------------------------------------------------


def parse_superblock(data: bytes) -> OverlayDevice:
    """A superblock with the right magic and checksum, at one end of a device or at both."""
    block = with_checksum(superblock.MAGIC + data, BLOCK)
    with suppress(UnsupportedFormat):
        superblock.decode(block)
    last = (base_superblock().device_blocks - 1) * BLOCK
    patches = [[(0, block)], [(last, block)], [(0, block), (last, block)]][len(data) % 3]
    return OverlayDevice(base(), patches)


def parse_region_header(data: bytes) -> OverlayDevice:
    """A region's header with the right magic, UUID and checksum, in one of the regions: the first one, its copy, or
    both."""
    block, sb = with_checksum(b"HCFSREGN" + UUID_BYTES + data, 512).ljust(BLOCK, b"\0"), base_superblock()
    decode_header(block, sb)
    start = sb.regions[len(data) % 2]
    places = ([start], [start + sb.header_copy], [start, start + sb.header_copy])[len(data) // 2 % 3]
    return OverlayDevice(base(), [(at * BLOCK, block) for at in places])


def parse_frames(data: bytes) -> OverlayDevice:
    """A log of arbitrary bytes behind a sound checkpoint."""
    device = log_of(data)
    header = read_headers(device, base_superblock(), 1).header
    assert header is not None
    list(LogScan(RegionReader(device, base_superblock(), 1), header))
    return device


def parse_transaction(data: bytes) -> OverlayDevice | None:
    """One transaction with a right checksum."""
    with suppress(CorruptMetadata):
        apply(memoryview(data), MetadataIndex(workloads.GRANULE, base_superblock().max_slot))
    return log_of(encode_batch([data], 1, REGION_SEED)) if data else None


def parse_transactions(data: bytes) -> OverlayDevice:
    """Well-formed items with arbitrary fields, over the few ids that make them meet."""
    return log_of(encode_batch(build_transactions(data), 1, REGION_SEED))


def parse_page(data: bytes) -> OverlayDevice | None:
    """One checkpoint page with a right checksum."""
    with suppress(CorruptMetadata):
        load(memoryview(data), 0, MetadataIndex(workloads.GRANULE, base_superblock().max_slot))
    if not 0 < len(data) <= MAX_PAYLOAD:
        return None
    return region_of(encode(FrameType.PAGE, 0, 0, data, REGION_SEED), 1, b"")


def parse_extra(data: bytes) -> None:
    with suppress(ValueError):
        Extra.decode(data)
    decode_extents(data[: len(data) // 16 * 16])


def hostile_superblock(data: bytes) -> OverlayDevice:
    """A superblock with right checksums whose fields are lies, at both ends of a device or at one."""
    block = hostile.superblock(data, base_superblock()).encode()
    last = (base_superblock().device_blocks - 1) * BLOCK
    return OverlayDevice(base(), [[(0, block), (last, block)], [(0, block)], [(last, block)]][len(data) % 3])


def hostile_header(data: bytes) -> OverlayDevice:
    """The header of the current region, and its copy, with fields that are lies."""
    sb = base_superblock()
    sound = max(
        (found.header for found in (read_headers(OverlayDevice(base(), []), sb, n) for n in (0, 1)) if found.header),
        key=lambda each: each.generation,
    )
    block = hostile.header(data, sound).encode(sb)
    start = sb.regions[len(data) % 2]
    return OverlayDevice(base(), [(start * BLOCK, block), ((start + sb.header_copy) * BLOCK, block)])


def hostile_pages(data: bytes) -> OverlayDevice:
    """A whole checkpoint of rows that are lies."""
    sb = base_superblock()
    payloads = hostile.pages(data, granule=sb.granule, data_start=sb.data_start)
    frames = b"".join(encode(FrameType.PAGE, 0, number, page, REGION_SEED) for number, page in enumerate(payloads))
    return region_of(frames, len(payloads), b"")


PARSERS: dict[str, Callable[[bytes], OverlayDevice | None]] = {
    "superblock": parse_superblock,
    "region header": parse_region_header,
    "frames": parse_frames,
    "transaction": parse_transaction,
    "transactions": parse_transactions,
    "page": parse_page,
    "extra": parse_extra,
    "hostile superblock": hostile_superblock,
    "hostile header": hostile_header,
    "hostile pages": hostile_pages,
}


def region_of(pages: bytes, count: int, log: bytes) -> OverlayDevice:
    """The base store with other pages and another log in region 1, which is current."""
    sb = base_superblock()
    start, room = sb.regions[1] * BLOCK, (sb.header_copy - 1) * BLOCK
    log_block = 1 + -(-len(pages) // BLOCK)
    header = RegionHeader(GENERATION, 0, len(pages), log_block, count, 1, 1)
    body = (pages.ljust((log_block - 1) * BLOCK, b"\0") + log)[:room]
    block = header.encode(sb)
    return OverlayDevice(base(), [(start, block + body), (start + sb.header_copy * BLOCK, block)])


def log_of(log: bytes) -> OverlayDevice:
    """The base store's root directory, and a log."""
    return region_of(*_root_page(), log)


@cache
def _root_page() -> tuple[bytes, int]:
    """The page frame of an empty store, with the checksum for region 1's generation here."""
    device = MemoryDevice(workloads.SIZE)
    format_device(device, granule=workloads.GRANULE, max_objects=64, uuid=workloads.STORE_UUID)
    region = RegionReader(device, base_superblock(), 0)
    header = read_headers(device, base_superblock(), 0).header
    assert header is not None
    ((_, page),) = region.pages(header)
    assert page is not None
    return encode(FrameType.PAGE, 0, 0, bytes(page.payload), REGION_SEED), 1


def use_everything(device: OverlayDevice) -> None:
    """fsck, inspect, repair and a mount with a few changes, over whatever is on the device."""
    for look in (
        lambda: check(device, data=True),
        lambda: list(inspect.log_transactions(device)),
        lambda: list(inspect.objects(device)),
        lambda: list(inspect.extents(device)),
        lambda: inspect.superblocks(device),
        lambda: inspect.root_directories(device),
    ):
        with suppress(HcfsError):
            look()
    assert not device.wrote, "looking at a store changes it"
    for read_only in (True, False):
        try:
            store = UnrecoveredStore.open(device, BufferPool(4 << 20)).recover(read_only)
        except HcfsError:
            continue
        with suppress(HcfsError):
            snapshots.take(store)
        list(store.census.files_by_access())
        store.usage()
        if store.state == "read-only":
            continue
        if not read_only:
            snapshots.check_space(store)
            session = workloads.Session(store, random.Random(1))
            for step in (("mkdir", b"fuzz"), ("write", b"fuzz/f", 70_000), ("commit",), ("checkpoint",)):
                session.do(str(step[0]), *step[1:])
            again = workloads.open_store(device)
            assert again.state == "ok" or "superblock" in again.state_reason, again.state_reason
    with suppress(HcfsError):
        hostile.mount(device)
    try:
        repair(device, data=True)
        report = check(device, data=True)
        store = UnrecoveredStore.open(device, BufferPool(4 << 20)).recover(read_only=True)
    except HcfsError:
        return
    if any(problem.detail == EXHAUSTED for problem in report.problems):
        return  # nothing is written any more
    # Nobody else has what isn't synced: a repair leaves it where it is.
    kept = {
        "/" + store.path_of(oid).decode(errors="backslashreplace")
        for oid, _ in store.metadata.with_xattr(UNSYNCED_XATTR)
    }
    left = [
        problem
        for problem in report.problems
        if "more than the limit" not in problem.detail and not (problem.kind == "checksum" and problem.where in kept)
    ]
    assert not left, f"after the repair fsck finds {left}"


# --- structured inputs ------------------------------------------------------------------------------------------------


LOGICAL, COUNTS = (0, 1, 16, 2**32 - 1), (0, 1, 2, 17, 2**32 - 1)


def build_transactions(data: bytes) -> list[bytes]:
    """Items whose kinds and ids come from a small range and whose other fields are taken from the bytes."""
    chance = random.Random(data)
    ids = [1, *(serial << 32 | slot for serial in (1, 2) for slot in (2, 3, 4, 5))]
    start = base_superblock().data_start
    payloads = []
    for _ in range(1 + len(data) % 12):
        payload = bytearray(struct.pack("<Q", 5))
        for _ in range(chance.randrange(1, 5)):
            kind = chance.choices(range(1, 9), (8, 10, 3, 3, 3, 2, 1, 1))[0]
            oid, parent = chance.choice(ids), chance.choice(ids)
            name = chance.choice((b"a", b"b", b"c", b"", b"..", b"x/y", b"n" * 1025))
            mode = chance.choice((0o040755, 0o040700, 0o100644, 0o120777, 0))
            flags = chance.choices((0, 1, 2), (8, 2, 1))[0]
            if kind == 1:
                size = chance.choice((0, 1, 5000, 70_000, 1 << 40, 2**64 - 1))
                extents = [
                    tuple(map(chance.choice, (LOGICAL, COUNTS, (start, start + 1, start + 20, 0, 2**64 - 1))))
                    for _ in range(chance.choice((0, 1, 1, 2, 3)))
                ]
                granules = chance.choice((0, 1, 2, -(-size // workloads.GRANULE) % 100))
                extra = Extra(xattrs={b"hcfs.quarantine": chance.choice((b"{}", b"[", b"[1]", b'{"since_ns": "x"}'))})
                tail = extra.encode() if chance.random() < 0.3 else b""
                payload += struct.pack("<BQIIIIQqqqQQIII", 1, oid, mode, 0, 0, flags, size, 1, 1, 1, 1, 1,
                                       len(extents), granules, len(tail))  # fmt: skip
                payload += b"".join(struct.pack("<IIQ", *extent) for extent in extents) + bytes(granules * 4) + tail
            elif kind == 2:
                payload += struct.pack("<BQQH", 2, parent, oid, len(name)) + name
            elif kind == 3:
                payload += struct.pack("<BQH", 3, parent, len(name)) + name
            elif kind == 4:
                payload += struct.pack("<BQ", 4, oid)
            elif kind == 5:
                payload += struct.pack("<BQIIIIqqq", 5, oid, mode, 0, 0, flags, 1, 1, 1)
            elif kind == 6:
                payload += struct.pack("<BQI", 6, oid, 0)
            elif kind == 7:
                payload += struct.pack("<BIQQ", 7, 1, oid, 2**64 - 1)
            else:
                payload += struct.pack("<BQ", 8, chance.choice((5, 2**40, 2**63, 2**64 - 1)))
        payloads.append(bytes(payload))
    return payloads


# --- samples to start from, and limits --------------------------------------------------------------------------------


@cache
def samples(parser: str) -> tuple[bytes, ...]:
    """Sound inputs, to be mutated."""
    if parser.startswith("hostile"):
        return (b"",)  # a seed
    image, sb = base(), base_superblock()
    if parser == "superblock":
        return (image[8:200],)
    if parser == "region header":
        return (image[sb.regions[0] * BLOCK + 24 : sb.regions[0] * BLOCK + 80],)
    device = OverlayDevice(image, [])
    reader = RegionReader(device, sb, 0)
    header = read_headers(device, sb, 0).header
    assert header is not None
    transactions = [bytes(frame.payload) for frame in LogScan(reader, header)]
    if parser in ("transaction", "transactions"):
        return tuple(transactions)
    if parser == "frames":
        return (encode_batch(transactions, 1, REGION_SEED),)
    if parser == "page":
        session = workloads.Session(workloads.open_store(device), random.Random(1))
        session.link(b"kv/d1/a", b"kv/d2/second")
        session.write(b"kv/d1/big", 200_000)
        session.checkpoint()
        reader = RegionReader(device, sb, 1)
        header = read_headers(device, sb, 1).header
        assert header is not None
        return tuple(bytes(page.payload) for _, page in reader.pages(header) if page is not None)
    return (Extra(xattrs={b"user.a": b"1", b"hcfs.q": b"2"}, target=b"t", links=[(1, b"n")]).encode(),)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A few changes: bits, bytes, interesting numbers, pieces cut, doubled or moved."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(changed)) if changed else 0
        way = chance.randrange(6)
        if way == 0 and changed:
            changed[at] ^= 1 << chance.randrange(8)
        elif way == 1 and changed:
            changed[at] = chance.randrange(256)
        elif way == 2:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice((0, 1, 2, 7, 127, 255, 4096, 2**31, 2**32 - 1, 2**63, 2**64 - 1)) % 256**width
            changed[at : at + width] = number.to_bytes(width, "little")
        elif way == 3:
            del changed[at : at + chance.randrange(1, 40)]
        elif way == 4:
            changed[at:at] = changed[at : at + chance.randrange(1, 40)]
        else:
            changed += chance.randbytes(chance.randrange(1, 40))
    return bytes(changed)


def feed(parser: str, data: bytes, *, memory: bool = False, deep: bool = True) -> None:
    """Hand one input to a parser, then mount, check and repair a device that holds it. Raises Finding.

    memory: measure it, which takes three times as long. deep: False for the parser alone."""
    if memory:
        tracemalloc.start()
    started = time.process_time()
    try:
        device = PARSERS[parser](data)
        if device is not None and deep:
            use_everything(device)
    except Exception as error:
        raise Finding(f"{parser} parser, input {data.hex()}: {type(error).__name__}: {error}") from error
    finally:
        seconds = time.process_time() - started
        peak = tracemalloc.get_traced_memory()[1] if memory else 0
        if memory:
            tracemalloc.stop()
    if seconds > SECONDS_MAX:
        raise Finding(f"{parser} parser, input {data.hex()}: took {seconds:.1f} s")
    if peak > BYTES_MAX:
        raise Finding(f"{parser} parser, input {data.hex()}: took {peak >> 20} MiB")
