"""Damage to a medium, place by place, and what a store must make of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hcfs.store import BLOCK, Kind, Store
from hcfs.store.check import check
from hcfs.store.errors import ChecksumMismatch, UnreadableGranule
from hcfs.store.frame import HEADER_BYTES, padded
from hcfs.store.region import LogScan, RegionReader
from hcfs.store.region_header import read_headers
from hcfs.store.repair import repair
from hcfs.store.superblock import Superblock
from lab.reliability import snapshots, workloads
from lab.reliability.overlay import OverlayDevice, Patches
from lab.reliability.recording import RecordingDevice
from lab.reliability.workloads import Session

COVERED_HEADER = 512
ANY = None
"""in Place.touches: every path may be older, absent or refused"""


@dataclass(frozen=True, slots=True)
class Place:
    """A range of the device, and what damage there may cost."""

    kind: str
    start: int
    end: int
    touches: frozenset[bytes] | None = frozenset()
    """paths whose content may be lost"""
    detected: bool = True
    """whether fsck must see it"""
    older: bool = False
    """whether the paths may be as they were before, or absent, instead of refused"""
    position: int = 0
    """of a granule: which byte of its object is the first here"""


@dataclass(slots=True)
class Victim:
    """A store with a history, and a map of its device."""

    image: bytes
    former: bytes
    """the same device at an earlier moment"""
    versions: dict[bytes, set[bytes]]
    """by path, every content it ever had"""
    latest: dict[bytes, bytes]
    places: list[Place] = field(default_factory=list)
    uncovered: set[int] = field(default_factory=set)
    """bytes of frames' headers and behind their payloads that no checksum covers"""

    def place_of(self, place: Place, patches: Patches) -> Place:
        """The place, or what is known of the very byte."""
        if len(patches) == 1 and len(patches[0][1]) == 1 and patches[0][0] in self.uncovered:
            return Place("reserved part of a frame", place.start, place.end, detected=False)
        return place

    def by_kind(self) -> dict[str, list[Place]]:
        kinds: dict[str, list[Place]] = {}
        for place in self.places:
            kinds.setdefault(place.kind, []).append(place)
        return kinds


def make_victim(seed: int, *, base: bytes | None = None, more: Sequence[int] = ()) -> Victim:
    """Two checkpoints, six batches behind the second, files of one block to several granules, blocks used twice.

    base: an image of `workloads.base_image`. more: sizes of further files, in bytes."""
    chance = random.Random(seed)
    device = RecordingDevice.over(workloads.base_image() if base is None else base)
    session = Session(workloads.open_store(device), chance)
    versions: dict[bytes, set[bytes]] = {}
    latest: dict[bytes, bytes] = {}

    def put(path: bytes, size: int) -> None:
        session.write(path, size)
        latest[path] = session.bytes_of(session.file(path))
        versions.setdefault(path, set()).add(latest[path])

    for path in workloads.FILES:
        latest[path] = session.bytes_of(session.file(path))
        versions[path] = {latest[path]}
    sizes = (1, 4095, 4096, 9000, 66_000, 200_000)
    for number in range(8):
        put(b"kv/d1/old%d" % number, chance.choice(sizes))
    for number, size in enumerate(more):
        put(b"kv/d2/more%d" % number, size)
    session.link(b"kv/d1/old0", b"kv/d2/linked")
    session.setxattr(b"kv/d1/old1", 300)
    session.checkpoint()
    for number in range(4):
        put(b"kv/d1/old%d" % number, chance.choice(sizes))
    put(b"kv/d2/mid", 140_000)
    session.commit()
    former = bytes(device.contents)
    session.checkpoint()
    batches: list[tuple[int, int, bytes]] = []
    for number in range(6):
        path = b"kv/d2/new%d" % number if number % 2 else b"kv/d1/old%d" % number
        put(path, chance.choice(sizes))
        session.commit()
        last = device.writes[-1]
        batches.append((last.offset, last.offset + len(last.data), path))
    versions[b"kv/d2/linked"] = {*versions[b"kv/d1/old0"]}
    latest[b"kv/d2/linked"] = session.bytes_of(session.file(b"kv/d2/linked"))
    victim = Victim(bytes(device.contents), former, versions, latest)
    victim.places = _map(session.store, device, batches)
    for number in (0, 1):
        victim.uncovered |= _uncovered(device, session.store.superblock, number)
    return victim


