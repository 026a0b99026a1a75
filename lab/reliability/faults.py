"""A device that fails, and what a store must be after it did."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from errno import EIO, ENOSPC
from typing import TYPE_CHECKING

from hcfs.device import DeviceError
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, Kind, Store
from hcfs.store.check import check
from hcfs.store.errors import ReadOnlyStore
from lab.reliability import crash, snapshots, workloads
from lab.reliability.crash import Done, Run
from lab.reliability.recording import Event, Flush, Mark, RecordingDevice, Write
from lab.reliability.workloads import Session, Step

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hcfs.device import BlockDevice
    from hcfs.device.protocol import IoMode

Hook = Callable[[str, int, int], None]
"""called as hook(operation, offset, length) before each read, write and flush; what it raises is the call's answer"""

EVER = 1 << 62


class Short(DeviceError):
    """A transfer that ends early: the first half is done."""


@dataclass
class Fault:
    """A hook that fails calls: those of `operation` that touch [start, end), from the `first` on, `times` of them."""

    operation: str
    start: int = 0
    end: int = EVER
    first: int = 1
    times: int = EVER
    kind: str = "EIO"
    """EIO, ENOSPC, short or stall"""
    seconds: float = 0.0
    """of a stall"""
    seen: int = 0
    failed: int = 0

    def __call__(self, operation: str, offset: int, length: int) -> None:
        inside = operation == "flush" or (offset < self.end and self.start < offset + length)
        if operation != self.operation or not inside:
            return
        self.seen += 1
        if self.seen < self.first or self.failed >= self.times:
            return
        self.failed += 1
        if self.kind == "stall":
            time.sleep(self.seconds)
        elif self.kind == "short":
            raise Short("faulty", operation, offset, length, reason="the transfer ended early")
        else:
            raise DeviceError("faulty", operation, offset, length, os_errno=EIO if self.kind == "EIO" else ENOSPC)


class Watched:
    """A device over another one, with hooks before each call."""

    def __init__(self, inner: BlockDevice, *hooks: Hook) -> None:
        self.inner = inner
        self.hooks = list(hooks)
        self.calls: list[tuple[str, int, int]] = []
        """(operation, offset, length) of every write and flush, as they began"""
        self.failures: list[int] = []
        """which of `calls` a hook failed"""

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def io(self) -> IoMode:
        return self.inner.io

    @property
    def read_only(self) -> bool:
        return self.inner.read_only

    def _tell(self, operation: str, offset: int, length: int) -> None:
        if operation != "read":
            self.calls.append((operation, offset, length))
        try:
            for hook in list(self.hooks):
                hook(operation, offset, length)
        except DeviceError:
            if operation != "read":
                self.failures.append(len(self.calls) - 1)
            raise

    def read_into(self, offset: int, buffer: memoryview) -> None:
        try:
            self._tell("read", offset, buffer.nbytes)
        except Short:
            half = buffer.nbytes // BLOCK // 2 * BLOCK
            self.inner.read_into(offset, buffer[:half])
            raise
        self.inner.read_into(offset, buffer)

    def write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        try:
            self._tell("write", offset, len(view))
        except Short:
            self._write_half(offset, view)
            raise
        self.inner.write(offset, view)

    def _write_half(self, offset: int, view: memoryview) -> None:
        """The first half, in sectors of 512 bytes."""
        half = len(view) // 2 // 512 * 512
        whole = memoryview(bytearray(len(view)))
        self.inner.read_into(offset, whole)
        whole[:half] = view[:half]
        self.inner.write(offset, whole)

    def flush(self) -> None:
        self._tell("flush", 0, 0)
        self.inner.flush()

    @property
    def takes_discard(self) -> bool:
        return self.inner.takes_discard

    def discard(self, offset: int, length: int) -> bool:
        return self.inner.discard(offset, length)

    def zero(self, offset: int, length: int) -> None:
        self._tell("write", offset, length)
        self.inner.zero(offset, length)

    def close(self) -> None:
        self.inner.close()


