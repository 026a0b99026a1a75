from __future__ import annotations

import uuid
import zlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from store.rig import GRANULE, UUID, content, new_store, put

from hcfs.store.granule import Checksummer, shift

LENGTHS = [0, 1, 7, 4096, GRANULE - 1, GRANULE, GRANULE + 1, 3 * GRANULE, 3 * GRANULE + 100]


@pytest.mark.parametrize("length", LENGTHS)
def test_plain_crc_follows_from_the_granules(length: int) -> None:
    checksummer = Checksummer(UUID, GRANULE)
    data = content(length, length)
    table = tuple(
        checksummer.checksum(77, at // GRANULE, data[at : at + GRANULE]) for at in range(0, len(data), GRANULE)
    )
    assert checksummer.plain(77, length, table) == crc32c(data)
    assert [len(data[at : at + GRANULE]) for at in range(0, length, GRANULE)] == checksummer.lengths(length)


@given(st.integers(0, 2**32 - 1), st.integers(0, 5000))
def test_shift_is_what_zeros_contribute(crc: int, length: int) -> None:
    # In terms of the raw register, which crc32c complements on the way in and out.
    assert shift(crc ^ 0xFFFFFFFF, length) ^ 0xFFFFFFFF == crc32c(bytes(length), crc)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_checksums_are_combined_as_zlib_does(first: bytes, second: bytes) -> None:
    assert shift(crc32c(first), len(second)) ^ crc32c(second) == crc32c(first + second)
    assert crc32c(b"123456789") == 0xE3069283  # the polynomial's check value
    assert crc32c(b"123456789") != zlib.crc32(b"123456789")


def test_identity_is_part_of_the_checksum() -> None:
    data, ours = content(0, 5000), Checksummer(UUID, GRANULE)
    found = {
        ours.checksum(1, 0, data),
        ours.checksum(2, 0, data),
        ours.checksum(1, 1, data),
        ours.checksum(1 << 32, 0, data),
        Checksummer(uuid.uuid4(), GRANULE).checksum(1, 0, data),
        crc32c(data),
    }
    assert len(found) == 6


@pytest.mark.parametrize("length", LENGTHS)
def test_content_crc_of_a_stored_object(length: int) -> None:
    store = new_store()
    data = content(length, length)
    oid = put(store, b"a", data)
    assert store.content.content_crc32c(oid) == crc32c(data)
    store.checkpoint()
    assert store.content.content_crc32c(oid) == crc32c(data)
