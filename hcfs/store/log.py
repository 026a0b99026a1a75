"""The metadata log: appends batches of transactions to the current region. Format: docs/format.md, "Batch"."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hcfs.device import BlockDevice
from hcfs.store import frame
from hcfs.store.frame import FIRST_IN_BATCH, FrameType
from hcfs.store.superblock import BLOCK


def encode_batch(payloads: Sequence[bytes | bytearray], first_sequence: int, region_seed: int) -> bytes:
    """A batch's bytes: whole blocks."""
    parts: list[bytes] = []
    flags, start = FIRST_IN_BATCH, region_seed
    for index, payload in enumerate(payloads):
        encoded = frame.encode(FrameType.TRANSACTION, flags, first_sequence + index, payload, start)
        parts.append(encoded)
        flags, start = 0, frame.checksum(encoded)
    batch = b"".join(parts)
    return batch.ljust(-(-len(batch) // BLOCK) * BLOCK, b"\0")


class LogWriter:
    """Appends to one region's log. One caller at a time (the store's commit lock)."""

    def __init__(
        self, device: BlockDevice, uuid: UUID, start: int, length: int, generation: int, begin: int, at: int
    ) -> None:
        """start, length: the region in bytes; begin, at: where the log begins and where the next batch goes, bytes from
        the region's start."""
        self._device = device
        self._start = start
        self._length = length
        self._seed = frame.seed(uuid, generation)
        self.begin = begin
        self.at = at

    @property
    def room(self) -> int:
        """Bytes left for batches."""
        return self._length - self.at

    @property
    def half_full(self) -> bool:
        """Whether the log takes more than half of its room."""
        return self.at - self.begin > (self._length - self.begin) // 2

    def fits(self, payloads: Sequence[bytes | bytearray]) -> bool:
        """Whether there is room for a batch of these."""
        return sum(frame.padded(len(payload)) for payload in payloads) <= self.room // BLOCK * BLOCK

    def append(self, payloads: Sequence[bytes | bytearray], first_sequence: int) -> bool:
        """Write a batch behind the last one, without a flush; False, and nothing written, when it doesn't fit. Blocks;
        raises DeviceError."""
        if not self.fits(payloads):
            return False
        batch = encode_batch(payloads, first_sequence, self._seed)
        self._device.write(self._start + self.at, batch)
        self.at += len(batch)
        return True
