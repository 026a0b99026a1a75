"""Region headers, and reading the log: where it ends, and what is damage."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from store.devices import SECTOR, Fault, Watched
from store.rig import UUID

from hcfs.device import DeviceError, MemoryDevice
from hcfs.device.protocol import BlockDevice
from hcfs.store import BLOCK, Superblock
from hcfs.store.log import LogWriter, encode_batch
from hcfs.store.region import UNREADABLE_MAX, LogScan, RegionReader
from hcfs.store.region_header import RegionHeader, decode_header

REGION_BLOCKS = 64
GENERATION = 9
HEADER = RegionHeader(GENERATION, 100, 5000, 3, 2, 77, 123)
SUPERBLOCK = Superblock(
    *(UUID, "", 65536, 1024, (1, 1 + REGION_BLOCKS), REGION_BLOCKS, 1 + 2 * REGION_BLOCKS, 512, 16), created_ns=0
)
START = SUPERBLOCK.regions[1] * BLOCK


@dataclass
class Log:
    """Region 1 of a device, its log behind a checkpoint up to sequence number 100."""

    device: MemoryDevice = field(default_factory=lambda: MemoryDevice(1024 * BLOCK))
    written: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    """(offset from the region's start, first sequence number, payloads) of each batch"""
    sequence: int = 101

    def __post_init__(self) -> None:
        at = HEADER.log_block * BLOCK
        self.writer = LogWriter(self.device, UUID, START, SUPERBLOCK.header_copy * BLOCK, GENERATION, at, at)

    def batch(self, *payloads: bytes) -> int:
        """Append a batch; its offset in the region."""
        at = self.writer.at
        assert self.writer.append(payloads, self.sequence)
        self.written.append((at, self.sequence, list(payloads)))
        self.sequence += len(payloads)
        return at

    def scan(self, device: BlockDevice | None = None) -> tuple[LogScan, list[bytes]]:
        scan = LogScan(RegionReader(device or self.device, SUPERBLOCK, 1), HEADER)
        found = []
        for frame in scan:
            assert frame.sequence == scan.next_sequence
            found.append(bytes(frame.payload))
        return scan, found

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payloads in self.written for payload in payloads]


def payload(rng: random.Random, most: int = 3000) -> bytes:
    return rng.randbytes(rng.randrange(1, most))


def frame_places(at: int, payloads: list[bytes]) -> list[int]:
    """Where each frame of a batch at `at` begins."""
    places = []
    for body in payloads:
        places.append(at)
        at += (24 + len(body) + 7) & ~7
    return places


# --- headers -------------------------------------------------------------------------------------------------------


def test_header_comes_back() -> None:
    encoded = HEADER.encode(SUPERBLOCK)
    assert len(encoded) == BLOCK
    assert decode_header(encoded, SUPERBLOCK) == HEADER
    for at in range(SECTOR):
        bad = bytearray(encoded)
        bad[at] ^= 1 << at % 8
        assert decode_header(bad, SUPERBLOCK) is None


@pytest.mark.parametrize("change", [{"log_block": 4}, {"checkpoint_bytes": 1 << 40, "log_block": (1 << 28) + 1}])
def test_header_with_an_impossible_layout(change: dict[str, int]) -> None:
    assert decode_header(replace(HEADER, **change).encode(SUPERBLOCK), SUPERBLOCK) is None


def test_header_of_another_store() -> None:
    other = replace(SUPERBLOCK, uuid=type(UUID)(int=5))
    assert decode_header(HEADER.encode(other), SUPERBLOCK) is None


# --- the ordinary ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_batches_come_back_in_order(seed: int) -> None:
    rng, log = random.Random(seed), Log()
    for _ in range(rng.randrange(8)):
        log.batch(*[payload(rng) for _ in range(rng.randrange(1, 6))])
    scan, found = log.scan()
    assert found == log.payloads
    assert (scan.end, scan.next_sequence, scan.torn, scan.damage) == (log.writer.at, log.sequence, False, [])


