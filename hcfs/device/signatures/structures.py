"""Signatures that take more than a comparison: several fields, or a place that depends on the size."""

from __future__ import annotations

from collections.abc import Iterator

from hcfs.device.signatures.medium import Medium
from hcfs.device.signatures.signature import Signature

KIB = 1 << 10

_EXT_SUPERBLOCK = 1024
_EXT_COMPAT_HAS_JOURNAL = 0x4
_EXT_INCOMPAT_JOURNAL_DEVICE = 0x8
# What ext3 knows: filetype, recover, journal_dev, meta_bg; sparse_super, large_file, btree_dir.
_EXT3_INCOMPAT = 0x2 | 0x4 | 0x8 | 0x10
_EXT3_RO_COMPAT = 0x1 | 0x2 | 0x4

_LUKS2_SECONDARY_HEADERS = tuple(0x4000 << shift for shift in range(9))

_MD_MAGIC = 0xA92B4EFC

_ZFS_LABEL = 256 * KIB
_ZFS_NVLIST = 16 * KIB
_ZFS_UBERBLOCKS = 128 * KIB
_ZFS_UBERBLOCK_MAGIC = 0x00BAB10C

_FAT_NAMES = (b"FAT12   ", b"FAT16   ", b"FAT     ", b"MSDOS")
_MBR_ENTRIES = range(446, 510, 16)
_MBR_GPT_PROTECTIVE = 0xEE


def find_ext(medium: Medium) -> Iterator[Signature]:
    """An ext2, ext3 or ext4, or an external journal (jbd): told apart by their feature words, as libblkid does."""
    magic = _EXT_SUPERBLOCK + 56
    if not medium.has(b"\x53\xef", magic):
        return
    compat, incompat, ro_compat = (medium.number(_EXT_SUPERBLOCK + field, 4) for field in (92, 96, 100))
    if incompat & _EXT_INCOMPAT_JOURNAL_DEVICE:
        kind = "jbd"
    elif incompat & ~_EXT3_INCOMPAT or ro_compat & ~_EXT3_RO_COMPAT:
        kind = "ext4"
    else:
        kind = "ext3" if compat & _EXT_COMPAT_HAS_JOURNAL else "ext2"
    yield Signature(magic, kind, medium.text(_EXT_SUPERBLOCK + 120, 16))


def find_luks(medium: Medium) -> Iterator[Signature]:
    """LUKS 1 and 2; the second header of LUKS 2 also without the first."""
    if medium.has(b"LUKS\xba\xbe", 0):
        version = int.from_bytes(medium.at(6, 2), "big")
        yield Signature(0, "crypto_LUKS", medium.text(24, 48) if version == 2 else None)
    for offset in _LUKS2_SECONDARY_HEADERS:
        if medium.has(b"SKUL\xba\xbe", offset):
            yield Signature(offset, "crypto_LUKS", medium.text(offset + 24, 48))


def find_md(medium: Medium) -> Iterator[Signature]:
    """Members of Linux software RAID: superblock 0.90 and 1.0 near the end, 1.1 and 1.2 at the start."""
    old = medium.size // (64 * KIB) * (64 * KIB) - 64 * KIB
    for order in ("little", "big"):
        if old >= 0 and medium.has(_MD_MAGIC.to_bytes(4, order), old):
            yield Signature(old, "linux_raid_member")
    for offset in (medium.size // (4 * KIB) * (4 * KIB) - 8 * KIB, 0, 4 * KIB):
        if medium.number(offset, 4) == _MD_MAGIC and medium.number(offset + 4, 4) == 1:
            yield Signature(offset, "linux_raid_member", medium.text(offset + 32, 32))


def find_zfs(medium: Medium) -> Iterator[Signature]:
    """A member of a ZFS pool has four labels, two at each end: an XDR name-value list, and a ring of uberblocks."""
    end = medium.size // _ZFS_LABEL * _ZFS_LABEL
    for label in (0, _ZFS_LABEL, end - 2 * _ZFS_LABEL, end - _ZFS_LABEL):
        header = medium.at(label + _ZFS_NVLIST, 12)
        if header in (b"\1\0\0\0\0\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\0\0\0\0\1"):
            yield Signature(label + _ZFS_NVLIST, "zfs_member")
        for offset in range(label + _ZFS_UBERBLOCKS, label + _ZFS_LABEL, KIB):
            magic = medium.at(offset, 8)
            if magic and _ZFS_UBERBLOCK_MAGIC in (int.from_bytes(magic, "little"), int.from_bytes(magic, "big")):
                yield Signature(offset, "zfs_member")
                break


def find_gpt(medium: Medium) -> Iterator[Signature]:
    """A GUID partition table's header is in the second sector, its copy in the last, of 512 or 4096 bytes."""
    for sector in (512, 4096):
        for offset in (sector, medium.size // sector * sector - sector):
            if medium.has(b"EFI PART", offset):
                yield Signature(offset, "gpt")


def find_boot_sector(medium: Medium) -> Iterator[Signature]:
    """FAT, or an MBR: they share the 55 AA at the end of the first sector with exFAT, NTFS and boot loaders.

    Any 55 AA that no such filesystem explains counts as a partition table, an empty one too.
    """
    fat = medium.has(b"FAT32   ", 82) or medium.has(b"MSWIN", 82)
    if fat or any(medium.has(name, 54) for name in _FAT_NAMES):
        yield Signature(82 if fat else 54, "vfat", _fat_label(medium, 71 if fat else 43))
    elif medium.has(b"\x55\xaa", 510) and medium.at(3, 8) not in (b"EXFAT   ", b"NTFS    "):
        protective = any(medium.at(entry + 4, 1) == bytes([_MBR_GPT_PROTECTIVE]) for entry in _MBR_ENTRIES)
        yield Signature(510, "PMBR" if protective else "dos")


def _fat_label(medium: Medium, offset: int) -> str | None:
    label = medium.text(offset, 11, "cp437")
    return None if label == "NO NAME" else label


FINDERS = (find_ext, find_luks, find_md, find_zfs, find_gpt, find_boot_sector)