def _map(store: Store, device: RecordingDevice, batches: list[tuple[int, int, bytes]]) -> list[Place]:
    sb = store.superblock
    places = [
        Place("first superblock", 0, BLOCK),
        Place("last superblock", (sb.device_blocks - 1) * BLOCK, sb.device_blocks * BLOCK),
    ]
    for number, words in ((store.ledger.region, "current"), (1 - store.ledger.region, "older")):
        current = words == "current"
        reader = RegionReader(device, sb, number)
        header = read_headers(device, sb, number).header
        assert header is not None
        start, end = reader.start, reader.start + reader.length
        for what, at in (("header", start), ("copy of its header", end)):
            places += [
                Place(f"{words} region's {what}", at, at + COVERED_HEADER),
                Place(f"{words} region's {what}, reserved part", at + COVERED_HEADER, at + BLOCK, detected=False),
            ]
        places += [
            # Both logs together still have what the pages had.
            Place(
                f"{words} region's checkpoint", start + BLOCK, start + BLOCK + header.checkpoint_bytes, detected=current
            ),
        ]
        if not current:
            places.append(Place("older region's log", start + header.log_block * BLOCK, end, detected=False))
    used: list[tuple[int, int]] = []
    for index, (start, end, path) in enumerate(batches):
        last = index == len(batches) - 1
        # A batch's first frame is where damage is sure to be in its bytes; zeros fill its last block.
        filled = start + len(device.contents[start:end].rstrip(b"\0"))
        kind = "log's last batch" if last else "log's first batch" if index == 0 else "log's middle"
        places.append(Place(kind, start, filled - 8, frozenset({path}), not last, older=True))
        places.append(Place("padding of a batch", -(-filled // 8) * 8 + 8, end, detected=False))
    region_end = (sb.regions[store.ledger.region] + sb.header_copy) * BLOCK
    places.append(Place("behind the log", batches[-1][1], region_end, detected=False))
    for oid in store.census.objects():
        attributes = store.attributes(oid)
        if attributes.kind is not Kind.FILE:
            continue
        paths = frozenset(store.path_of(parent) + b"/" + name for parent, name in store.names_of(oid))
        for extent in store.content.extents_of(oid):
            start, end = extent.block * BLOCK, (extent.block + extent.count) * BLOCK
            used.append((start, end))
            stop = start + min(end - start, attributes.size - extent.logical * BLOCK)
            places.append(Place("granule", start, stop, paths, position=extent.logical * BLOCK))
            if stop < end:
                places.append(Place("padding of a granule", stop, end, detected=False))
    for block, count in store.ledger.space.allocator.free_runs():
        places.append(Place("free space", block * BLOCK, (block + count) * BLOCK, detected=False))
    return [place for place in places if place.start < place.end]


def _uncovered(device: RecordingDevice, superblock: Superblock, number: int) -> set[int]:
    """The reserved bytes of a region's frames, and the zeros behind their payloads."""
    reader = RegionReader(device, superblock, number)
    header = read_headers(device, superblock, number).header
    assert header is not None
    frames = [frame for _, frame in reader.pages(header)] + list(LogScan(reader, header))
    bare: set[int] = set()
    for frame in frames:
        assert frame is not None
        start = reader.start + frame.end - padded(len(frame.payload))
        bare.update(range(start + 20, start + HEADER_BYTES))
        bare.update(range(start + HEADER_BYTES + len(frame.payload), reader.start + frame.end))
    return bare


# --- kinds of damage --------------------------------------------------------------------------------------------------


def flip(victim: Victim, place: Place, chance: random.Random) -> Patches:
    """One bit."""
    at = chance.randrange(place.start, place.end)
    return [(at, bytes([victim.image[at] ^ 1 << chance.randrange(8)]))]


def garbage(victim: Victim, place: Place, chance: random.Random) -> Patches:
    """A sector of noise, as far as it lies in the place."""
    at = max(place.start, chance.randrange(place.start, place.end) // 512 * 512)
    return [(at, chance.randbytes(min(512, place.end - at)))]


def zeros(victim: Victim, place: Place, chance: random.Random) -> Patches:
    """The whole place."""
    return [(place.start, bytes(place.end - place.start))]


def stale(victim: Victim, place: Place, chance: random.Random) -> Patches:
    """A write that never arrived: what was there before."""
    return [(place.start, victim.former[place.start : place.end])]


def misdirected(victim: Victim, place: Place, chance: random.Random) -> Patches:
    """A write of another object's granule that landed here."""
    source = chance.choice([other for other in victim.places if other.kind == "granule"])
    length = min(place.end - place.start, source.end - source.start)
    return [(place.start, victim.image[source.start : source.start + length])]


Damage = Callable[[Victim, Place, random.Random], Patches]
KINDS: tuple[Damage, ...] = (flip, garbage, zeros, stale, misdirected)


def lands(victim: Victim, patches: Patches) -> bool:
    """Whether anything differs afterwards."""
    return any(victim.image[at : at + len(data)] != data for at, data in patches)


# --- what must be -----------------------------------------------------------------------------------------------------


def judge(victim: Victim, place: Place, patches: Patches, chance: random.Random, *, whole_truth: bool = True) -> None:
    """Mount what is left, read everything, run fsck, repair, run fsck again. Raises AssertionError where a promise is
    broken. whole_truth: the damage is of a kind that fsck is sure to see (a stale record isn't, nor one that ends)."""
    damaged = OverlayDevice(victim.image, patches)
    report = check(damaged, data=True)
    assert not damaged.wrote, "fsck writes"
    if whole_truth:
        assert report.clean is not place.detected, f"fsck says {report.problems or 'clean'}"
    medium = OverlayDevice(victim.image, patches)
    store = workloads.open_store(medium)
    assert store.state in ("ok", "degraded"), f"the store comes up {store.state}: {store.state_reason}"
    in_metadata = place.kind not in ("granule", "padding of a granule", "free space")
    if not in_metadata or (whole_truth and not place.detected):
        assert store.state == "ok", f"the store comes up degraded: {store.state_reason}"
    elif whole_truth:
        assert store.state == "degraded", "nobody is told of the damage"
    _read_all(victim, store, place, chance)
    snapshots.check_space(store)
    again = workloads.open_store(OverlayDevice(medium.materialise(), []))
    if "superblock" not in place.kind:
        assert again.state == "ok", f"the next mount is {again.state}: {again.state_reason}"

    mended = OverlayDevice(victim.image, patches)
    done = repair(mended, data=True)
    if whole_truth:
        assert bool(done) is place.detected, f"repair did {done}"
    report = check(mended, data=True)
    assert report.clean, f"after the repair fsck finds {report.problems}"
    assert not repair(mended, data=True), "a second repair finds something to do"
    _read_all(victim, workloads.open_store(mended), place, chance, repaired=True)


def _read_all(victim: Victim, store: Store, place: Place, chance: random.Random, *, repaired: bool = False) -> None:
    session = Session(store, chance)
    for path, latest in victim.latest.items():
        mine = place.touches is ANY or path in place.touches
        oid = session.find(path)
        if oid is None:
            assert mine, f"{path!r} is gone, and the damage was elsewhere"
            assert place.older or repaired, f"{path!r} is gone, though its record is whole"
            continue
        allowed = victim.versions[path] if mine and place.older else {latest}
        try:
            found = b"".join(_reads(store, oid, chance))
        except (ChecksumMismatch, UnreadableGranule):
            assert mine, f"{path!r} is refused, and the damage was elsewhere"
            assert not repaired, f"{path!r} is refused after the repair"
            continue
        assert found in allowed, f"{path!r} reads as something that it never was"
        if mine and place.kind == "granule" and place.detected:
            raise AssertionError(f"damage to {path!r} isn't noticed")


def _reads(store: Store, oid: int, chance: random.Random) -> Iterator[bytes]:
    """The object's bytes, in reads of one size or another."""
    pin = store.pin(oid)
    step = chance.choice((1 << 20, 1 << 17, 70_001, 4096))
    try:
        for at in range(0, pin.size, step):
            yield bytes(store.read(pin, at, step))
        for _ in range(3 if pin.size else 0):
            at = chance.randrange(pin.size)
            assert len(store.read(pin, at, 1)) == 1
    finally:
        pin.release()
