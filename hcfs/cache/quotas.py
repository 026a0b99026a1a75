"""Quotas: what a namespace, and each LMCache salt in it, may occupy; counted by the block as writers take them.

Bound is the sum of what names lead to (used) and of what is being written (staged), whole blocks each. What was
removed, replaced or evicted belongs to nobody from that moment on, also while a handle keeps it: it is the device's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from hcfs.cache.salts import salt_of, staged_salt_of
from hcfs.cache.usage import Owner, UsageCounts
from hcfs.errors import HcfsError
from hcfs.options.namespace_options import NamespaceOptions
from hcfs.store import BLOCK
from hcfs.store.accounts import UNLIMITED

SPARE_PART = 256
SPARE_BLOCKS_MAX = (64 << 20) // BLOCK
"""Who finds a quota used up frees quota / SPARE_PART for the next ones too, at most SPARE_BLOCKS_MAX: looking for
victims begins at the oldest object each time."""

SALT_SPARE_PART = 64
"""The same for a salt, without that bound: on the way to its objects lie all those of other salts that are older, some
0.25 s for a million."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What has to be evicted, and where, before a writer may go on."""

    owner: Owner
    """The namespace, or the salt in it, whose quota it is."""
    blocks: int
    """That the quota is short of."""
    spare: int
    """That it is worth freeing beside them."""


class Quotas:
    """Counts what is staged, beside the used blocks of the UsageCounts, and compares both with the namespaces' options.

    Everything that changes a count runs under the store's lock, so who holds that sees used and staged of one moment.
    Where no quota is set, a writer pays for two dictionary entries an allocation and takes no lock.
    """

    def __init__(self, lock: threading.Lock, usage: UsageCounts, options: Callable[[int], NamespaceOptions]) -> None:
        """lock: guards usage. options: of a namespace; HcfsError for one that is gone."""
        self._lock = lock
        self._usage = usage
        self._options = options
        self._staged: dict[Owner, int] = {}
        self.changed: set[int] = set()
        """Namespaces whose quotas were set since they were last found to be kept."""

    def charge(self, owner: Owner, blocks: int) -> None:
        """Blocks of the owner were staged; below 0: published or given up. The caller holds the store's lock."""
        for one in {owner, owner.whole}:
            count = self._staged.get(one, 0) + blocks
            if count:
                self._staged[one] = count
            else:
                self._staged.pop(one, None)

    def staged(self, namespace: int) -> int:
        """Blocks of a namespace that are staged. The caller holds the store's lock."""
        return self._staged.get(Owner(namespace), 0)

    def allowance(self, owner: Owner) -> int:
        """Blocks that may still be taken; UNLIMITED without a quota. The caller holds the store's lock."""
        return min((limit - taken for _, limit, taken in self._bounds(owner)), default=UNLIMITED)

    def shortage(self, owner: Owner, blocks: int, *, moved: bool = False) -> Shortage | None:
        """Where eviction has to begin so that so many more blocks fit; None when they fit. moved: they are the
        namespace's already, and come to the owner's salt. The caller holds the store's lock."""
        for one, limit, taken in self._bounds(owner, moved=moved):
            if taken + blocks > limit:
                whole = one.salt is None
                spare = min(limit // SPARE_PART, SPARE_BLOCKS_MAX) if whole else limit // SALT_SPARE_PART
                return Shortage(one, taken + blocks - limit, spare)
        return None

    def fits_alone(self, owner: Owner, blocks: int, *, moved: bool = False) -> bool:
        """Whether so many blocks fit the quotas when everything of the owner's that is committed is gone. moved: as for
        `shortage`. The caller holds the store's lock."""
        return all(self._staged.get(one, 0) + blocks <= limit for one, limit, _ in self._bounds(owner, moved=moved))

    def excess(self, namespace: int) -> Shortage | None:
        """A quota of the namespace that is exceeded by what could be evicted, because it was lowered or set; None when
        there is none. The caller holds the store's lock."""
        salt_quota = self._limits(namespace)[1]
        if salt_quota is not None:
            with self._lock:
                salts = self._usage.salts(namespace)
            for salt, blocks in salts.items():
                if blocks > salt_quota:
                    return Shortage(Owner(namespace, salt), blocks - salt_quota, 0)
        found = self.shortage(Owner(namespace), 0)
        return None if found is None else replace(found, spare=0)

    def owner(self, namespace: int, name: bytes) -> Owner:
        """Whose a file of this name is, or will be once it is renamed from this staging name."""
        salt = salt_of(name)
        if salt is None and self._options(namespace).is_staging_name(name):
            salt = staged_salt_of(name)
        return Owner(namespace, salt)

    def differ(self, namespace: int, name: bytes, other: bytes) -> bool:
        """Whether two names of a namespace belong to different salts that have quotas of their own."""
        return self._limits(namespace)[1] is not None and salt_of(name) != salt_of(other)

    def _bounds(self, owner: Owner, *, moved: bool = False) -> list[tuple[Owner, int, int]]:
        """(owner, limit, blocks taken) of each quota that bounds the owner, a salt's first; moved: that alone."""
        quota, salt_quota = self._limits(owner.namespace)
        limits = [(owner, salt_quota)] if owner.salt is not None and salt_quota is not None else []
        if quota is not None and not moved:
            limits.append((owner.whole, quota))
        if not limits:
            return []
        with self._lock:
            return [(one, limit, self._usage.blocks_in(one) + self._staged.get(one, 0)) for one, limit in limits]

    def _limits(self, namespace: int) -> tuple[int | None, int | None]:
        """The quotas of a namespace and of its salts, in whole blocks."""
        try:
            options = self._options(namespace)
        except HcfsError:
            return None, None
        return _blocks(options.quota), _blocks(options.salt_quota)


def _blocks(nbytes: int | None) -> int | None:
    return None if nbytes is None else nbytes // BLOCK


@dataclass(frozen=True, slots=True)
class QuotaAccount:
    """One owner's account, as the store asks for it (hcfs.store.accounts.Account)."""

    quotas: Quotas
    evict: Callable[[Owner, int], bool]
    """Frees so many blocks of the owner's; see QuotaEviction.make_room."""
    owner: Owner

    def allowance(self) -> int:
        return self.quotas.allowance(self.owner)

    def charge(self, blocks: int) -> None:
        self.quotas.charge(self.owner, blocks)

    def make_room(self, blocks: int) -> bool:
        return self.evict(self.owner, blocks)

    def refusal(self, blocks: int) -> str:
        salt = self.owner.salt
        whose = "its namespace" if salt is None else f"the cache salt {salt.decode(errors='backslashreplace')!r}"
        return (
            f"the quota of {whose} has no room for {blocks * BLOCK} more bytes, and nothing of its own can be evicted; "
            "raise it with 'hcfs ns set'"
        )