@pytest.mark.parametrize("length", [4096 - 24, 4096 - 24 - 8, 4096 - 24 - 23, 8192 - 24, 8192 - 24 - 16])
def test_batches_that_fill_their_blocks(length: int) -> None:
    log = Log()
    log.batch(bytes([1]) * length)
    log.batch(bytes([2]) * length, b"more")
    log.batch(b"last")
    scan, found = log.scan()
    assert (found, scan.end, scan.damage) == (log.payloads, log.writer.at, [])


def test_a_full_log_takes_no_more() -> None:
    log = Log()
    while log.writer.room:
        log.batch(bytes([7]) * (3 * BLOCK - 24))
        if log.writer.room and log.writer.room < 3 * BLOCK:
            assert not log.writer.append([bytes(3 * BLOCK)], log.sequence)
            log.batch(bytes([8]) * (log.writer.room - 24))
    assert not log.writer.append([b"x"], log.sequence)
    assert not log.writer.fits([b"x"])
    assert log.writer.half_full
    scan, found = log.scan()
    assert (found, scan.end, scan.damage) == (log.payloads, SUPERBLOCK.header_copy * BLOCK, [])


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_torn_at_any_sector_is_an_end(seed: int) -> None:
    rng, log = random.Random(seed), Log()
    log.batch(*[payload(rng) for _ in range(3)])
    clean = bytes(log.device.contents)
    last = log.batch(*[payload(rng, 1200) for _ in range(6)])
    whole = bytes(log.device.contents)
    before = log.payloads[:3]
    places = frame_places(last, log.payloads[3:])
    for sectors in range((log.writer.at - last) // SECTOR + 1):
        cut = START + last + sectors * SECTOR
        log.device.contents[:] = whole[:cut] + clean[cut:]
        scan, found = log.scan()
        assert found == log.payloads[: len(found)], "a beginning of what was written"
        assert found[:3] == before
        assert scan.damage == []
        assert scan.end % BLOCK == 0
        if len(found) < 9:
            begun = places[len(found) - 3]
            assert scan.torn == (START + begun < cut) or begun % BLOCK == 0
        else:
            assert not scan.torn
        # The next batch goes where nothing durable lies.
        assert scan.end >= last


@pytest.mark.parametrize("seed", range(6))
def test_a_tail_of_which_any_sectors_are_missing_is_an_end(seed: int) -> None:
    rng, log = random.Random(seed), Log()
    log.batch(payload(rng))
    clean = bytes(log.device.contents)
    last = log.batch(*[payload(rng, 900) for _ in range(12)])
    whole = bytes(log.device.contents)
    for _ in range(30):
        log.device.contents[:] = whole
        for at in range(START + last, START + log.writer.at, SECTOR):
            if rng.random() < 0.2:
                log.device.contents[at : at + SECTOR] = clean[at : at + SECTOR]
        scan, found = log.scan()
        assert found == log.payloads[: len(found)]
        assert scan.damage == []
        assert found


# --- frames that must not come back --------------------------------------------------------------------------------


def test_frames_of_an_earlier_life_of_the_region_are_not_found() -> None:
    log = Log()
    older = LogWriter(log.device, UUID, START, REGION_BLOCKS * BLOCK, GENERATION - 2, 0, HEADER.log_block * BLOCK)
    for number in range(20):
        assert older.append([b"stale" * 100] * 3, 101 + 3 * number)
    scan, found = log.scan()
    assert (found, scan.end, scan.damage, scan.torn) == ([], HEADER.log_block * BLOCK, [], True)
    log.batch(b"fresh")
    scan, found = log.scan()
    assert (found, scan.damage) == ([b"fresh"], [])


@pytest.mark.parametrize("fresh_frames", [1, 2, 3])
def test_frames_of_a_torn_batch_do_not_continue_the_one_written_over_it(fresh_frames: int) -> None:
    """A batch was torn, so its numbers and its place are used again; that one is torn too, just where an old frame
    begins that has the next number and the right generation."""
    log = Log()
    stale = encode_batch([b"s" * (SECTOR - 24)] * 12, 101, log.writer._seed)
    fresh = encode_batch([b"f" * (SECTOR - 24)] * fresh_frames, 101, log.writer._seed)
    at = START + HEADER.log_block * BLOCK
    log.device.contents[at : at + len(stale)] = stale
    came_through = fresh[: fresh_frames * SECTOR]
    log.device.contents[at : at + len(came_through)] = came_through
    scan, found = log.scan()
    assert found == [b"f" * (SECTOR - 24)] * fresh_frames
    assert scan.torn
    assert scan.damage == []


# --- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_damage_in_the_middle_is_told_apart(seed: int) -> None:
    """Everything before the damage and every whole batch behind it comes back, and the lost numbers are named."""
    rng, log = random.Random(seed), Log()
    for _ in range(6):
        log.batch(*[payload(rng, 1500) for _ in range(rng.randrange(1, 7))])
    hit = rng.randrange(5)
    at, first, payloads = log.written[hit]
    end = log.written[hit + 1][0]
    index = rng.randrange(len(payloads))
    flipped = frame_places(at, payloads)[index] + rng.randrange(20)
    log.device.contents[START + flipped] ^= 1 << rng.randrange(8)
    scan, found = log.scan()
    kept = [p for number, (_, _, batch) in enumerate(log.written) for p in (batch if number != hit else batch[:index])]
    assert found == kept
    (damage,) = scan.damage
    assert (damage.first, damage.end) == (first + index, log.written[hit + 1][1])
    assert START + at <= damage.offset <= START + flipped
    assert damage.offset + damage.bytes == START + end
    assert (scan.end, scan.next_sequence) == (log.writer.at, log.sequence)


def test_two_damages() -> None:
    log = Log()
    places = [log.batch(bytes([number]) * 100) for number in range(1, 8)]
    for hit in (1, 2, 5):
        log.device.contents[START + places[hit] + 30] ^= 1
    scan, found = log.scan()
    assert found == [bytes([number]) * 100 for number in (1, 4, 5, 7)]
    assert [(d.first, d.end, d.bytes) for d in scan.damage] == [(102, 104, 2 * BLOCK), (106, 107, BLOCK)]


def test_damage_of_the_last_batch_looks_like_a_torn_tail() -> None:
    log = Log()
    log.batch(b"first")
    at = log.batch(b"second")
    log.device.contents[START + at + 24] ^= 1
    scan, found = log.scan()
    assert (found, scan.end, scan.torn, scan.damage) == ([b"first"], at, True, [])


# --- blocks that can't be read -------------------------------------------------------------------------------------


def test_an_unreadable_block_costs_its_batch_only() -> None:
    log = Log()
    places = [log.batch(bytes([number]) * 100) for number in range(1, 5)]
    bad = Fault("read", START + places[1], START + places[1] + 1)
    scan, found = log.scan(Watched(log.device, bad))
    assert found == [bytes([number]) * 100 for number in (1, 3, 4)]
    assert [(d.first, d.end) for d in scan.damage] == [(102, 103)]
    assert scan.unreadable == {places[1] // BLOCK}


def test_an_unreadable_block_behind_the_end_costs_nothing() -> None:
    log = Log()
    log.batch(b"only")
    bad = Fault("read", START + 40 * BLOCK, START + 41 * BLOCK)
    scan, found = log.scan(Watched(log.device, bad))
    assert (found, scan.damage, scan.unreadable) == ([b"only"], [], {40})
    assert scan.end == log.writer.at


def test_too_many_unreadable_blocks_are_an_error() -> None:
    log = Log()
    log.batch(b"only")
    bad = Fault("read", START + 10 * BLOCK)
    with pytest.raises(DeviceError):
        log.scan(Watched(log.device, bad))
    # One window that fails, then each block by itself.
    assert bad.failed <= UNREADABLE_MAX + 3
