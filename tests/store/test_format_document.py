"""docs/format.md shows bytes; they are the code's."""

from __future__ import annotations

import re
from pathlib import Path

from store import worked_example

from hcfs.store import BLOCK
from hcfs.store import frame as frames
from hcfs.store.superblock import decode
from hcfs.store.transactions import MetadataIndex, apply

DOCUMENT = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
EXAMPLE = DOCUMENT[DOCUMENT.index("## Worked example") : DOCUMENT.index("## What a crash leaves")]


def test_the_dumps_are_what_the_code_writes() -> None:
    assert re.findall(r"```\n(.*?)\n```", EXAMPLE, re.DOTALL) == worked_example.shown()
    checksum = worked_example.superblock().encode()[-4:].hex(" ")
    assert f"the checksum, `{checksum}`, at 4092" in EXAMPLE


def test_the_example_is_readable() -> None:
    assert decode(worked_example.superblock().encode()) == worked_example.superblock()
    batch = worked_example.batch()
    assert len(batch) == BLOCK
    frame = frames.decode(memoryview(batch), 0, frames.seed(worked_example.UUID, 1))
    assert frame is not None
    index = MetadataIndex(65536)
    apply(frame.payload, index)
    assert index.table.id[2] == 1 << 32 | 2


def test_the_table_covers_the_frame_without_gaps() -> None:
    at = 0
    for offset, length in re.findall(r"^\| 0x([0-9a-f]+) \| (\d+) \|", EXAMPLE, re.MULTILINE):
        assert int(offset, 16) == at
        at += int(length)
    assert at == len(worked_example.batch().rstrip(b"\0")) + -len(worked_example.batch().rstrip(b"\0")) % 8
