"""Pieces of memory on huge pages."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from hcfs.device import Arena
from hcfs.device.arena import HUGE

MIB = 1 << 20


def address(piece: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(piece))


def huge_bytes(at: int) -> int:
    """Of the mapping that an address lies in."""
    for entry in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE):
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", entry)
        if found and int(found[1], 16) <= at < int(found[2], 16):
            (kib,) = re.findall(r"^AnonHugePages: +(\d+) kB", entry, flags=re.MULTILINE)
            return int(kib) << 10
    raise AssertionError(f"no mapping has {at:x}")


@pytest.mark.parametrize("size", [4096, 256 << 10, MIB, HUGE, 3 * MIB, 5 * MIB])
def test_pieces_are_whole_and_apart(size: int) -> None:
    arena = Arena(size)
    pieces = [arena.take() for _ in range(5)]
    for number, piece in enumerate(pieces):
        assert len(piece) == size
        assert address(piece) % 4096 == 0
        piece[:] = bytes([number + 1]) * size
    assert all(piece == bytes([number + 1]) * size for number, piece in enumerate(pieces))


def test_two_of_a_mebibyte_share_a_huge_page() -> None:
    arena = Arena(MIB)
    pieces = [arena.take() for _ in range(8)]
    assert sorted(address(piece) % HUGE for piece in pieces) == [0] * 4 + [MIB] * 4
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("this kernel gives no huge pages to who asks for them")
    for piece in pieces:
        piece[:4096] = bytes(4096)
    # Where memory is in pieces the kernel has none to give: one of four proves that it was asked.
    assert any(huge_bytes(address(piece)) for piece in pieces)


def test_what_is_given_back_has_no_pages() -> None:
    arena = Arena(MIB)
    one, other = arena.take(), arena.take()
    one[:], other[:] = b"1" * MIB, b"2" * MIB
    arena.give(one)
    again = arena.take()
    assert address(again) == address(one)
    assert again == bytes(MIB)
    assert other == b"2" * MIB
