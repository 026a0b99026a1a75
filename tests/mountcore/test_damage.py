"""A granule that doesn't verify: EIO for its reader, a miss for everybody."""

from __future__ import annotations

from mountcore.kernel import GRANULE, Process, Rig, errno_of

SIZE = 4 * GRANULE


def flip(rig: Rig, ino: int, offset: int) -> None:
    """Flip one byte of an object on the medium."""
    extent = rig.store.content.extents_of(ino)[0]
    at = extent.block * 4096 + offset
    buffer = bytearray(4096)
    rig.device.read_into(at // 4096 * 4096, memoryview(buffer))
    buffer[at % 4096] ^= 0x40
    rig.device.write(at // 4096 * 4096, buffer)


def test_quarantined_before_the_error_is_answered(rig: Rig, me: Process, other: Process) -> None:
    ino = me.put(b"f", bytes(range(256)) * (SIZE // 256))
    me.link(b"f", b"g")
    flip(rig, ino, 2 * GRANULE + 5)
    handle, his = me.open(b"f"), other.open(b"g")
    assert errno_of(me.read, handle, SIZE) == "EIO"
    assert sorted(rig.notices.names) == [(rig.kv, b"f"), (rig.kv, b"g")]
    assert rig.notices.pages == [ino]
    assert (me.exists(b"f"), other.exists(b"g")) == (False, False)
    assert errno_of(me.fs.open, ino, 0, me.caller) == "ESTALE"
    # Handles that are open go on serving what verifies, and an error counts once.
    assert len(me.read(handle, GRANULE, GRANULE)) == GRANULE
    for offset in range(2 * GRANULE, 3 * GRANULE, 4096):
        assert errno_of(me.read, handle, 4096, offset) == "EIO"
    assert rig.store.counters.checksum_errors == 1
    assert errno_of(other.read, his, 4096, 2 * GRANULE) == "EIO"
    me.close(handle)
    other.close(his)
    usage = rig.store.usage()
    assert (usage.quarantined, usage.quarantined_objects) == (SIZE, 1)
    me.put(b"f", b"stored again")
    assert other.load(b"f") == b"stored again"


def test_verify_at_open(rig: Rig, me: Process) -> None:
    """For those who take only ENOENT for a miss."""
    rig.cache.namespaces.set_option(rig.kv, "verify", "open")
    good, bad = me.put(b"good", bytes(SIZE)), me.put(b"bad", bytes(SIZE))
    flip(rig, bad, SIZE - 1)
    assert good != bad
    assert len(me.load(b"good")) == SIZE
    assert errno_of(me.fs.open, bad, 0, me.caller) == "ENOENT"
    assert not me.exists(b"bad")
    assert rig.store.usage().pinned_used == 0


def test_a_damaged_base_of_a_version(rig: Rig, me: Process) -> None:
    """Its unchanged bytes can't be vouched for, so it is never published."""
    ino = me.put(b"f", bytes(SIZE))
    flip(rig, ino, 1)
    handle = me.open(b"f", 2)
    assert errno_of(me.read, handle, 4096) == "EIO"
    me.write(handle, b"new", SIZE - 3)
    assert errno_of(me.flush, handle) == "EIO"
    me.fs.release(handle)
    assert not me.exists(b"f")


def test_damage_of_a_former_content_condemns_nobody(rig: Rig, me: Process, other: Process) -> None:
    """A file that got new content in place keeps its id: its names stay, though old bytes that are still read are
    bad."""
    ino = me.put(b"f", bytes(SIZE))
    flip(rig, ino, 1)
    handle = me.open(b"f")
    staged = rig.store.stage_in_place(ino)
    staged.truncate(0)
    staged.write(0, b"new")
    staged.seal()
    rig.store.publish_in_place(staged)
    assert errno_of(me.read, handle, 4096) == "EIO"
    me.close(handle)
    assert other.load(b"f") == b"new"
    assert rig.store.usage().quarantined_objects == 0
