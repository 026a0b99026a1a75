"""Marks that others leave on a medium: filesystems, volume managers, RAID members, partition tables.

The table is hcfs's own, so that nothing is overlooked where util-linux is absent or old; what an installed wipefs knows
beyond it is added. Kinds have libblkid's names. Places and magic numbers are those of the formats, compared with
libblkid's (util-linux 2.41).
"""

from __future__ import annotations

from hcfs.device.signatures.contents import contents
from hcfs.device.signatures.magics import HCFS_MAGIC
from hcfs.device.signatures.medium import Medium
from hcfs.device.signatures.probe import probe, scan
from hcfs.device.signatures.signature import Signature
from hcfs.device.signatures.wipe import wipe

__all__ = ["HCFS_MAGIC", "Medium", "Signature", "contents", "probe", "scan", "wipe"]
