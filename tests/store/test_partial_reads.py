"""Reading whole granules of an object that is still being written."""

from __future__ import annotations

import threading

import pytest
from store.rig import GRANULE, content, namespace, new_device, new_store, put, recover, stage

from hcfs.store import BLOCK
from hcfs.store.errors import StagedDamaged, StagedFailed

DATA = content("arriving", 6 * GRANULE + 5000)


def test_what_is_written_is_read_and_nothing_else() -> None:
    store = new_store()
    staged = stage(store)
    with pytest.raises(StagedFailed):
        store.partial_reads.read(staged, 0, 1)
    staged.write(0, DATA[: 2 * GRANULE])
    staged.write(2 * GRANULE, DATA[2 * GRANULE : 5 * GRANULE])
    for offset, length in ((0, 1), (0, 5 * GRANULE), (GRANULE - 1, 2), (7, GRANULE + 9), (5 * GRANULE - 3, 3)):
        assert bytes(store.partial_reads.read(staged, offset, length)) == DATA[offset : offset + length]
    staged.write(5 * GRANULE, DATA[5 * GRANULE : 5 * GRANULE + BLOCK])
    for offset, length in ((5 * GRANULE, 1), (5 * GRANULE - 1, 2)):
        with pytest.raises(StagedFailed):
            store.partial_reads.read(staged, offset, length)
    staged.abandon()
    with pytest.raises(StagedFailed):
        store.partial_reads.read(staged, GRANULE, GRANULE)


def test_a_flipped_byte_is_found() -> None:
    device = new_device()
    store = recover(device)
    staged = stage(store)
    staged.write(0, DATA[: 4 * GRANULE])
    extents, _ = staged.whole_granules(1, 1)
    at = extents[0].block * BLOCK + 100
    byte = bytearray(BLOCK)
    device.read_into(at - at % BLOCK, memoryview(byte))
    byte[at % BLOCK] ^= 1
    device.write(at - at % BLOCK, memoryview(byte))
    errors = store.counters.checksum_errors
    for offset, length in ((GRANULE + 5, 7), (0, 4 * GRANULE)):
        with pytest.raises(StagedDamaged):
            store.partial_reads.read(staged, offset, length)
    assert bytes(store.partial_reads.read(staged, 0, GRANULE)) == DATA[:GRANULE]
    assert store.counters.checksum_errors == errors + 2


def test_readers_beside_the_writer_and_the_end() -> None:
    """What they get is right, or an error once the object is published, evicted and its blocks are another's."""
    store = new_store()
    for round_ in range(6):
        staged = stage(store)
        arrived, wrong, stop = [0], [], threading.Event()

        def read(staged=staged, arrived=arrived, wrong=wrong, stop=stop) -> None:  # type: ignore[no-untyped-def]  # a thread of the loop's round
            while not stop.is_set():
                for granule in range(arrived[0]):
                    try:
                        data = store.partial_reads.read(staged, granule * GRANULE, GRANULE)
                    except StagedFailed:
                        return
                    if data != DATA[granule * GRANULE : (granule + 1) * GRANULE]:
                        wrong.append(granule)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for granule in range(6):
            staged.write(granule * GRANULE, DATA[granule * GRANULE : (granule + 1) * GRANULE])
            arrived[0] = granule + 1
        if round_ % 2:
            staged.seal()
            store.publish(staged, namespace(store), b"x")
            store.unlink(namespace(store), b"x")
        else:
            staged.abandon()
        store.commit()
        for number in range(20):
            put(store, b"other", content((round_, number), 6 * GRANULE))
        stop.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert wrong == []
    assert store.counters.checksum_errors == 0
