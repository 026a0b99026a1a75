"""Legal states after a crash, and what a store must be in each of them.

Between two flushes any subset of the outstanding writes may have reached the medium, each of them possibly torn at 512
bytes (docs/format.md, "Assumptions about the medium"). The model is the one of ALICE (Pillai et al., OSDI 2014) and
CrashMonkey (Mohan et al., OSDI 2018).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hcfs.store import BLOCK, read_superblock
from hcfs.store.check import check
from lab.reliability import snapshots, workloads
from lab.reliability.overlay import OverlayDevice, Patches
from lab.reliability.recording import Epoch, Event, RecordingDevice, Write, epochs
from lab.reliability.snapshots import Snapshot
from lab.reliability.workloads import Session, Step

SECTOR = 512
COMMIT: Step = ("commit",)
EXHAUSTIVE = 10
"""outstanding writes up to which every subset is tried"""

TEARS = 6
"""ways to tear each write that are tried with all, none and some of the others"""


class CrashFinding(AssertionError):
    """A crash state in which a promise is broken."""


def torn(write: Write, chance: random.Random, way: int) -> Patches:
    """Some of a write's sectors: a prefix, a suffix, all but one, one, or any."""
    sectors = len(write.data) // SECTOR
    if way == 0:
        chosen = set(range(chance.randrange(1, sectors)))
    elif way == 1:
        chosen = set(range(chance.randrange(1, sectors), sectors))
    elif way == 2:
        chosen = set(range(sectors)) - {chance.randrange(sectors)}
    elif way == 3:
        chosen = {chance.randrange(sectors)}
    else:
        chosen = {sector for sector in range(sectors) if chance.random() < 0.5}
    patches: Patches = []
    for sector in sorted(chosen):
        at = sector * SECTOR
        if patches and patches[-1][0] + len(patches[-1][1]) == write.offset + at:
            patches[-1] = (patches[-1][0], patches[-1][1] + write.data[at : at + SECTOR])
        else:
            patches.append((write.offset + at, write.data[at : at + SECTOR]))
    return patches


def states(writes: Sequence[Write], chance: random.Random, budget: int) -> Iterator[Patches]:
    """Some `budget` states that a crash can leave of outstanding writes: all subsets of whole writes where there are
    few, a sample where there are many, then torn ones, a third of the budget at least. No two are the same."""
    count = len(writes)
    seen: set[tuple[tuple[int, bytes], ...]] = set()

    def new(patches: Patches) -> bool:
        key = tuple(patches)
        if key in seen:
            return False
        seen.add(key)
        return True

    def subset(chosen: int) -> Patches:
        return [(write.offset, write.data) for index, write in enumerate(writes) if chosen >> index & 1]

    whole = (1 << count) - 1
    if count <= EXHAUSTIVE:
        subsets: Iterator[int] = iter(range(1 << count))
    else:
        prefixes = [(1 << length) - 1 for length in range(count + 1)]
        lonely = [1 << index for index in range(count)] + [whole ^ 1 << index for index in range(count)]
        some = (chance.getrandbits(count) for _ in range(budget))
        subsets = iter([*prefixes, *lonely, *some])
    left = budget
    for chosen in subsets:
        if left <= budget // 3 and count > EXHAUSTIVE:
            break
        patches = subset(chosen)
        if new(patches):
            yield patches
            left -= 1
    left = max(left, budget // 3)
    order = [(index, way) for index in range(count) for way in range(TEARS)]
    chance.shuffle(order)
    for index, way in order:
        for others in (0, whole, chance.getrandbits(count)):
            if left <= 0:
                return
            before = subset(others & ((1 << index) - 1))
            behind = subset(others & ~((2 << index) - 1))
            patches = before + torn(writes[index], chance, way) + behind
            if new(patches):
                yield patches
                left -= 1


@dataclass(slots=True)
class Done:
    """Marks in the journal: the state's number, and whether it is known to be durable."""

    state: int
    durable: bool


@dataclass(slots=True)
class Tally:
    """What a campaign did."""

    runs: int = 0
    epochs: int = 0
    states: int = 0
    recoveries_that_wrote: int = 0
    second_lives: int = 0
    most_outstanding: int = 0
    checkpoints: int = 0
    refused_steps: int = 0

    def add(self, other: Tally) -> None:
        for name in self.__slots__:
            mine, others = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, others) if name == "most_outstanding" else mine + others)


@dataclass(slots=True)
class Run:
    """A recorded run: what the device saw, and every state that the store had."""

    image: bytes
    journal: list[Event]
    snapshots: list[Snapshot]
    refused: int
    """steps that the store refused"""
    checkpoints: int


