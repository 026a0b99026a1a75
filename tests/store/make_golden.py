"""Makes the golden image of format 1, once: `python tests/store/make_golden.py PATH` writes it, compressed.

The image in golden/ is never made again: that the code of its day wrote it is its worth. A later format gets an image
of its own beside it."""

from __future__ import annotations

import itertools
import lzma
import secrets
import sys
import time
import uuid
from pathlib import Path

from hcfs.device import BufferPool, MemoryDevice
from hcfs.store import BLOCK, ROOT_ID, Store, UnrecoveredStore, format_device

GRANULE = 64 << 10
NOW = 1_700_000_000_000_000_000
"""the first tick of the clock, ns; each look at it is a microsecond later"""


def pattern(name: bytes, size: int) -> bytes:
    """Bytes that say which object and which place in it they belong to, in lines of 32."""
    lines = (b"%-18.18s%13d\n" % (name, number) for number in range(-(-size // 32)))
    return b"".join(lines)[:size]


class Maker:
    """A store whose clock and dice are fixed."""

    def __init__(self) -> None:
        ticks = itertools.count(NOW, 1000)
        time.time_ns = lambda: next(ticks)
        time.clock_gettime_ns = lambda _: next(ticks)
        secrets.randbelow = lambda limit: limit // 1000
        self.device = MemoryDevice(16 << 20)
        format_device(
            self.device,
            label="golden 1",
            granule=GRANULE,
            max_objects=64,
            uid=1000,
            gid=100,
            uuid=uuid.UUID("601de001-0000-4000-8000-000000000001"),
        )
        self.store: Store = UnrecoveredStore.open(self.device, BufferPool(8 << 20)).recover()

    def put(self, parent: int, name: bytes, size: int, **xattrs: bytes) -> int:
        staged = self.store.stage(
            *(None,),
            namespace=parent,
            mode=0o640,
            uid=1001,
            gid=101,
            xattrs={b"user." + key.encode(): value for key, value in xattrs.items()},
        )
        staged.write(0, pattern(name, size))
        staged.seal()
        return self.store.publish(staged, parent, name)

    def stamp(self, oid: int, number: int) -> None:
        """Times that tell objects apart."""
        self.store.set_attributes(oid, atime_ns=NOW + number, mtime_ns=-number, ctime_ns=NOW - number)
        self.store.touch(oid, NOW + 10**15 + number)

    def before_the_checkpoint(self) -> None:
        store = self.store
        kv = store.mkdir(ROOT_ID, b"kv", 0o755, 1000, 100)
        directory = store.mkdir(kv, b"directory", 0o2750, 1002, 102)
        deep = store.mkdir(directory, b"deep", 0o700, 0, 0)
        store.mkdir(ROOT_ID, b"other namespace", 0o1777, 0, 0)
        store.set_xattr(kv, b"hcfs.quota", b"1048576")
        store.set_xattr(directory, b"user.note", b"of a directory")
        empty = store.create_empty(kv, b"empty", 0o600, 7, 8)
        small = self.put(kv, b"small", 5, note=b"of a file", nothing=b"")
        store.link(small, directory, b"small too")
        store.link(small, deep, b"and here")
        large = self.put(kv, b"large", 3 * GRANULE + 1234)
        holes = store.stage(None, namespace=kv, mode=0o644, uid=0, gid=0)
        holes.write(2 * GRANULE + 100, pattern(b"holes", 5000))
        holes.truncate(5 * GRANULE + 17)
        holes.seal()
        store.publish(holes, kv, b"holes")
        both = [store.stage(None, namespace=kv, mode=0o644, uid=0, gid=0) for _ in range(2)]
        parts = [pattern(name, 3 * GRANULE) for name in (b"scattered 0", b"scattered 1")]
        for at in range(0, 3 * GRANULE, GRANULE):
            for staged, part in zip(both, parts, strict=True):
                staged.write(at, part[at : at + GRANULE])
        for number, staged in enumerate(both):
            staged.seal()
            store.publish(staged, directory, b"scattered %d" % number)
            assert len(store.content.extents_of(staged.id)) > 1
        store.symlink(kv, b"symlink", b"directory/deep/caf\xe9", 3, 4)
        store.set_xattr(kv, b"user.kept", b"1")
        bad = self.put(kv, b"bad", 2 * GRANULE)
        store.link(bad, directory, b"bad too")
        store.quarantine(bad, "granule 1 doesn't match its checksum")
        lock = store.create_empty(kv, b"a.lock", 0o666, 0, 0)
        rewritten = store.stage_in_place(lock)
        rewritten.write(0, b"pid 17\n")
        rewritten.seal()
        store.publish_in_place(rewritten)
        self.put(kv, b"n\xff" * 512, 100)
        self.put(kv, b"removed", 2 * GRANULE)
        self.put(kv, b"replaced", 3 * GRANULE)
        self.put(kv, b"renamed", 4 * BLOCK)
        for number, oid in enumerate((kv, directory, deep, empty, small, large)):
            self.stamp(oid, number)
        store.commit()
        store.unlink(kv, b"removed")
        store.checkpoint()

    def behind_the_checkpoint(self) -> None:
        store = self.store
        kv = store.lookup(ROOT_ID, b"kv") or 0
        directory = store.lookup(kv, b"directory") or 0
        self.put(kv, b"replaced", GRANULE + 1, why=b"in the log")
        store.rename(kv, b"renamed", directory, b"renamed away")
        view = store.stage(store.lookup(kv, b"large"), namespace=kv, mode=0, uid=0, gid=0)
        view.write(GRANULE - 3, b"middle")
        view.seal()
        store.publish(view, kv, b"large")
        store.commit()
        store.mkdir(directory, b"late", 0o755, 0, 0)
        store.rmdir(directory, b"late")
        store.remove_xattr(store.lookup(kv, b"small") or 0, b"user.nothing")
        store.unlink(store.lookup(directory, b"deep") or 0, b"and here")
        store.set_attributes(store.lookup(kv, b"symlink") or 0, uid=5)
        store.quarantine(store.lookup(directory, b"scattered 1") or 0, "unreadable")
        self.stamp(store.lookup(kv, b"a.lock") or 0, 99)
        store.commit()

    def torn_tail(self) -> None:
        """A batch of which the first sector came through."""
        store = self.store
        assert store.ledger.writer is not None
        at = store.superblock.regions[store.ledger.region] * BLOCK + store.ledger.writer.at
        kv = store.lookup(ROOT_ID, b"kv") or 0
        self.put(kv, b"not acknowledged", 10, long=bytes(range(1, 256)) * 5)
        store.commit()
        self.device.contents[at + 512 : at + BLOCK] = bytes(BLOCK - 512)


def main() -> None:
    maker = Maker()
    maker.before_the_checkpoint()
    maker.behind_the_checkpoint()
    maker.torn_tail()
    Path(sys.argv[1]).write_bytes(lzma.compress(bytes(maker.device.contents), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
