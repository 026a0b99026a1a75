from __future__ import annotations

import pytest
from store.devices import Fault, Watched
from store.rig import GRANULE, content, named, namespace, new_device, put, recover, stage

from hcfs.store import BLOCK, Store
from hcfs.store.attributes import SLOT_MASK
from hcfs.store.scrub import Damaged, Scrub


class Scene:
    """A store with five files, and what a scrub finds in it."""

    def __init__(self) -> None:
        self.watched = Watched(new_device())
        self.store: Store = recover(self.watched)
        self.sizes = [0, 100, GRANULE, 40 * GRANULE + 9, 3 * GRANULE]
        self.oids = [put(self.store, b"%d" % number, content(number, size)) for number, size in enumerate(self.sizes)]
        self.store.mkdir(namespace(self.store), b"directory", 0o755, 0, 0)
        self.store.commit()
        self.found: list[Damaged] = []

    def spoil(self, oid: int, at: int) -> None:
        (extent,) = self.store.content.extents_of(oid)
        self.watched.inner.contents[extent.block * BLOCK + at] ^= 2  # type: ignore[attr-defined]

    def note(self, damaged: Damaged) -> None:
        assert not self.store.ledger.lock._is_owned()  # type: ignore[attr-defined]
        assert not self.store.retention.pins()
        self.store.quarantine(damaged.oid, damaged.reason)
        self.found.append(damaged)

    def scrub(self, **options: object) -> Scrub:
        return Scrub(self.store, self.note, **options)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_sound_store(scene: Scene) -> None:
    scrub = scene.scrub()
    assert not scrub.statistics.finished
    done = scrub.run()
    assert (done.finished, done.objects, done.checked_bytes, done.damaged) == (True, 5, sum(scene.sizes), 0)
    assert scrub.run() == done
    assert scene.found == []


def test_damage_is_told_once_an_object(scene: Scene) -> None:
    for at in (5, 20 * GRANULE, 30 * GRANULE):
        scene.spoil(scene.oids[3], at)
    scene.spoil(scene.oids[1], 0)
    (extent,) = scene.store.content.extents_of(scene.oids[4])
    bad = extent.block * BLOCK + 2 * GRANULE
    scene.watched.hooks.append(Fault("read", bad, bad + 1))
    done = scene.scrub().run()
    assert (done.finished, done.objects, done.damaged) == (True, 5, 3)
    assert [(d.oid, d.granule) for d in scene.found] == [(scene.oids[1], 0), (scene.oids[3], 0), (scene.oids[4], 2)]
    assert "doesn't match" in scene.found[0].reason
    assert "can't be read" in scene.found[2].reason
    assert [named(scene.store, b"%d" % n) is None for n in range(5)] == [False, True, False, True, True]
    # Quarantined objects aren't read again.
    assert scene.scrub().run().objects == 2


def test_a_pass_can_be_stopped_and_taken_up(scene: Scene) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    scrub = scene.scrub()
    stopped = scrub.run(stop)
    assert not stopped.finished
    assert stopped.objects == 3
    assert stopped.position == scene.oids[3] & SLOT_MASK
    rest = scene.scrub(start=stopped.position).run()
    assert (rest.finished, rest.objects) == (True, 2)
    assert rest.checked_bytes == scene.sizes[3] + scene.sizes[4]
    assert scrub.run().objects == 5


def test_objects_that_go_meanwhile_are_skipped(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    pin, store = scene.store.pin, scene.store

    def pin_late(oid: int) -> object:
        if oid == scene.oids[2]:
            store.evict(oid)
        return pin(oid)

    monkeypatch.setattr(store, "pin", pin_late)
    done = scene.scrub().run()
    assert (done.finished, done.objects, scene.found) == (True, 4, [])


def test_damage_of_a_former_content_is_nobodys(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    store, oid = scene.store, scene.oids[1]
    scene.spoil(oid, 0)
    verify = store.content.verify_granules

    def replace_first(*args: object) -> None:
        if store.attributes(oid).size == 100:
            staged = store.stage_in_place(oid)
            staged.truncate(0)
            staged.write(0, b"new content")
            staged.seal()
            store.publish_in_place(staged)
        verify(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store.content, "verify_granules", replace_first)
    done = scene.scrub().run()
    assert (done.damaged, scene.found) == (0, [])
    assert named(store, b"1") == b"new content"


def test_damage_of_what_was_dropped_while_it_was_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.spoil(scene.oids[1], 0)
    verify = scene.store.content.verify_granules

    def drop_first(*args: object) -> None:
        if scene.store.lookup(namespace(scene.store), b"1") is not None:
            scene.store.unlink(namespace(scene.store), b"1")
        verify(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.store.content, "verify_granules", drop_first)
    assert scene.scrub().run().finished
    assert [d.oid for d in scene.found] in ([], [scene.oids[1]])
    assert scene.store.removals.quarantined() == []


def test_the_rate_is_kept(scene: Scene) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        assert seconds > 0
        now += seconds

    total = sum(scene.sizes)
    done = scene.scrub(bytes_per_second=total / 10, clock=lambda: now, sleep=sleep).run()
    assert done.checked_bytes == total
    assert 9.5 < now < 10.5
    with pytest.raises(ValueError, match="never ends"):
        scene.scrub(bytes_per_second=0)


def test_what_is_staged_is_left_alone(scene: Scene) -> None:
    staged = stage(scene.store)
    staged.write(0, b"x")
    assert scene.scrub().run().objects == 5
    staged.abandon()
