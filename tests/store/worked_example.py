"""The bytes that docs/format.md shows, made from fixed inputs. Run as a program, it prints them."""

from __future__ import annotations

import stat
import uuid
from dataclasses import replace

from hcfs.store import ROOT_ID, Superblock, plan
from hcfs.store import frame as frames
from hcfs.store.log import encode_batch
from hcfs.store.table import Row
from hcfs.store.transactions import MetadataIndex, Transaction

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TIME_NS = 1_767_323_045_000_000_000
"""2026-01-02 03:04:05 UTC"""


def superblock() -> Superblock:
    return replace(plan("cache.img", 16 << 20, label="cache0", max_objects=1024, uuid=UUID), created_ns=TIME_NS)


def batch() -> bytes:
    """What the first `mkdir kv` of a store writes, apart from the SERIAL item that precedes it."""
    index = MetadataIndex(superblock().granule)
    index.put(Row(ROOT_ID, stat.S_IFDIR | 0o755, 0, 0, 0, 0, *[TIME_NS] * 3, 1, TIME_NS, (), b"", b""))
    transaction = Transaction(index, TIME_NS)
    oid = 1 << 32 | index.table.take_slot()
    transaction.put(
        Row(oid, stat.S_IFDIR | 0o755, 1000, 1000, 0, 0, *[TIME_NS] * 3, 1, TIME_NS, (), b"", b""),
    )
    transaction.name(ROOT_ID, b"kv", oid)
    return encode_batch([transaction.payload], 1, frames.seed(UUID, 1))


def dump(data: bytes) -> str:
    """As `hexdump -C` shows it, without folding of equal lines."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        hexes = " ".join(f"{byte:02x}" for byte in part)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {hexes:<47}  |{text}|")
    return "\n".join(lines)


def shown() -> list[str]:
    """The two dumps: the superblock's fields and checksum, the batch up to its padding."""
    block, log = superblock().encode(), batch()
    used = len(log.rstrip(b"\0"))
    used += -used % 8
    assert log[used:].strip(b"\0") == b""
    return [dump(block[:200]), dump(log[:used])]


if __name__ == "__main__":
    print("\n\n".join(shown()))
    print(superblock())
    print(superblock().encode()[-4:].hex(" "))
