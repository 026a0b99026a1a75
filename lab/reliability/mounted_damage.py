"""Damage under a real mount: many places of one medium, met in every way in which clients read."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from hcfs.device import MemoryDevice
from hcfs.store.check import check
from hcfs.store.repair import repair
from lab.harness import places
from lab.harness.actors import Actor, errno_of, load_direct, put
from lab.harness.mounts import Mount
from lab.reliability import damage, workloads
from lab.reliability.damage import ANY, Place, Victim
from lab.reliability.overlay import Patches
from lab.torture.calls import read_fd

WAYS = ("read", "pieces", "one byte", "mmap", "direct", "sendfile", "copy")
GRANULES = (64 << 10, 256 << 10, 1 << 20)
SIZES = (1, 4095, 4096, 9000, 65_536, 65_537, 150_000, 262_144, 262_145, 400_001)
LARGE = 1_300_000
VICTIMS = 6
"""stores with other histories; granules in turn"""
OBJECTS = 300
HURT = 150
"""objects of a case that are damaged"""
HARMLESS = frozenset(
    ["padding of a batch", "padding of a granule", "free space", "behind the log", "reserved part of a frame"]
)
"""and what is named a reserved part"""


@lru_cache(maxsize=2)
def victim(number: int) -> Victim:
    """A store of 64 MiB with some 320 files."""
    chance = random.Random(f"mounted victim {number}")
    granule = GRANULES[number % len(GRANULES)]
    base = workloads.base_image(size=64 << 20, granule=granule, max_objects=800)
    return damage.make_victim(number, base=base, more=[*chance.choices(SIZES, k=OBJECTS), LARGE, LARGE])


@dataclass(slots=True)
class Plan:
    """What is done to the medium before it is mounted, and what may be seen of it."""

    patches: Patches = field(default_factory=list)
    hurt: dict[bytes, int] = field(default_factory=dict)
    """by path, the position in the object of a byte that isn't what it was"""
    objects: int = 0
    """how many objects are hurt; some have two paths"""
    touched: frozenset[bytes] | None = frozenset()
    """paths that may be older, absent or refused; ANY for all"""
    superblock: bool = False
    state: str | None = "ok"
    """what the mount must say; None where that can't be told"""
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, place: Place, patches: Patches) -> None:
        self.patches += patches
        self.counts["damages"] += 1
        self.counts["flips"] += name == "flip"
        self.counts[name] += 1
        self.counts[f"in {place.kind}"] += 1

    def may_differ(self, path: bytes) -> bool:
        return self.touched is ANY or path in self.touched


def harmless(place: Place) -> bool:
    return place.kind in HARMLESS or "reserved part" in place.kind


def draw(victim: Victim, chance: random.Random, number: int) -> Plan:
    """Damage for one mount: in the metadata in one place beside a superblock, in many objects, and where nobody looks.

    Every eighth time a whole region is lost, and nothing else."""
    plan = Plan()
    if number % 8 == 7:
        _lose_region(victim, plan, chance)
        return plan
    if chance.random() < 0.3:
        _spoil(victim, plan, chance.choice([each for each in victim.places if "superblock" in each.kind]), chance)
        plan.superblock = True
    kinds = victim.by_kind()
    idle = sorted(kind for kind, (place, *_) in kinds.items() if harmless(place))
    critical = sorted(kinds.keys() - {*idle, "granule", "first superblock", "last superblock"})
    # In turn, so that each kind of place has its share.
    place = chance.choice(kinds[critical[number % len(critical)]])
    _spoil(victim, plan, place, chance)
    plan.touched = place.touches
    for _ in range(12):
        place = chance.choice(kinds[chance.choice(idle)])
        plan.add("flip", place, damage.flip(victim, place, chance))
    _hurt_objects(victim, plan, chance)
    return plan


