"""Policy over the store: namespaces, recency, eviction."""

from hcfs.cache.cache import Cache, CacheStatistics
from hcfs.cache.eviction import EvictedObjects
from hcfs.cache.namespaces import Namespaces
from hcfs.cache.options import ABOUT_ORIGIN, OPTIONS, ORIGIN, NamespaceOptions
from hcfs.cache.unsynced import ABSENT, ANYTHING, DOUBT, ETAG, SYNC, SyncRecord
from hcfs.cache.usage import NamespaceUsage
from hcfs.cache.victims import Kept

__all__ = [
    "ABOUT_ORIGIN",
    "ABSENT",
    "ANYTHING",
    "DOUBT",
    "ETAG",
    "OPTIONS",
    "ORIGIN",
    "SYNC",
    "Cache",
    "CacheStatistics",
    "EvictedObjects",
    "Kept",
    "NamespaceOptions",
    "NamespaceUsage",
    "Namespaces",
    "SyncRecord",
]
