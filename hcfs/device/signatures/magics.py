"""Signatures that are bytes at a fixed place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hcfs.device.protocol import BLOCK
from hcfs.device.signatures.medium import Medium
from hcfs.device.signatures.signature import Signature

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

HCFS_MAGIC = b"HCFS\x89\r\n\x1a"
"""Of hcfs itself, at the start of the first and of the last whole block."""

BTRFS_MAGIC = b"_BHRfS_M"
BTRFS_SUPERBLOCKS = (64 * KIB, 64 * MIB, 256 * GIB)

_BCACHE = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_BCACHEFS = bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")
_PAGE_SIZES = (4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)


@dataclass(frozen=True, slots=True)
class Magic:
    """`value` at `offset`, which counts from the end when it is negative."""

    kind: str
    value: bytes
    offset: int
    label: tuple[int, int] | None = None
    """Offset from the start, and length, of a name in UTF-8."""
    label_encoding: str = "utf-8"


MAGICS = (
    Magic("hcfs", HCFS_MAGIC, 0),
    Magic("xfs", b"XFSB", 0, (108, 12)),
    *(Magic("btrfs", BTRFS_MAGIC, start + 0x40, (start + 0x12B, 256)) for start in BTRFS_SUPERBLOCKS),
    *(Magic("LVM2_member", b"LVM2 001", 512 * sector + 24) for sector in range(4)),
    *(Magic("swap", b"SWAPSPACE2", page - 10, (KIB + 28, 16)) for page in _PAGE_SIZES),
    *(Magic("swap", b"SWAP-SPACE", page - 10) for page in _PAGE_SIZES),
    *(
        Magic("swsuspend", value, page - 10)
        for page in _PAGE_SIZES
        for value in (b"S1SUSPEND\0", b"S2SUSPEND\0", b"ULSUSPEND\0", b"LINHIB0001")
    ),
    Magic("exfat", b"EXFAT   ", 3),
    Magic("ntfs", b"NTFS    ", 3),
    Magic("ReFS", b"\0\0\0ReFS\0", 0),
    Magic("BitLocker", b"-FVE-FS-", 3),
    Magic("iso9660", b"CD001", 32 * KIB + 1, (32 * KIB + 40, 32)),
    Magic("udf", b"NSR02", 34 * KIB + 1),
    Magic("udf", b"NSR03", 34 * KIB + 1),
    Magic("udf", b"NSR02", 36 * KIB + 1),
    Magic("udf", b"NSR03", 36 * KIB + 1),
    Magic("bcache", _BCACHE, 4 * KIB + 24, (4 * KIB + 72, 32)),
    Magic("bcachefs", _BCACHEFS, 4 * KIB + 24, (4 * KIB + 72, 32)),
    Magic("bcachefs", _BCACHEFS, 2 * MIB + 24, (2 * MIB + 72, 32)),
    Magic("bcachefs", _BCACHEFS, -MIB + 24),
    Magic("f2fs", b"\x10\x20\xf5\xf2", KIB, (KIB + 124, 1024), "utf-16-le"),
    Magic("f2fs", b"\x10\x20\xf5\xf2", 5 * KIB),
    Magic("squashfs", b"hsqs", 0),
    Magic("squashfs", b"sqsh", 0),
    Magic("erofs", b"\xe2\xe1\xf5\xe0", KIB, (KIB + 64, 16)),
    Magic("cramfs", b"\x45\x3d\xcd\x28", 0),
    Magic("cramfs", b"\x28\xcd\x3d\x45", 0),
    Magic("jfs", b"JFS1", 32 * KIB, (32 * KIB + 152, 16)),
    Magic("reiserfs", b"ReIsErFs", 64 * KIB + 52),
    Magic("reiserfs", b"ReIsEr2Fs", 64 * KIB + 52, (64 * KIB + 100, 16)),
    Magic("reiserfs", b"ReIsEr3Fs", 64 * KIB + 52, (64 * KIB + 100, 16)),
    Magic("reiserfs", b"ReIsErFs", 8 * KIB + 52),
    Magic("reiser4", b"ReIsEr4", 64 * KIB),
    Magic("gfs2", b"\x01\x16\x19\x70", 64 * KIB),
    *(Magic("ocfs2", b"OCFSV2", block) for block in (KIB, 2 * KIB, 4 * KIB, 8 * KIB)),
    Magic("oracleasm", b"ORCLDISK", 32),
    Magic("apfs", b"NXSB", 32),
    Magic("hfsplus", b"H+\0\4", KIB),
    Magic("hfsplus", b"HX\0\5", KIB),
    Magic("stratis", b"!Stra0tis\x86\xff\x02^\x41rh", 512 + 4),
    Magic("stratis", b"!Stra0tis\x86\xff\x02^\x41rh", 9 * 512 + 4),
    Magic("vdo", b"dmvdo001", 0),
    Magic("ceph_bluestore", b"bluestore block device", 0),
    Magic("VMFS_volume_member", b"\x0d\xd0\x01\xc0", MIB),
    Magic("VMFS", b"\x5e\xf1\xab\x2f", 2 * MIB),
    Magic("DM_snapshot_cow", b"SnAp", 0),
    Magic("DM_verity_hash", b"verity\0\0", 0),
    Magic("DM_integrity", b"integrt\0", 0),
    *(Magic("drbd", b"\x83\x74\x02" + version, -4 * KIB + 60) for version in (b"\x6b", b"\x6c", b"\x6d")),
    Magic("isw_raid_member", b"Intel Raid ISM Cfg Sig. ", -2 * 512),
    Magic("ddf_raid_member", b"\xde\x11\xde\x11", -512),
    Magic("ddf_raid_member", b"\xde\x11\xde\x11", -257 * 512),
)


def find_magics(medium: Medium) -> Iterator[Signature]:
    """The entries of the table that are on the medium."""
    for magic in MAGICS:
        # Whoever places something at the end counts whole sectors.
        offset = magic.offset if magic.offset >= 0 else medium.size // 512 * 512 + magic.offset
        if medium.has(magic.value, offset):
            label = medium.text(*magic.label, magic.label_encoding) if magic.label else None
            yield Signature(offset, magic.kind, label)
    last_block = medium.size // BLOCK * BLOCK - BLOCK
    if last_block > 0 and medium.has(HCFS_MAGIC, last_block):
        yield Signature(last_block, "hcfs")
