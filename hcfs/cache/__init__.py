"""Policy over the store: namespaces, recency, eviction."""

from hcfs.cache.cache import Cache, CacheStatistics
from hcfs.cache.eviction import EvictedObjects
from hcfs.cache.namespaces import Namespaces
from hcfs.cache.unsynced import ABSENT, ANYTHING, DOUBT, ETAG, SYNC, SyncRecord
from hcfs.cache.usage import NamespaceUsage
from hcfs.cache.victims import Kept

__all__ = [
    "ABSENT",
    "ANYTHING",
    "DOUBT",
    "ETAG",
    "SYNC",
    "Cache",
    "CacheStatistics",
    "EvictedObjects",
    "Kept",
    "NamespaceUsage",
    "Namespaces",
    "SyncRecord",
]
