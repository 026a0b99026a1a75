"""Removing what others left on a medium, so that nobody takes it for theirs."""

from __future__ import annotations

from hcfs.device.file import FileDevice
from hcfs.device.protocol import BLOCK, BlockDevice
from hcfs.device.signatures.medium import Medium
from hcfs.device.signatures.probe import scan

END_BYTES = 8 << 20
"""Zeroed at both ends: beyond the last place near an end where a format keeps a header or a copy of it (LUKS 2: 4 MiB,
a ZFS label: 0.5 MiB), with room to spare."""

_CHUNK = 1 << 20


def wipe(device: BlockDevice) -> None:
    """Zero both ends of a device, and every known signature's block between them, and flush; DeviceError if that fails.

    What lies beyond the last whole block is zeroed too.
    """
    edge = min(END_BYTES, device.size)
    _zero(device, 0, edge)
    _zero(device, max(edge, device.size - END_BYTES), device.size)
    for signature in scan(Medium.of_device(device)):
        block = signature.offset // BLOCK * BLOCK
        _zero(device, block, block + BLOCK)
    if isinstance(device, FileDevice):
        device.clear_tail()
    device.flush()


def _zero(device: BlockDevice, start: int, end: int) -> None:
    zeros = bytes(_CHUNK)
    for offset in range(start, end, _CHUNK):
        device.write(offset, memoryview(zeros)[: min(_CHUNK, end - offset)])
