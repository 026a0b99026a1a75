"""Operations on a small store, each one transaction, and the runs made of them that the campaigns crash, fail and
damage.

The tree is always the same: two files in two directories of one namespace, an empty directory beside them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from hcfs.device import BufferPool, MemoryDevice
from hcfs.errors import HcfsError
from hcfs.store import ROOT_ID, Kind, Store, UnrecoveredStore, format_device
from lab.reliability import snapshots
from lab.reliability.snapshots import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcfs.device import BlockDevice

SIZE = 8 << 20
GRANULE = 64 << 10
STORE_UUID = UUID("6d0c1f0e-3f0a-4b2e-9d3c-8a1b2c3d4e5f")
FILES = (b"kv/d1/a", b"kv/d2/b")


def open_store(device: BlockDevice) -> Store:
    """Recover a store with a pool of its own."""
    return UnrecoveredStore.open(device, BufferPool(4 << 20)).recover()


def base_image(*, size: int = SIZE, granule: int = GRANULE, max_objects: int = 64) -> bytes:
    """A store with the two files and their directories, all durable."""
    device = MemoryDevice(size)
    format_device(device, granule=granule, max_objects=max_objects, uuid=STORE_UUID)
    session = Session(open_store(device), random.Random(0))
    session.store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)
    for name in (b"d1", b"d2", b"d1/e"):
        session.mkdir(b"kv/" + name)
    for path in FILES:
        session.write(path, 9000)
    session.store.close()
    return bytes(device.contents)


@dataclass(slots=True)
class Session:
    """A store in use, with its own idea of what each file holds."""

    store: Store
    random: random.Random
    content: dict[int, bytes] = field(default_factory=dict)
    """by object id, as it was written"""

    # --- paths -----------------------------------------------------------------------------------------------------

    def find(self, path: bytes) -> int | None:
        oid: int | None = ROOT_ID
        for name in path.split(b"/") if path else ():
            assert oid is not None
            if self.store.attributes(oid).kind is not Kind.DIRECTORY:
                return None
            oid = self.store.lookup(oid, name)
            if oid is None:
                return None
        return oid

    def place(self, path: bytes) -> tuple[int, bytes]:
        """(directory's id, last name); FileNotFoundError where there is no such directory."""
        directory, _, name = path.rpartition(b"/")
        oid = self.find(directory)
        if oid is None:
            raise FileNotFoundError(directory)
        return oid, name

    def file(self, path: bytes) -> int:
        oid = self.find(path)
        if oid is None or self.store.attributes(oid).kind is not Kind.FILE:
            raise FileNotFoundError(path)
        return oid

    def bytes_of(self, oid: int) -> bytes:
        """What the object should hold: as written here, or as found at the start."""
        if oid not in self.content:
            self.content[oid] = snapshots.read_all(self.store, oid)
        return self.content[oid]

    # --- operations ------------------------------------------------------------------------------------------------

    def _publish(self, path: bytes, base: int | None, change: Callable[[bytearray], list[tuple[int, bytes]]]) -> None:
        """Stage, let `change` say the writes (and make them in the bytes it is handed), publish."""
        parent, name = self.place(path)
        model = bytearray(self.bytes_of(base)) if base is not None else bytearray()
        staged = self.store.stage(base, namespace=self.store.namespace_of(parent), mode=0o640, uid=7, gid=8)
        try:
            for offset, data in change(model):
                staged.write(offset, data)
            if len(model) != staged.size:
                staged.truncate(len(model))
            staged.seal()
            self.content[self.store.publish(staged, parent, name)] = bytes(model)
        finally:
            staged.abandon()

    def write(self, path: bytes, size: int) -> None:
        """Whole new content, in pieces."""

        def change(model: bytearray) -> list[tuple[int, bytes]]:
            model[:] = self.random.randbytes(size)
            step = max(1, size // self.random.choice((1, 1, 2, 3)))
            return [(at, bytes(model[at : at + step])) for at in range(0, size, step)]

        self._publish(path, None, change)

    def overwrite(self, path: bytes, offset: int, length: int) -> None:
        """A part of the file anew, the rest copied."""

        def change(model: bytearray) -> list[tuple[int, bytes]]:
            data = self.random.randbytes(length)
            model.extend(bytes(max(0, offset + length - len(model))))
            model[offset : offset + length] = data
            return [(offset, data)]

        self._publish(path, self.file(path), change)

    def append(self, path: bytes, length: int) -> None:
        self.overwrite(path, len(self.bytes_of(self.file(path))), length)

    def truncate(self, path: bytes, size: int) -> None:
        def change(model: bytearray) -> list[tuple[int, bytes]]:
            model.extend(bytes(max(0, size - len(model))))
            del model[size:]
            return []

        self._publish(path, self.file(path), change)

    def in_place(self, path: bytes, size: int) -> None:
        """New content for the same object."""
        oid, data = self.file(path), self.random.randbytes(size)
        staged = self.store.stage_in_place(oid)
        try:
            staged.truncate(0)
            staged.write(0, data)
            staged.seal()
            self.store.publish_in_place(staged)
            self.content[oid] = data
        finally:
            staged.abandon()

    def create(self, path: bytes) -> None:
        self.content[self.store.create_empty(*self.place(path), 0o600, 1, 2)] = b""

    def mkdir(self, path: bytes) -> None:
        self.store.mkdir(*self.place(path), 0o755, 3, 4)

    def rmdir(self, path: bytes) -> None:
        self.store.rmdir(*self.place(path))

    def symlink(self, path: bytes, target: bytes) -> None:
        self.store.symlink(*self.place(path), target, 5, 6)

    def rename(self, old: bytes, new: bytes) -> None:
        self.store.rename(*self.place(old), *self.place(new))

    def link(self, old: bytes, new: bytes) -> None:
        self.store.link(self.file(old), *self.place(new))

    def unlink(self, path: bytes) -> None:
        self.store.unlink(*self.place(path))

    def setxattr(self, path: bytes, length: int) -> None:
        self.store.set_xattr(self.file(path), b"user.x", self.random.randbytes(length))

    def chmod(self, path: bytes) -> None:
        self.store.set_attributes(self.file(path), mode=self.random.choice((0o600, 0o644, 0o400)))

    def evict(self, path: bytes) -> None:
        self.store.evict(self.file(path))

    def quarantine(self, path: bytes) -> None:
        self.store.quarantine(self.file(path), "as a test")

    def purge(self) -> None:
        for set_aside in self.store.removals.quarantined()[:1]:
            self.store.removals.purge(set_aside.id)

    def abandon(self, path: bytes, size: int) -> None:
        """Written, and never published."""
        parent, _ = self.place(path)
        staged = self.store.stage(None, namespace=self.store.namespace_of(parent), mode=0o640, uid=7, gid=8)
        try:
            staged.write(0, self.random.randbytes(size))
            staged.seal()
        finally:
            staged.abandon()

    def commit(self) -> None:
        self.store.commit()

    def checkpoint(self) -> None:
        self.store.checkpoint()

    # --- looking ---------------------------------------------------------------------------------------------------

    def do(self, name: str, *arguments: object) -> bool:
        """Call an operation by its name; False when it was refused, and then nothing has changed."""
        try:
            getattr(self, name)(*arguments)
        except (HcfsError, FileNotFoundError):
            return False
        return True

    def snapshot(self) -> Snapshot:
        """The store's state; AssertionError where a file doesn't hold what was written to it."""
        state = snapshots.take(self.store)
        for entry in state.entries:
            path, oid = entry[0], entry[1]
            assert isinstance(oid, int)
            if self.store.attributes(oid).kind is Kind.FILE and oid in self.content:
                assert snapshots.read_all(self.store, oid) == self.content[oid], f"{path!r} reads as something else"
        return state


Step = tuple[object, ...]
"""(name of an operation, its arguments ...)"""

A, B = FILES
SINGLE_STEPS: tuple[Step, ...] = (
    ("create", b"kv/d1/c"),
    ("mkdir", b"kv/d1/x"),
    ("rmdir", b"kv/d1/e"),
    ("symlink", b"kv/d1/s", b"../d2/b"),
    ("rename", b"kv/d1/e", b"kv/d2/e"),
    ("commit",),
    ("checkpoint",),
    ("purge",),
    *(
        step
        for mine, other in ((A, B), (B, A))
        for step in (
            ("write", mine, 70_000),
            ("overwrite", mine, 4000, 300),
            ("append", mine, 5000),
            ("truncate", mine, 5000),
            ("truncate", mine, 20_000),
            ("in_place", mine, 6000),
            ("rename", mine, mine + b".new"),
            ("rename", mine, other),
            ("link", mine, other + b".link"),
            ("unlink", mine),
            ("setxattr", mine, 100),
            ("chmod", mine),
            ("evict", mine),
            ("quarantine", mine),
            ("abandon", mine, 9000),
        )
    ),
)


def random_steps(chance: random.Random, count: int) -> list[Step]:
    """A long run over more names, with larger objects, and enough large attributes to fill the log."""
    directories = (b"kv", b"kv/d1", b"kv/d2", b"kv/d1/x", b"kv/d2/y")
    names = (b"a", b"b", b"c", b"f" * 60, b"x", b"y")
    weights = {
        "write": 14,
        "overwrite": 6,
        "append": 4,
        "truncate": 4,
        "in_place": 4,
        "create": 3,
        "mkdir": 5,
        "rmdir": 2,
        "symlink": 2,
        "rename": 8,
        "link": 4,
        "unlink": 4,
        "setxattr": 6,
        "chmod": 2,
        "evict": 4,
        "quarantine": 2,
        "purge": 2,
        "abandon": 3,
        "commit": 20,
        "checkpoint": 3,
    }
    steps: list[Step] = []
    for name in chance.choices(list(weights), list(weights.values()), k=count):
        path = chance.choice(directories) + b"/" + chance.choice(names)
        size = chance.choice((0, 1, 4095, 4096, 5000, 66_000, 200_000, chance.randrange(300_000)))
        other = chance.choice(directories) + b"/" + chance.choice(names)
        arguments: dict[str, Step] = {
            "write": (path, size),
            "overwrite": (path, size // 2, 1 + size // 3),
            "append": (path, size // 3),
            "truncate": (path, size),
            "in_place": (path, size),
            "symlink": (path, other),
            "rename": (path, other),
            "link": (path, other),
            "abandon": (path, size),
            "setxattr": (path, chance.choice((1, 100, 3000, 60_000))),
            **dict.fromkeys(("purge", "commit", "checkpoint"), ()),
        }
        steps.append((name, *arguments.get(name, (path,))))
    return steps


def other_steps(chance: random.Random, count: int) -> list[Step]:
    """Steps that can be done while a commit is under way."""
    return [step for step in random_steps(chance, count) if step[0] not in ("commit", "checkpoint")]
