"""One mark on a medium."""

from __future__ import annotations

from dataclasses import dataclass

COMMON_NAMES = {"dos": "MBR partition table", "PMBR": "protective MBR", "gpt": "GPT partition table"}
"""What people call the kinds whose names in libblkid they may not know."""


@dataclass(frozen=True, slots=True)
class Signature:
    """As text: `ext4 "scratch" at offset 1080`."""

    offset: int
    """Bytes from the medium's start to the magic number."""
    kind: str
    """As libblkid calls it (ext4, xfs, LVM2_member, crypto_LUKS, gpt, dos ...), or hcfs."""
    label: str | None = None

    def __str__(self) -> str:
        label = f' "{self.label}"' if self.label else ""
        known_as = f" ({COMMON_NAMES[self.kind]})" if self.kind in COMMON_NAMES else ""
        return f"{self.kind}{known_as}{label} at offset {self.offset}"
