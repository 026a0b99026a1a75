"""The machine over the store in memory, in one thread, so that one seed is one schedule."""

from __future__ import annotations

import stat
from errno import EIO
from pathlib import PurePosixPath

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model.machine import EXAMPLES, READERS, STEPS, WRITTEN, Target, TreeMachine, content, numbers, picks
from model.tree import NAMESPACES, Seen
from store.rig import check_space, get, new_device, recover

from hcfs.device import DeviceError, MemoryDevice
from hcfs.errors import HcfsError
from hcfs.store import ROOT_ID, Kind, Pin, Staged
from hcfs.store.check import check
from hcfs.store.errors import NoSuchName, ReadOnlyStore, UnreadableGranule

QUARANTINED = 4
"""Damaged objects that are kept before the oldest is purged: the device is small."""


class Failing(MemoryDevice):
    """A device whose next call of a kind fails, once."""

    failing = ""

    def fail(self, operation: str) -> bool:
        """Whether the call that was to fail came; sets the next one that is to."""
        came, self.failing = not self.failing, operation
        return came

    def _check(self, operation: str, offset: int, length: int) -> None:
        super()._check(operation, offset, length)
        if operation == self.failing:
            self.failing = ""
            raise DeviceError(self.name, operation, offset, length, os_errno=EIO)


class StoreTarget:
    """Calls on a store, by path."""

    def __init__(self) -> None:
        self.device = Failing.holding(new_device(16 << 20, max_objects=128).contents)
        self.store = recover(self.device)
        self.staged: dict[int, tuple[Staged, int, bytes]] = {}
        self.pins: dict[int, Pin] = {}
        for name in NAMESPACES:
            self.store.mkdir(ROOT_ID, name.encode(), 0o755, 0, 0)

    # --- paths --------------------------------------------------------------------------------------------------------

    def place(self, path: str) -> tuple[int, bytes]:
        """Directory's id and name."""
        *directories, name = PurePosixPath(path).parts
        parent = ROOT_ID
        for directory in directories:
            found = self.store.lookup(parent, directory.encode())
            if found is None:
                raise NoSuchName(directory)
            parent = found
        return parent, name.encode()

    def oid(self, path: str) -> int:
        found = self.store.lookup(*self.place(path))
        if found is None:
            raise NoSuchName(path)
        return found

    def tree(self) -> dict[str, Seen]:
        seen: dict[str, tuple[str, int, bytes, tuple[tuple[str, bytes], ...], int, int]] = {}

        def walk(directory: int, prefix: str) -> None:
            for name, oid in self.store.list_directory(directory):
                path, a = prefix + name.decode(), self.store.attributes(oid)
                names = self.store.list_xattrs(oid)
                xattrs = tuple(sorted((key.decode(), self.store.get_xattr(oid, key) or b"") for key in names))
                data = get(self.store, oid) if a.kind is Kind.FILE else b""
                if a.kind is Kind.SYMLINK:
                    data = self.store.readlink(oid)
                kind = {Kind.FILE: "f", Kind.DIRECTORY: "d", Kind.SYMLINK: "l"}[a.kind]
                seen[path] = (kind, stat.S_IMODE(a.mode), data, xattrs, oid, a.nlink)
                if a.kind is Kind.DIRECTORY:
                    walk(oid, path + "/")

        walk(ROOT_ID, "")
        groups: dict[int, set[str]] = {}
        for path, one in seen.items():
            groups.setdefault(one[4], set()).add(path)
        return {path: (*one[:4], frozenset(groups[one[4]]), one[5]) for path, one in seen.items()}

    # --- calls --------------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes) -> None:
        parent, name = self.place(path)
        staged = self.store.stage(None, namespace=self.store.namespace_of(parent), mode=0o644, uid=0, gid=0)
        try:
            staged.write(0, data)
            staged.seal()
            self.store.publish(staged, parent, name)
        except BaseException:
            staged.abandon()
            raise

    def mkdir(self, path: str) -> None:
        self.store.mkdir(*self.place(path), 0o755, 0, 0)

    def rmdir(self, path: str) -> None:
        self.store.rmdir(*self.place(path))

    def unlink(self, path: str) -> None:
        self.store.unlink(*self.place(path))

    def rename(self, old: str, new: str) -> None:
        self.store.rename(*self.place(old), *self.place(new))

    def link(self, old: str, new: str) -> None:
        self.store.link(self.oid(old), *self.place(new))

    def symlink(self, target: bytes, path: str) -> None:
        parent, name = self.place(path)
        self.store.symlink(parent, name, target, 0, 0)

    def chmod(self, path: str, mode: int) -> None:
        self.store.set_attributes(self.oid(path), mode=mode)

    def set_xattr(self, path: str, name: str, value: bytes) -> None:
        self.store.set_xattr(self.oid(path), name.encode(), value)

    def remove_xattr(self, path: str, name: str) -> None:
        self.store.remove_xattr(self.oid(path), name.encode())

    # --- writers and readers ------------------------------------------------------------------------------------------

    def begin(self, who: int, path: str, truncate: bool) -> None:
        parent, name = self.place(path)
        base = self.store.lookup(parent, name)
        namespace = self.store.namespace_of(parent)
        staged = self.store.stage(base, namespace=namespace, mode=0o644, uid=0, gid=0)
        if truncate and staged.size:
            staged.truncate(0)
        self.staged[who] = (staged, parent, name)

    def write(self, who: int, offset: int, data: bytes) -> None:
        assert self.staged[who][0].write(offset, data) == len(data)

    def truncate(self, who: int, size: int) -> None:
        self.staged[who][0].truncate(size)

    def finish(self, who: int, modified: bool) -> None:
        staged, parent, name = self.staged.pop(who)
        if not modified:
            staged.abandon()
            return
        staged.seal()
        self.store.publish(staged, parent, name)

    def abandon(self, who: int) -> None:
        self.staged.pop(who)[0].abandon()

    def hold(self, number: int, path: str) -> None:
        self.pins[number] = self.store.pin(self.oid(path))

    def read_held(self, number: int) -> bytes:
        pin = self.pins[number]
        return b"".join(bytes(self.store.read(pin, at, 50_000)) for at in range(0, pin.size, 50_000))

    def release(self, number: int) -> None:
        self.pins.pop(number).release()

    # --- durability ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        self.store.commit()

    def crash(self) -> None:
        """What is on the device now, and nothing of what is in memory."""
        self._again(Failing.holding(self.device.contents))

    def remount(self) -> None:
        for staged, _, _ in self.staged.values():
            staged.abandon()
        for pin in self.pins.values():
            pin.release()
        contents = self.device
        self.store.close()
        self._again(Failing.holding(contents.contents))

    def _again(self, device: Failing) -> None:
        self.device = device
        self.staged.clear()
        self.pins.clear()
        self.store = recover(device)
        assert self.store.state == "ok"
        assert self.store.usage().staged_objects == 0

    def check(self) -> None:
        check_space(self.store, *(staged for staged, _, _ in self.staged.values()))
        assert self.store.usage().staged_objects == len(self.staged)

    def close(self) -> None:
        self.store.commit()
        report = check(self.device, data=True)
        assert report.clean, report.problems