def run_with_fault(image: bytes, steps: Sequence[Step], seed: int, fault: Fault) -> bool:
    """Do the steps on a store whose device fails, then look at everything that is promised after it; False if the fault
    never fired. Raises AssertionError where a promise is broken."""
    inner = RecordingDevice.over(image)
    device = Watched(inner)
    store = workloads.open_store(device)
    session = Session(store, random.Random(seed))
    taken = [session.snapshot()]
    inner.mark(Done(0, durable=True))
    device.hooks.append(fault)
    for step in [*steps, crash.COMMIT]:
        visible, failed = len(taken) - 1, fault.failed
        done = session.do(str(step[0]), *step[1:])
        # The test's own look at the store isn't what is to fail.
        device.hooks.remove(fault)
        now = snapshots.take(store)
        if now != taken[-1]:
            taken.append(now)
            inner.mark(Done(len(taken) - 1, durable=False))
        device.hooks.append(fault)
        if step[0] in ("commit", "checkpoint") and done:
            inner.mark(Done(visible, durable=True))
        if fault.failed > failed and fault.kind != "stall":
            _judge(store, step, done, fault, device)
    device.hooks.remove(fault)
    if not fault.failed:
        return False
    if store.state == "read-only":
        _refuses_changes(store, device)
    try:
        store.close()
    except HcfsError:
        assert store.state == "read-only"
    _mounts_again(inner, taken, seed)
    return True


def _judge(store: Store, step: Step, done: bool, fault: Fault, device: Watched) -> None:
    """What must be so directly after a step in which something failed."""
    if fault.operation == "read":
        assert store.state == "ok", f"a failed read made the store {store.state}: {store.state_reason}"
        return
    data_start = store.superblock.data_start * BLOCK
    stopping = [at for at in device.failures if device.calls[at][0] == "flush" or device.calls[at][1] < data_start]
    if not stopping:
        assert store.state == "ok", f"a failed write of data made the store {store.state}: {store.state_reason}"
        assert not done, f"{step[0]} succeeded, although its data couldn't be written"
        return
    assert store.state == "read-only", f"after a failed {fault.operation} the store is {store.state}"
    assert not done, f"{step[0]} succeeded, although it couldn't be made durable"
    after = device.calls[stopping[0] + 1 :]
    assert not after, f"after the failure the store went on with {after}"


def _refuses_changes(store: Store, device: Watched) -> None:
    """Fail-stop: reads go on, nothing is written or flushed any more, nothing is acknowledged."""
    calls = len(device.calls)
    for change in (
        store.commit,
        store.checkpoint,
        lambda: store.mkdir(1, b"late", 0o755, 0, 0),
        lambda: store.stage(None, namespace=1, mode=0, uid=0, gid=0),
    ):
        try:
            change()
        except ReadOnlyStore as error:
            answer = str(error)
        else:
            answer = "done"
        assert store.state_reason in answer, f"a store that had to stop answers a change with: {answer}"
    for oid in list(store.census.objects()):
        if store.attributes(oid).kind is Kind.FILE:
            snapshots.read_all(store, oid)
    assert len(device.calls) == calls, f"a store that had to stop goes on with {device.calls[calls:]}"


def _mounts_again(inner: RecordingDevice, taken: list[snapshots.Snapshot], seed: int) -> None:
    """The medium without the fault: a state between what was acknowledged and what was done, in every order in which
    the last writes may have arrived."""
    last_flush = max((n for n, event in enumerate(inner.journal) if isinstance(event, Flush)), default=-1)
    marks = [event.value for event in inner.journal if isinstance(event, Mark)]
    low = max(mark.state for mark in marks if isinstance(mark, Done) and mark.durable)
    device = RecordingDevice.over(inner.contents)
    store = workloads.open_store(device)
    assert store.state == "ok", f"the store comes up {store.state}: {store.state_reason}"
    found = snapshots.take(store)
    assert found in taken[low:], "the state is none that the store had:\n" + taken[-1].difference(found)
    snapshots.check_space(store)
    report = check(device, data=True)
    assert report.clean, f"fsck finds {report.problems}"
    outstanding = [event for event in inner.journal[last_flush + 1 :] if isinstance(event, Write)]
    medium = bytearray(inner.initial)
    for event in inner.journal[: last_flush + 1]:
        if isinstance(event, Write):
            medium[event.offset : event.offset + len(event.data)] = event.data
    rest = [Done(low, durable=True), Done(len(taken) - 1, durable=False)]
    journal: list[Event] = [*map(Mark, rest), *outstanding]
    crash.explore(Run(bytes(medium), journal, taken, 0, 0), random.Random(seed), 8, thorough=0)