def record(image: bytes, steps: Sequence[Step], seed: int, *, meanwhile: Sequence[Step] = ()) -> Run:
    """Do the steps on a store that starts as `image`, then commit. Every step is one transaction at most.

    meanwhile: steps done in the middle of others, before some of the device's writes, as other threads would; not
    commits or checkpoints, which wait for each other."""
    device = RecordingDevice.over(image)
    session = Session(workloads.open_store(device), random.Random(seed))
    taken = [session.snapshot()]
    device.mark(Done(0, durable=True))
    refused = 0

    def do(step: Step) -> None:
        nonlocal refused
        refused += not session.do(str(step[0]), *step[1:])
        now = session.snapshot()
        if now != taken[-1]:
            taken.append(now)
            device.mark(Done(len(taken) - 1, durable=False))

    others = iter(meanwhile)
    chance = random.Random(seed)

    def interrupt() -> None:
        if chance.random() < 0.5:
            return
        device.before_write = None
        for step in itertools.islice(others, 1):
            do(step)
        device.before_write = interrupt

    device.before_write = interrupt
    for step in [*steps, COMMIT]:
        visible = len(taken) - 1
        do(step)
        if step[0] in ("commit", "checkpoint"):
            device.mark(Done(visible, durable=True))
    return Run(image, device.journal, taken, refused, session.store.counters.checkpoints)


def explore(run: Run, chance: random.Random, budget: int, *, thorough: float = 0.02, lives: int = 0) -> Tally:
    """Recover every state that a crash of the run can leave, `budget` an epoch, and check it. Raises CrashFinding.

    thorough: part of the states that are also checked by fsck and written to again. lives: so many states, chosen at
    random, are lived on in: a further run on each, explored as well."""
    tally = Tally(runs=1, checkpoints=run.checkpoints, refused_steps=run.refused)
    medium = bytearray(run.image)
    heirs: list[bytes] = []
    for epoch in epochs(run.journal):
        low, high = _bounds(epoch)
        allowed = run.snapshots[low : high + 1]
        tally.epochs += 1
        tally.most_outstanding = max(tally.most_outstanding, len(epoch.writes))
        for patches in states(epoch.writes, chance, budget):
            tally.states += 1
            device = OverlayDevice(medium, patches)
            try:
                # A life begins with a recovery, and nothing is acknowledged before that has ended.
                begun = bool(epoch.marks_before or epoch.marks_within)
                _check(device, allowed, chance, tally, thorough=chance.random() < thorough, acknowledged=begun)
            except Exception as error:
                where = [(offset, len(data)) for offset, data in patches]
                raise CrashFinding(f"epoch {epoch.number}, of the outstanding writes only {where}: {error}") from error
            if lives and chance.random() < 0.01:
                heirs.append(OverlayDevice(medium, patches).materialise())
        for write in epoch.writes:
            medium[write.offset : write.offset + len(write.data)] = write.data
    chance.shuffle(heirs)
    for heir in heirs[:lives]:
        tally.second_lives += 1
        steps = workloads.random_steps(chance, 12)
        again = record(heir, steps, chance.getrandbits(32), meanwhile=workloads.other_steps(chance, 4))
        tally.add(explore(again, chance, budget, thorough=thorough, lives=lives - 1))
    return tally


def _bounds(epoch: Epoch) -> tuple[int, int]:
    """Numbers of the oldest and the newest state that a crash at the epoch's end may leave. What was acknowledged
    within the epoch must be there too, whatever became of the writes that are outstanding."""
    marks = [mark for mark in (*epoch.marks_before, *epoch.marks_within) if isinstance(mark, Done)]
    low = max((mark.state for mark in marks if mark.durable), default=0)
    return low, max((mark.state for mark in marks), default=0)


def _check(
    device: OverlayDevice,
    allowed: Sequence[Snapshot],
    chance: random.Random,
    tally: Tally,
    *,
    thorough: bool,
    acknowledged: bool,
) -> None:
    if thorough and acknowledged:
        _check_header(device, allowed, chance)
    store = workloads.open_store(device)
    assert store.state == "ok", f"the store comes up {store.state}: {store.state_reason}"
    found = snapshots.take(store)
    assert found in allowed, "the state is none that the store had:\n" + allowed[-1].difference(found)
    snapshots.check_space(store)
    if device.wrote:
        tally.recoveries_that_wrote += 1
        again = workloads.open_store(OverlayDevice(device.materialise(), []))
        assert snapshots.take(again) == found, "a second recovery changes the state"
    if not thorough:
        return
    report = check(device, data=True)
    assert report.clean, f"fsck finds {report.problems}"
    session = Session(store, chance)
    session.do("write", b"kv/fresh", 5000)
    session.do("commit")
    expected = session.snapshot()
    again = workloads.open_store(device)
    assert again.state == "ok", f"after a commit the store comes up {again.state}: {again.state_reason}"
    assert snapshots.take(again) == expected, "what was committed after the crash isn't there at the next mount"
    _check_header(device, [expected], chance)


def _check_header(device: OverlayDevice, allowed: Sequence[Snapshot], chance: random.Random) -> None:
    """One of the regions' headers, or a copy of one, is damaged as well: that costs nothing."""
    sb = read_superblock(device)
    medium = device.materialise()
    block = chance.choice(sb.regions) + chance.choice((0, sb.header_copy))
    at = block * BLOCK + 30
    store = workloads.open_store(OverlayDevice(medium, [(at, bytes([medium[at] ^ 1]))]))
    assert store.state == "degraded", f"with block {block} damaged the store comes up {store.state}"
    found = snapshots.take(store)
    assert found in allowed, f"damage to block {block} costs something:\n" + allowed[-1].difference(found)
