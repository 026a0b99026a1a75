"""Policy over the store: namespaces, recency, eviction."""

from hcfs.cache.cache import Cache, CacheStatistics
from hcfs.cache.namespaces import Namespaces
from hcfs.cache.options import OPTIONS, NamespaceOptions
from hcfs.cache.usage import NamespaceUsage

__all__ = ["OPTIONS", "Cache", "CacheStatistics", "NamespaceOptions", "NamespaceUsage", "Namespaces"]