class StoreMachine(TreeMachine):
    """What only the store can be asked for: eviction, quarantine, checkpoints; and a device that fails once."""

    target: StoreTarget

    def make_target(self) -> Target:
        return StoreTarget()

    @rule()
    def checkpoint(self) -> None:
        self.target.store.checkpoint()
        self.states = [self.model.seen()]

    @rule(pick=picks)
    def evict(self, pick: int) -> None:
        """Not what somebody has open, or goes on from."""
        path = self.some(pick, "f")
        node = self.model.nodes.get(path)
        if node is None or node.kind != "f":
            return
        oid = self.target.oid(path)
        pinned = self.target.store.retention.pinned(oid)
        names = self.target.store.evict(oid)
        assert (names is None) == pinned
        if names is not None:
            assert len(names) == len(self.model.names_of(node))
            self.model.drop(node)

    @rule(pick=picks)
    def quarantine(self, pick: int) -> None:
        """A miss for everybody; who has it open goes on reading what verifies."""
        path = self.some(pick, "f")
        node = self.model.nodes.get(path)
        if node is None or node.kind != "f":
            return
        names = self.target.store.quarantine(self.target.oid(path), "the model says so")
        assert len(names) == len(self.model.names_of(node))
        self.model.drop(node)
        kept = self.target.store.removals.quarantined()
        if len(kept) > QUARANTINED:
            self.target.store.removals.purge(kept[0].id)

    @rule(path=st.sampled_from(WRITTEN), number=numbers)
    def failed_store(self, path: str, number: int) -> None:
        """Its first bytes don't reach the medium: there is what there was."""
        node = self.model.nodes.get(path)
        if node is not None and node.kind != "f":
            return
        self.target.device.fail("write")
        with pytest.raises(DeviceError):
            self.target.put(path, content(number, 100_000))
        assert self.target.device.fail("")

    @rule(number=st.integers(0, READERS - 1))
    def failed_read(self, number: int) -> None:
        """It says so, and the next one finds the bytes."""
        if number not in self.held:
            return
        self.target.device.fail("read")
        try:
            data = self.target.read_held(number)
        except UnreadableGranule:
            data = self.target.read_held(number)
        self.target.device.fail("")
        assert data == self.held[number].data

    @rule()
    def failed_flush(self) -> None:
        """The end of changes: nothing can be committed any more, and what was acknowledged is there at the next
        mount."""
        self.target.store.set_attributes(ROOT_ID, mode=0o755)
        self.target.device.fail("flush")
        with pytest.raises(HcfsError):
            self.target.sync()
        assert self.target.device.fail("")
        assert self.target.store.state == "read-only"
        with pytest.raises(ReadOnlyStore):
            self.target.mkdir("kv/never")
        self.crash()

    @rule()
    def two_crashes(self) -> None:
        """A crash right after a recovery, before anything was done, changes nothing."""
        self.crash()
        found = self.target.tree()
        self.target.crash()
        assert self.target.tree() == found


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(max_examples=EXAMPLES or 40, stateful_step_count=STEPS, deadline=None)
