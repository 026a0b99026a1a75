from __future__ import annotations

import struct
import uuid

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from store.rig import UUID

from hcfs.store import frame
from hcfs.store.frame import FIRST_IN_BATCH, MAX_COUNT, MAX_PAYLOAD, FrameType

SEED = frame.seed(UUID, 5)


@given(st.binary(min_size=1, max_size=200), st.integers(0, MAX_COUNT), st.sampled_from(FrameType), st.integers(0, 5))
def test_frames_come_back(payload: bytes, sequence: int, kind: FrameType, words_before: int) -> None:
    encoded = frame.encode(kind, FIRST_IN_BATCH, sequence, payload, SEED)
    assert len(encoded) == frame.padded(len(payload))
    assert len(encoded) % 8 == 0
    at = 8 * words_before
    found = frame.decode(memoryview(bytes(at) + encoded + bytes(8)), at, SEED)
    assert found is not None
    assert (found.type, found.flags, found.sequence, bytes(found.payload)) == (kind, 1, sequence, payload)
    assert found.end == at + len(encoded)
    assert found.crc == frame.checksum(encoded)


def test_fields_lie_where_the_document_says() -> None:
    encoded = frame.encode(FrameType.PAGE, 1, 0x1122334455667788, b"payload", SEED)
    assert struct.unpack("<IHHQII", encoded[:24]) == (
        *(7, 2, 1, 0x1122334455667788),
        crc32c(UUID.bytes + struct.pack("<Q", 5) + encoded[:16] + b"payload"),
        0,
    )
    assert encoded[24:] == b"payload\0"


def test_a_flip_of_any_byte_is_refused() -> None:
    encoded = frame.encode(FrameType.TRANSACTION, 0, 7, b"twelve bytes", SEED)
    for at in range(24 + 12):
        for bit in range(8):
            bad = bytearray(encoded)
            bad[at] ^= 1 << bit
            found = frame.decode(memoryview(bad), 0, SEED)
            assert found is None or at >= 20, f"byte {at}"
    assert frame.decode(memoryview(encoded)[:-8], 0, SEED) is None
    assert frame.decode(memoryview(encoded)[:20], 0, SEED) is None


@pytest.mark.parametrize("start", [frame.seed(UUID, 4), frame.seed(UUID, 6), frame.seed(uuid.UUID(int=7), 5), 0])
def test_another_life_or_store_does_not_verify(start: int) -> None:
    encoded = frame.encode(FrameType.TRANSACTION, 1, 7, b"x", SEED)
    assert frame.decode(memoryview(encoded), 0, start) is None


@pytest.mark.parametrize("payload", [b"", bytes(MAX_PAYLOAD + 1)])
def test_impossible_lengths_are_a_bug_of_the_caller(payload: bytes) -> None:
    with pytest.raises(ValueError, match="a frame holds 1 to"):
        frame.encode(FrameType.PAGE, 0, 0, payload, SEED)


@pytest.mark.parametrize(
    "header",
    [
        (0, 1, 1, 1, 0, 0),
        (MAX_PAYLOAD + 1, 1, 1, 1, 0, 0),
        (8, 0, 1, 1, 0, 0),
        (8, 3, 1, 1, 0, 0),
        (8, 1, 2, 1, 0, 0),
        (8, 1, 1, MAX_COUNT + 1, 0, 0),
    ],
)
def test_implausible_headers(header: tuple[int, ...]) -> None:
    assert frame.peek(memoryview(struct.pack("<IHHQII", *header)), 0) is None