def _spoil(victim: Victim, plan: Plan, place: Place, chance: random.Random) -> None:
    """One metadata place: some bits flipped, or one of the other kinds of damage."""
    kind = chance.choice([damage.flip, damage.flip, damage.flip, *damage.KINDS[1:]])
    before = len(plan.patches)
    known, at = False, set()
    for _ in range(chance.randrange(1, 4) if kind is damage.flip else 1):
        patches = kind(victim, place, chance)
        # Two flips of one byte would be one damage, or none.
        if damage.lands(victim, patches) and patches[0][0] not in at:
            at.add(patches[0][0])
            plan.add(kind.__name__, place, patches)
            known |= victim.place_of(place, patches).detected
    if len(plan.patches) == before:
        return
    if kind is damage.stale:
        # An older copy of a header, or a batch that isn't there yet, is what a crash leaves too.
        plan.state = None
    elif known and plan.state is not None:
        plan.state = "degraded"


def _lose_region(victim: Victim, plan: Plan, chance: random.Random) -> None:
    which = chance.choice(["current", "older"])
    (start,) = [each.start for each in victim.places if each.kind == f"{which} region's header"]
    (end,) = [each.end for each in victim.places if each.kind == f"{which} region's copy of its header, reserved part"]
    place = Place(f"{which} region altogether", start, end, ANY if which == "current" else frozenset(), older=True)
    noise = chance.random() < 0.5
    patches = [(start, chance.randbytes(end - start))] if noise else damage.zeros(victim, place, chance)
    plan.add("garbage" if noise else "zeros", place, patches)
    plan.touched, plan.state = place.touches, "degraded"


def _hurt_objects(victim: Victim, plan: Plan, chance: random.Random) -> None:
    by_object: dict[frozenset[bytes], list[Place]] = {}
    for place in victim.by_kind()["granule"]:
        assert place.touches is not ANY
        if not any(map(plan.may_differ, place.touches)):
            by_object.setdefault(place.touches, []).append(place)
    for paths in chance.sample(sorted(by_object, key=sorted), min(HURT, len(by_object))):
        kind = chance.choice([damage.flip] * 7 + [*damage.KINDS[1:]])
        done: set[int] = set()
        for _ in range(chance.choice((1, 1, 2, 3)) if kind is damage.flip else 1):
            place = chance.choice(by_object[paths])
            patches = kind(victim, place, chance)
            position = _first_difference(victim, place, patches)
            if position is not None and position not in done:
                done.add(position)
                plan.add(kind.__name__, place, patches)
        if done:
            plan.objects += 1
            plan.hurt |= dict.fromkeys(paths, chance.choice(sorted(done)))


def _first_difference(victim: Victim, place: Place, patches: Patches) -> int | None:
    """Position in the object of the first byte of a granule's place that the patches change."""
    ((at, data),) = patches
    old = victim.image[at : at + len(data)]
    changed = next((index for index, byte in enumerate(data) if old[index] != byte), None)
    return None if changed is None else place.position + at - place.start + changed


class Reader:
    """Reads files as clients do. Mappings are read by another process, since damage there is SIGBUS."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._actor: Actor | None = None

    def read(self, path: Path, way: str, position: int, chance: random.Random) -> bytes | str:
        """What a client gets: bytes, one at `position` by "one byte"; or the errno's name, or SIGBUS."""
        if way == "mmap":
            return self._mapped(path)
        try:
            fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if way == "direct" else 0))
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        try:
            return os.pread(fd, 1, position) if way == "one byte" else read_fd(fd, chance, way)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        finally:
            os.close(fd)

    def _mapped(self, path: Path) -> bytes | str:
        if self._actor is None:
            self._actor = self._stack.enter_context(Actor())
        try:
            fd = self._actor.open(path, os.O_RDONLY)
            mapping = self._actor.map_file(fd, self._actor.fstat(fd).st_size)
            data = bytes(self._actor.map_read(mapping))
            self._actor.unmap(mapping)
            self._actor.close(fd)
        except EOFError:
            self._actor = None
            return "SIGBUS"
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return data


