"""Wiping: no byte of what was dropped is left on the medium, and nothing else is touched."""

from __future__ import annotations

import random
import threading

import pytest
from store.devices import Fault, Watched
from store.rig import (
    GRANULE,
    again,
    check_space,
    content,
    get,
    in_thread,
    named,
    namespace,
    new_device,
    put,
    recover,
    stage,
)

from hcfs.device import DeviceError, MemoryDevice
from hcfs.store import BLOCK, ROOT_ID, Store
from hcfs.store.check import check
from hcfs.store.wipe import Wipe

MARK = b"the secret of a prompt, "


def secret(length: int) -> bytes:
    return (MARK * (length // len(MARK) + 1))[:length]


class Scene:
    """A store with a namespace of secrets and another one, on a device whose bytes can be looked at."""

    def __init__(self) -> None:
        self.watched = Watched(new_device())
        self.store: Store = recover(self.watched)
        self.private = self.store.mkdir(ROOT_ID, b"private", 0o755, 0, 0)
        self.kept = content("kept", 5 * GRANULE)
        put(self.store, b"kept", self.kept)

    @property
    def medium(self) -> bytes:
        return bytes(self.watched.inner.contents)  # type: ignore[attr-defined]

    def hide(self, name: bytes, length: int) -> int:
        staged = self.store.stage(None, namespace=self.private, mode=0o644, uid=0, gid=0)
        staged.write(0, secret(length))
        staged.seal()
        return self.store.publish(staged, self.private, name)

    def drop(self, *names: bytes) -> None:
        for name in names:
            self.store.unlink(self.private, name)
        self.store.commit()

    def whole(self) -> None:
        assert named(self.store, b"kept") == self.kept
        self.store.commit()
        check_space(self.store)
        report = check(self.watched, data=True)
        assert report.clean, report.problems


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_left(scene: Scene) -> None:
    """Of what is removed now, and of what was replaced and evicted before."""
    for name in (b"a", b"b", b"a"):
        scene.hide(name, 7 * GRANULE + 5)
    evicted = scene.store.evict(scene.hide(b"evicted", GRANULE))
    assert evicted
    assert MARK in scene.medium
    scene.drop(b"a", b"b")
    done = Wipe(scene.store, scene.private).run(0)
    assert done.complete
    assert done.wiped_bytes == scene.store.usage().free
    assert MARK not in scene.medium
    scene.whole()


def test_it_is_durable(scene: Scene) -> None:
    """The zeros are flushed before it returns."""
    scene.hide(b"a", GRANULE)
    scene.drop(b"a")
    scene.watched.calls.clear()
    Wipe(scene.store, scene.private).run(0)
    kinds = [kind for kind, *_ in scene.watched.calls]
    assert "write" in kinds
    assert kinds[-1] == "flush"


def test_what_is_open_is_waited_for_and_told(scene: Scene) -> None:
    oid = scene.hide(b"a", 3 * GRANULE)
    pin = scene.store.pin(oid)
    scene.drop(b"a")
    done = Wipe(scene.store, scene.private).run(0.1)
    assert (done.open_bytes, done.complete) == (3 * GRANULE, False)
    assert bytes(scene.store.read(pin, 0, 3 * GRANULE)) == secret(3 * GRANULE)
    waiting = in_thread(lambda: Wipe(scene.store, scene.private).run(20))
    threading.Timer(0.2, pin.release).start()
    assert waiting.result(20).complete
    assert MARK not in scene.medium
    scene.whole()


def test_what_is_being_written(scene: Scene) -> None:
    """In the namespace itself; and elsewhere, into blocks that held a secret and aren't all overwritten."""
    scene.hide(b"a", 4 << 20)
    scene.drop(b"a")
    own = scene.store.stage(None, namespace=scene.private, mode=0o644, uid=0, gid=0)
    own.write(0, secret(GRANULE))
    other = stage(scene.store)
    for number in range(40):
        other.write(number * GRANULE // 2, bytes([7]) * (GRANULE // 2))
    done = Wipe(scene.store, scene.private).run(0.1)
    assert done.unfinished_objects == 2
    waiting = in_thread(lambda: Wipe(scene.store, scene.private).run(20))
    own.abandon()
    other.seal()
    assert waiting.result(20).complete
    assert MARK not in scene.medium
    scene.store.publish(other, namespace(scene.store), b"other")
    assert named(scene.store, b"other") == bytes([7]) * (20 * GRANULE)
    scene.whole()


def test_it_can_be_stopped(scene: Scene) -> None:
    scene.hide(b"a", GRANULE)
    scene.drop(b"a")
    asked = iter([False, False, True])
    done = Wipe(scene.store, scene.private).run(20, lambda: next(asked, True))
    assert (done.stopped, done.complete) == (True, False)
    assert scene.store.ledger.space.on_free == []
    scene.whole()


def test_a_medium_that_fails(scene: Scene) -> None:
    """The blocks are free again, not lost; and the wipe isn't taken for done."""
    scene.hide(b"a", GRANULE)
    scene.drop(b"a")
    fault = Fault("write", scene.store.superblock.data_start * BLOCK, 12 << 20)
    scene.watched.hooks.append(fault)
    with pytest.raises(DeviceError):
        Wipe(scene.store, scene.private).run(0)
    scene.watched.hooks.remove(fault)
    assert scene.store.ledger.space.withheld == 0
    assert Wipe(scene.store, scene.private).run(0).complete
    scene.whole()


def test_beside_writers(scene: Scene) -> None:
    """What they commit stays whole, while all around it is zeroed again and again."""
    store, end = scene.store, threading.Event()

    def work(me: int) -> None:
        chance, kept = random.Random(me), {}
        while not end.is_set():
            name = b"%d.%d" % (me, chance.randrange(4))
            kept[name] = content((me, chance.random()), chance.randrange(1, 4 * GRANULE))
            put(store, name, kept[name])
            if chance.random() < 0.3:
                store.commit()
            for other, expected in kept.items():
                oid = store.lookup(namespace(store), other)
                assert oid is not None
                assert get(store, oid) == expected

    workers = [in_thread(lambda me=me: work(me)) for me in range(2)]  # type: ignore[misc]
    for number in range(6):
        scene.hide(b"a", (number + 1) * GRANULE)
        scene.drop(b"a")
        assert Wipe(store, scene.private).run(20).complete
        assert MARK not in scene.medium
    end.set()
    for worker in workers:
        worker.result(60)
    scene.whole()


def test_names_and_attributes_go_with_the_metadata(scene: Scene) -> None:
    for number in range(20):
        oid = scene.hide(b"%d of the secret of a prompt, " % number, GRANULE)
        scene.store.set_xattr(oid, b"user.a", MARK)
    pin = scene.store.pin(oid)
    scene.store.checkpoint()
    scene.drop(*(b"%d of the secret of a prompt, " % number for number in range(20)))
    scene.store.rmdir(ROOT_ID, b"private")
    scene.store.commit()
    assert MARK in scene.medium
    scene.store.durability.rewrite_metadata()
    assert bytes(scene.store.read(pin, 0, 100)) == secret(100)
    pin.release()
    scene.store.commit()
    assert Wipe(scene.store, scene.private).run(0).complete
    assert MARK not in scene.medium
    assert b"private" not in scene.medium
    scene.whole()
    assert named(again(scene.store), b"kept") == scene.kept


def test_a_crash_while_the_metadata_is_written_anew(scene: Scene) -> None:
    """At every write and flush: the next mount finds the state, whole."""
    scene.hide(b"a", GRANULE)
    scene.drop(b"a")
    count = 0

    def crash(kind: str, offset: int, length: int) -> None:
        nonlocal count
        if kind == "read":
            return
        count += 1
        scene.watched.hooks.remove(crash)
        try:
            found = recover(MemoryDevice.holding(scene.medium))
            assert found.state == "ok", found.state_reason
            assert named(found, b"kept") == scene.kept
        finally:
            scene.watched.hooks.append(crash)

    scene.watched.hooks.append(crash)
    scene.store.durability.rewrite_metadata()
    scene.watched.hooks.remove(crash)
    assert count >= 8
    scene.whole()
