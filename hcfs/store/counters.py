"""What happened since a store was opened."""

from __future__ import annotations


class Counters:
    """What happened since the store was opened; changed under the store's lock or by one thread alone."""

    def __init__(self) -> None:
        self.commits = 0
        """Objects published"""
        self.group_commits = 0
        self.checkpoints = 0
        self.abandoned = 0
        self.checksum_errors = 0
        self.device_errors = 0
        self.read_bytes = 0
        """Verified bytes handed to readers"""
        self.written_bytes = 0
        """Bytes taken from writers"""