def judge(victim: Victim, plan: Plan, chance: random.Random) -> None:
    """Mount the damaged medium, read everything in every way, store what was lost again, unmount, check and repair.

    Raises AssertionError where a promise is broken; leaves nothing behind. Adds to the plan's counts."""
    with ExitStack() as stack:
        directory = stack.enter_context(places.Place.make("hcfs-damage-"))
        image = directory / "image"
        contents = bytearray(victim.image)
        for at, data in plan.patches:
            contents[at : at + len(data)] = data
        image.write_bytes(contents)
        # It warns of all that was done to its medium; an error or a traceback is a finding.
        mount = Mount(image, directory / "mnt", options="lookup_grace=0", allow_warnings=[r"\bWARNING\b"])
        stack.callback(mount.close)
        mount.mount()
        status = mount.status()
        assert status["state"] == (plan.state or status["state"]), f"the mount is {status['state']}, not {plan.state}"
        _read_all(victim, plan, mount, chance, Reader(stack))
        mount.umount()
        _check_and_repair(plan, image.read_bytes())


def _read_all(victim: Victim, plan: Plan, mount: Mount, chance: random.Random, reader: Reader) -> None:
    at_open = chance.random() < 0.25
    if at_open:
        os.setxattr(mount.dir / "kv", "user.hcfs.verify", b"open")
    paths = list(victim.latest)
    chance.shuffle(paths)
    gone: set[bytes] = set()
    for path in paths:
        file, data = mount.dir / os.fsdecode(path), victim.latest[path]
        for way in chance.sample(WAYS, 2):
            position = plan.hurt.get(path, chance.randrange(len(data)))
            found = reader.read(file, way, position, chance)
            shown = f"{path!r} of {len(data)} bytes, read by {way}"
            if path in plan.hurt:
                refused = ("ENOENT",) if at_open or path in gone else ("SIGBUS",) if way == "mmap" else ("EIO",)
                assert found in refused, f"{shown}, damaged at {position}: {found!r:.80}"
                assert errno_of(os.stat, file) == "ENOENT", f"{shown}: still there after damage was met"
                # Its other names are misses too.
                gone |= _same_object(victim, path)
            elif plan.may_differ(path):
                versions = victim.versions[path]
                right = {each[position : position + 1] for each in versions} if way == "one byte" else versions
                assert found in right or found in ("ENOENT", "EIO", "SIGBUS"), f"{shown}: {found!r:.80}"
            else:
                expected = data[position : position + 1] if way == "one byte" else data
                assert found == expected, f"{shown}, undamaged: {found!r:.80}"
            plan.counts[f"by {way}"] += 1
            plan.counts["refused"] += isinstance(found, str)
    if not plan.touched and plan.touched is not ANY:
        assert mount.status()["quarantined_objects"] == plan.objects
    for path in chance.sample(sorted(plan.hurt), min(5, len(plan.hurt))):
        put(mount.dir / os.fsdecode(path), victim.latest[path])
        assert load_direct(mount.dir / os.fsdecode(path)) == victim.latest[path], f"{path!r}, stored again"


def _same_object(victim: Victim, path: bytes) -> frozenset[bytes]:
    return next(
        place.touches
        for place in victim.places
        if place.kind == "granule" and place.touches is not ANY and path in place.touches
    )


def _check_and_repair(plan: Plan, contents: bytes) -> None:
    """All damage to objects was met, and the metadata mended: only a superblock is left to be repaired."""
    medium = MemoryDevice.holding(contents)
    problems = check(medium, data=True).problems
    left = [problem for problem in problems if problem.kind != "superblock" or not plan.superblock]
    if plan.touched is ANY or plan.touched:
        # Of objects that came back from before, not all were met.
        left = [problem for problem in left if problem.kind != "checksum"]
    assert not left, f"after the mount fsck finds {left}"
    repair(medium, data=True)
    problems = check(medium, data=True).problems
    assert not problems, f"after the repair fsck finds {problems}"
