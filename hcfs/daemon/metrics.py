"""The `.hcfs/metrics` file: the status as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_GAUGES = {
    "capacity_bytes": "Bytes of the data area.",
    "used_bytes": "Bytes that committed names reach.",
    "free_bytes": "Bytes that belong to nothing.",
    "staged_bytes": "Bytes of versions that aren't published.",
    "pending_bytes": "Bytes given up, but still read by a handle or waiting for their record to be durable.",
    "quarantined_bytes": "Bytes of quarantined objects.",
    "evictable_bytes": "Part of the used bytes that could be evicted.",
    "dirty_bytes": "Part of the used bytes that no origin has yet.",
    "objects": "Committed files.",
    "staged_objects": "Versions that aren't published.",
    "quarantined_objects": "Objects that didn't verify.",
    "max_objects": "Most files, directories and symlinks that the store takes.",
    "fragmented_objects": "Objects in more than one extent.",
    "free_runs": "Into how many runs the free space is cut.",
    "largest_free_bytes": "Bytes of the longest free run.",
    "metadata_bytes": "Room in a metadata region that names, attributes and checksums take.",
    "metadata_limit_bytes": "Room in a metadata region that they may take.",
    "open_handles": "Open files and directories.",
}


def render(status: Mapping[str, Any]) -> bytes:
    """Prometheus' text format for a status as status.py makes it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    return generate_latest(registry)


class _StatusCollector(Collector):
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        status = self._status
        info = GaugeMetricFamily("hcfs_info", "What is mounted; always 1.", labels=["uuid", "label", "device", "state"])
        info.add_metric([str(status[name]) for name in ("uuid", "label", "device", "state")], 1)
        yield info
        for name, meaning in _GAUGES.items():
            yield GaugeMetricFamily(f"hcfs_{name}", meaning, value=status[name])
        memory = GaugeMetricFamily("hcfs_buffer_bytes", "The pool of I/O buffers.", labels=["share"])
        for share in ("budget", "in_use", "idle", "peak"):
            memory.add_metric([share], status["memory"][share])
        yield memory
        for name, value in status["counters"].items():
            yield CounterMetricFamily(f"hcfs_{name}", name.replace("_", " ") + " since the mount began", value=value)
        requests = CounterMetricFamily("hcfs_requests", "The kernel's requests, by opcode.", labels=["opcode"])
        for opcode, value in status["requests"].items():
            requests.add_metric([opcode], value)
        yield requests
        yield from self._namespaces()

    def _namespaces(self) -> Iterable[Metric]:
        objects = GaugeMetricFamily("hcfs_namespace_objects", "Committed files.", labels=["namespace"])
        used = GaugeMetricFamily("hcfs_namespace_used_bytes", "Bytes that they occupy.", labels=["namespace"])
        staged = GaugeMetricFamily("hcfs_namespace_staged_bytes", "Bytes being written.", labels=["namespace"])
        quota = GaugeMetricFamily("hcfs_namespace_quota_bytes", "Most of used and staged.", labels=["namespace"])
        evictions = CounterMetricFamily("hcfs_namespace_evictions", "Files evicted.", labels=["namespace"])
        for name, usage in self._status["namespaces"].items():
            objects.add_metric([name], usage["objects"])
            used.add_metric([name], usage["used_bytes"])
            staged.add_metric([name], usage["staged_bytes"])
            if usage["quota_bytes"] is not None:
                quota.add_metric([name], usage["quota_bytes"])
            evictions.add_metric([name], usage["evictions"])
        yield from (objects, used, staged, quota, evictions)
