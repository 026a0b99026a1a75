"""One mark on a medium."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """As text: `ext4 "scratch" at offset 1080`."""

    offset: int
    """Bytes from the medium's start to the magic number."""
    kind: str
    """libblkid's name (ext4, xfs, LVM2_member, crypto_LUKS, gpt, dos ...), or hcfs."""
    label: str | None = None

    def __str__(self) -> str:
        label = f' "{self.label}"' if self.label else ""
        return f"{self.kind}{label} at offset {self.offset}"
