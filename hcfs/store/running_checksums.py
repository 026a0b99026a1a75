"""Checksums of granules that are still being written."""

from __future__ import annotations

from crc32c import crc32c

from hcfs.store.granule import Checksummer

_UNKNOWN = (0, -1)
"""A granule whose checksum must be computed from its bytes"""


class RunningChecksums:
    """Follows an object's bytes as they are written, so that most granules needn't be read again to be checksummed.

    Calls for one granule at the same time may mix up its checksum: the caller then forgets it (`invalidate`)."""

    def __init__(self, checksummer: Checksummer, oid: int) -> None:
        self._checksummer = checksummer
        self._oid = oid
        self._granules: dict[int, tuple[int, int]] = {}
        """Granule -> (checksum so far, bytes that it covers from the granule's start)"""

    def advance(self, offset: int, data: memoryview) -> None:
        """Take in bytes at `offset`: where they continue what is covered, or begin the granule anew, they count."""
        granule_bytes, at = self._checksummer.granule_bytes, 0
        while at < len(data):
            granule, within = divmod(offset + at, granule_bytes)
            count = min(granule_bytes - within, len(data) - at)
            crc, covered = self._granules.get(granule, (0, 0))
            if within in (0, covered) and covered <= within + count:
                start = crc if within else self._checksummer.seed(self._oid, granule)
                self._granules[granule] = (crc32c(data[at : at + count], start), within + count)
            else:
                self._granules[granule] = _UNKNOWN
            at += count

    def known(self, granule: int, length: int) -> int | None:
        """The checksum of a granule of `length` bytes, if the bytes that were taken in are just these."""
        crc, covered = self._granules.get(granule, _UNKNOWN)
        return crc if covered == length else None

    def set(self, granule: int, length: int, crc: int) -> None:
        """Note a checksum that was computed from the granule's bytes."""
        self._granules[granule] = (crc, length)

    def invalidate(self, first: int, end: int) -> None:
        """What is known of the granules [first, end) can't be relied on."""
        for granule in [g for g in list(self._granules) if first <= g < end]:
            self._granules[granule] = _UNKNOWN

    def cut(self, first: int) -> None:
        """The granules from `first` on lose bytes at their end."""
        for granule in [g for g in list(self._granules) if g >= first]:
            del self._granules[granule]
