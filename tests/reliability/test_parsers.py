"""No bytes on a device end in a traceback, a hang, or memory out of proportion, be their checksums right or not: the
small budget of tools/lab fuzz-parsers, and what it found."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hcfs.store.errors import MetadataFull
from hcfs.store.frame import FIRST_IN_BATCH, FrameType, encode
from hcfs.store.log import encode_batch
from lab.reliability import fuzzing, workloads
from lab.reliability.campaigns import fuzz_parsers
from lab.reliability.overlay import OverlayDevice

SEED = 50
DIRECTORY, FILE = 0o040755, 0o100644
KV, ONE, TWO = (serial << 32 | serial + 1 for serial in (1, 2, 3))


def test_mutated_and_constructed_inputs():
    assert fuzz_parsers.campaign().finish(SEED, goal=500).counts["inputs"] >= 500


@pytest.mark.parametrize("parser", fuzzing.PARSERS)
def test_arbitrary_bytes(parser):
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=400))
    def feed(data: bytes) -> None:
        fuzzing.feed(parser, data)

    feed()


def put(oid: int, mode: int, *, flags: int = 0, size: int = 0, granules: int = 0, extra: bytes = b"") -> bytes:
    head = struct.pack("<BQIIIIQqqqQQIII", 1, oid, mode, 0, 0, flags, size, 1, 1, 1, 1, 1, 0, granules, len(extra))
    return head + bytes(4 * granules) + extra


def name(parent: int, word: bytes, oid: int) -> bytes:
    return struct.pack("<BQQH", 2, parent, oid, len(word)) + word


def use(*items: bytes) -> None:
    """Mount, check and repair a store whose log has a transaction of each of the items."""
    batch = encode_batch([struct.pack("<Q", 1) + item for item in items], 1, fuzzing.REGION_SEED)
    fuzzing.use_everything(fuzzing.log_of(batch))


TREE = (put(KV, DIRECTORY), name(1, b"kv", KV), put(ONE, DIRECTORY), name(KV, b"one", ONE), put(TWO, DIRECTORY))


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([name(ONE, b"two", TWO), name(TWO, b"one", ONE)], id="directories that lie in each other"),
        pytest.param([name(ONE, b"one", ONE)], id="a directory that lies in itself"),
        pytest.param([name(ONE, b"root", 1)], id="the root inside a directory"),
        pytest.param([name(KV, b"two", TWO), name(KV, b"again", TWO)], id="a directory with two names"),
        pytest.param(
            [put(9 << 32 | 9, FILE), name(KV, b"f", 9 << 32 | 9), name(9 << 32 | 9, b"x", ONE)], id="in a file"
        ),
        pytest.param(
            [put(9 << 32 | 9, FILE), name(KV, b"f", 9 << 32 | 9), name(ONE, b"g", 9 << 32 | 9), put(ONE, FILE)],
            id="a second name in what was a directory",
        ),
        pytest.param([put(9 << 32 | 2**26, FILE)], id="a slot that needs gigabytes"),
        pytest.param([put(9 << 32, FILE)], id="slot 0"),
        pytest.param([put(9 << 32 | 9, FILE, size=2**64 - 1)], id="a size without checksums"),
        pytest.param([put(9 << 32 | 9, FILE, size=5, granules=7)], id="checksums without a size"),
        pytest.param([struct.pack("<BQ", 8, 2**64 - 1)], id="serials that have run out"),
        pytest.param([put(1, DIRECTORY, flags=1)], id="a quarantined root"),
        pytest.param([put(1, FILE)], id="a root that is a file"),
        pytest.param([put(ONE, DIRECTORY, flags=1), name(ONE, b"two", TWO)], id="a quarantined directory"),
        pytest.param([name(KV, b"..", TWO)], id="a name that can't be"),
        pytest.param(
            [put(9 << 32 | 9, FILE, flags=1, extra=struct.pack("<BHI", 1, 15, 1) + b"hcfs.quarantine[")],
            id="a quarantine note that isn't JSON",
        ),
    ],
)
def test_records_that_verify_but_cannot_be(items):
    use(*TREE, *items)


@pytest.mark.parametrize("sequence", [2**62 + 1, 2**64 - 1])
def test_a_sequence_number_that_leaves_no_next(sequence):
    frame = encode(FrameType.TRANSACTION, FIRST_IN_BATCH, sequence, struct.pack("<Q", 1), fuzzing.REGION_SEED)
    fuzzing.use_everything(fuzzing.log_of(frame))


def test_blocks_that_look_like_long_frames_do_not_hold_up_a_mount():
    """The search behind the log's end checksums what each block promises: a megabyte a block, were it not bounded."""
    length = 900 << 10
    head = struct.pack("<IHHQII", length, FrameType.TRANSACTION, FIRST_IN_BATCH, 5, 0, 0)
    fuzzing.use_everything(fuzzing.log_of(b"".join(head.ljust(4096, b"\xff") for _ in range(200))))


def test_a_store_never_uses_a_slot_that_the_next_mount_would_refuse():
    store = workloads.open_store(OverlayDevice(fuzzing.base(), []))
    kv = store.lookup(1, b"kv")
    assert kv is not None
    store.ledger.index.max_slot = len(store.ledger.index.table) + 1
    staged = [store.stage(None, namespace=kv, mode=0, uid=0, gid=0) for _ in range(2)]
    for _ in range(2):
        with pytest.raises(MetadataFull):
            store.stage(None, namespace=kv, mode=0, uid=0, gid=0)
    staged[0].abandon()
    assert store.mkdir(kv, b"again", 0o755, 0, 0)


def test_the_campaign_sees_a_parser_that_trusts_its_input(monkeypatch):
    monkeypatch.setitem(fuzzing.PARSERS, "extra", lambda data: struct.unpack("<Q", data))
    with pytest.raises(fuzzing.Finding, match="unpack requires"):
        fuzzing.feed("extra", b"short")


def test_memory_is_measured(monkeypatch):
    monkeypatch.setitem(fuzzing.PARSERS, "extra", lambda data: print(end="", file=io.StringIO(" " * fuzzing.BYTES_MAX)))
    with pytest.raises(fuzzing.Finding, match="MiB"):
        fuzzing.feed("extra", b"", memory=True)
