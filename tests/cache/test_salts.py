"""Cache salts in LMCache's file names."""

from __future__ import annotations

import pytest

from hcfs.cache.salts import salt_of


@pytest.mark.parametrize(
    ("name", "salt"),
    [
        (b"meta-llama-SEP-Llama@0x01000100@0@00ff00ff00ff00ff@tenant-a.data", b"tenant-a"),
        (b"m@0x01000100@1f@00ff00ff@t.data", b"t"),
        (b"@0x01000100@0@00ff00ff@a.data.data", b"a.data"),
        (b"m@0x01000100@0@00ff00ff@\xff\n.data", b"\xff\n"),
        (b"m@0x01000100@00ff00ff00ff00ff@t.data", b"t"),  # before object groups
        (b"m@0x01000100@0@00ff00ff.data", None),
        (b"m@0x01000100@00ff00ff.data", None),
        (b"m@0x01000100@0@00ff00ff@.data", None),
        (b"m@0x01000100@0@00ff00ff@t.tmp", None),
        (b"m@0x01000100@0@00ff00ff@t@u.data", None),
        (b"m@01000100@0@00ff00ff@t.data", None),
        (b"m@0x01000100@0@nothex00@t.data", None),
        (b"model.safetensors", None),
        (b"", None),
    ],
)
def test_the_salt_is_the_last_field_of_a_salted_chunk(name: bytes, salt: bytes | None) -> None:
    assert salt_of(name) == salt
