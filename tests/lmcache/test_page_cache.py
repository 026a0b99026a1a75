"""O_DIRECT goes past the page cache, and is not given up silently."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from lab.harness.lmcache.driver import MIB, Client, Worker, make_chunks

LENGTH = 2 * MIB


def resident_pages(path: Path) -> int:
    """How many of a file's pages are in the page cache; mapping it brings none in."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = path.stat().st_size
    fd = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    try:
        assert libc.mincore(address, size, pages) == 0, os.strerror(ctypes.get_errno())
    finally:
        libc.munmap(address, size)
    return sum(page & 1 for page in pages.raw)


@pytest.mark.parametrize("kind", ["client", "adapter"])
def test_direct_chunks_leave_the_page_cache_empty(worker: Worker, kind: str, kv: Path) -> None:
    chunks = make_chunks(4, LENGTH)
    with Client(worker, kind, kv, direct=True) as client:
        client.store(chunks)
        assert client.load(chunks) == [0] * 4
    assert [resident_pages(kv / chunk.name) for chunk in chunks] == [0] * 4


def test_buffered_chunks_fill_it(worker: Worker, base: Path) -> None:
    """So the count above can be other than 0."""
    chunks = make_chunks(4, LENGTH)
    with Client(worker, "client", base) as client:
        client.store(chunks)
        assert client.load(chunks) == [0] * 4
    assert [resident_pages(base / chunk.name) for chunk in chunks] == [LENGTH // mmap.PAGESIZE] * 4


def test_lengths_off_the_block_are_buffered_by_the_client(worker: Worker, base: Path) -> None:
    """Silently: docs/clients.md says so, LMCache doesn't."""
    chunks = make_chunks(2, LENGTH + 100)
    with Client(worker, "client", base, direct=True) as client:
        client.store(chunks)
        assert client.load(chunks) == [0] * 2
    assert all(resident_pages(base / chunk.name) > 0 for chunk in chunks)
