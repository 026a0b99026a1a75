"""How full the store may become, and how far eviction goes back."""

from __future__ import annotations

from dataclasses import dataclass

from hcfs.errors import UsageError
from hcfs.store import BLOCK, Store


@dataclass(frozen=True, slots=True)
class Excess:
    """What is occupied above a mark."""

    blocks: int
    objects: int

    def __bool__(self) -> bool:
        return self.blocks > 0 or self.objects > 0


class Watermarks:
    """Eviction in the background begins above `high` and ends at `low`, both parts of the capacity, and of the most
    objects that the store takes.

    Everything that isn't free counts as occupied, freed blocks that a reader still pins included: what a mark is for is
    that writers find free space.
    """

    def __init__(self, store: Store, high: float, low: float) -> None:
        """UsageError unless 0 < low < high <= 1."""
        if not 0 < low < high <= 1:
            raise UsageError(
                f"high_watermark={high} and low_watermark={low} can't be used: give parts of the capacity with "
                "0 < low_watermark < high_watermark <= 1, for example 0.95 and 0.90"
            )
        self._store = store
        self.high = high
        self.low = low

    def over_high(self) -> bool:
        """Whether background eviction is due; never on a read-only store, which can't evict."""
        return self._store.state != "read-only" and bool(self._excess(self.high))

    def over_low(self) -> Excess:
        """What background eviction, once it began, still has to free."""
        return self._excess(self.low)

    def _excess(self, mark: float) -> Excess:
        usage = self._store.usage()
        occupied = usage.capacity - usage.free - int(usage.capacity * mark)
        rows = usage.objects + usage.staged_objects - int(usage.max_objects * mark)
        return Excess(max(0, -(-occupied // BLOCK)), max(0, rows))
