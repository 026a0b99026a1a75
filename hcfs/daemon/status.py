"""What hcfs says about a mount: the content of the files under `.hcfs`."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from functools import partial
from typing import Any

from hcfs import __version__
from hcfs.daemon.metrics import render
from hcfs.daemon.scrubbing import Scrubbing
from hcfs.device import BlockDevice, BufferPool
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.places.control import Control
from hcfs.filesystem.places.virtual_tree import Member, VirtualTree, as_json
from hcfs.filesystem.versions.version import Version
from hcfs.frontends.front_ends import FrontEnd
from hcfs.options.mount_options import MountOptions
from hcfs.options.namespace_options import OPTIONS
from hcfs.remote.origins import Origins
from hcfs.store import BLOCK, ROOT_ID, Quarantined
from hcfs.store.discard import Discards


class StatusReport:
    """All from memory, at the moment it is asked."""

    def __init__(
        self,
        filesystem: Filesystem,
        device: BlockDevice,
        pool: BufferPool,
        options: MountOptions,
        *,
        source: str,
        directory: str,
        scrubbing: Scrubbing,
        control: Control | None = None,
        origins: Origins | None = None,
        discards: Discards | None = None,
    ) -> None:
        """source, directory: as the user gave them, made absolute. origins, discards: None where there are none."""
        self._fs = filesystem
        self._volume = filesystem.volume
        self._cache = filesystem.volume.cache
        self._parts = filesystem.parts
        self._control = control
        self._origins = origins
        self._device = device
        self._pool = pool
        self._options = options
        self._source = source
        self._directory = directory
        self._scrubbing = scrubbing
        self._discards = discards
        self._mounted_at = time.time()
        self.front: FrontEnd | None = None
        """Who speaks with the kernel."""
        self.data_plane_reason: str | None = None
        """Why it isn't the data plane."""

    def tree(self) -> VirtualTree:
        """The `.hcfs` directory."""
        files = {
            "status.json": lambda: as_json(self.status()),
            "metrics": lambda: render(self.status()),
            "config.json": lambda: as_json(self.config()),
            "staged": self.staged,
        }
        return VirtualTree(files, self._namespace_files, self._quarantine_files, self._owner)

    def _owner(self) -> tuple[int, int]:
        root = self._volume.store.attributes(ROOT_ID)
        return root.uid, root.gid

    def status(self) -> dict[str, Any]:
        """Fields of docs: `hcfs status --json` and `.hcfs/status.json`."""
        store = self._volume.store
        superblock, usage = store.superblock, store.usage()
        cache = self._cache.statistics()
        return {
            "version": __version__,
            "uuid": str(superblock.uuid),
            "label": superblock.label,
            "device": self._source,
            "directory": self._directory,
            "pid": os.getpid(),
            "mounted_at": self._mounted_at,
            "state": store.state,
            "state_reason": store.state_reason,
            "read_only": self._options.read_only,
            "io": self._device.io,
            "granule_bytes": superblock.granule,
            "data_plane": self.front.name if self.front else "none",
            "data_plane_reason": self.data_plane_reason,
            "requests": dict(self.front.requests()) if self.front else {},
            "thread_hops": self.front.hops() if self.front else 0,
            "requests_forwarded": dict(self.front.forwarded()) if self.front else {},
            "sharing": "handle" if self._volume.pid_zero_seen else "process",
            "capacity_bytes": usage.capacity,
            "used_bytes": usage.used,
            "free_bytes": usage.free,
            "staged_bytes": usage.staged,
            "pending_bytes": usage.pending,
            "quarantined_bytes": usage.quarantined,
            "evictable_bytes": cache.evictable_bytes,
            "dirty_bytes": cache.unsynced_bytes,
            "objects": usage.files,
            "staged_objects": usage.staged_objects,
            "quarantined_objects": usage.quarantined_objects,
            "max_objects": usage.max_objects,
            "fragmented_objects": usage.fragmented_objects,
            "free_runs": usage.free_runs,
            "largest_free_bytes": usage.largest_free,
            "metadata_bytes": store.metadata_room.used_bytes,
            "metadata_limit_bytes": superblock.metadata_limit,
            "open_handles": len(self._fs.handles),
            "memory": asdict(self._pool.statistics())
            | {"write_buffers": self.front.write_buffers() if self.front else 0},
            "discard": self._discarding(),
            "scrub": self._scrubbing.status(),
            "commands": self._control.under_way() if self._control is not None else [],
            "counters": self._counters(cache.evictions, cache.evicted_bytes),
            "origins": self._origins.status() if self._origins is not None else {},
            "namespaces": {_text(name): self._usage(oid) for name, oid in self._cache.namespaces.names().items()},
        }

    def config(self) -> dict[str, Any]:
        """Every option with the value in force."""
        return {
            "source": self._source,
            "directory": self._directory,
            "entry_timeout": self._options.entry_timeout,
            **self._options.in_force(),
        }

    def staged(self) -> bytes:
        """A line for each version that isn't published: size, state, process, open handles, age in seconds, path."""
        now = self._volume.clock()
        with self._volume.lock:
            lines = [self._staged_line(version, now) for version in self._parts.versions]
        return b"".join(line for line in lines if line)

    def _staged_line(self, version: Version, now: float) -> bytes:
        attributes = version.staged.attributes()
        owner = "-" if version.owner is None else str(version.owner.tgid)
        state = f"failed ({os.strerror(version.failed)})" if version.failed else version.stage
        path = self._parts.paths.shown(version).removeprefix("'").removesuffix("'")
        fields = (attributes.size, state, owner, version.handles, f"{now - version.created_at:.0f}", path)
        return "\t".join(map(str, fields)).encode() + b"\n"

    def _discarding(self) -> dict[str, Any]:
        discards = self._discards
        if discards is None:
            return {"mode": "off"}
        return {
            "mode": "batch",
            "pending_bytes": discards.pending_bytes,
            "discarded_bytes": discards.discarded_bytes,
            "refused_bytes": discards.refused_bytes,
        }

    def _counters(self, evictions: int, evicted_bytes: int) -> dict[str, int]:
        store, calls = self._volume.store.counters, self._volume.counts
        return {
            "lookups": calls.lookups,
            "lookup_misses": calls.lookup_misses,
            "opens": calls.opens,
            "read_bytes": store.read_bytes,
            "written_bytes": store.written_bytes,
            "commits": store.commits,
            "group_commits": store.group_commits,
            "checkpoints": store.checkpoints,
            "copied_bytes": self._pool.copied_bytes,
            "abandoned": calls.abandoned,
            "evictions": evictions,
            "evicted_bytes": evicted_bytes,
            "checksum_errors": store.checksum_errors,
            "device_errors": store.device_errors,
            "ingests": sum(origin.counts.ingests for origin in self._origins or ()),
            "uploads": sum(origin.counts.uploads for origin in self._origins or ()),
            "upload_failures": sum(origin.counts.upload_failures for origin in self._origins or ()),
        }

    def _usage(self, namespace: int) -> dict[str, Any]:
        usage = self._cache.namespaces.usage(namespace)
        options = self._cache.namespaces.options(namespace)
        return {
            "objects": usage.objects,
            "used_bytes": usage.used_bytes,
            "staged_bytes": usage.staged_bytes,
            "quota_bytes": options.quota,
            "salt_quota_bytes": options.salt_quota,
            "local_only": options.origin is None,
            "origin": options.origin,
            "write_policy": options.write_policy,
            "dirty_bytes": self._cache.unsynced_bytes(namespace),
            "evictions": usage.evictions,
            "salts": dict(usage.salts),
        }

    def _namespace_files(self) -> list[Member]:
        names = self._cache.namespaces.names().items()
        return [Member(name + b".json", oid, partial(self._namespace, name, oid)) for name, oid in names]

    def _namespace(self, name: bytes, oid: int) -> bytes:
        options = self._cache.namespaces.options(oid)
        values = {option: getattr(options, option) for option in OPTIONS}
        return as_json({"name": _text(name), **self._usage(oid), "options": values})

    def _quarantine_files(self) -> list[Member]:
        return [
            Member(b"%d.json" % each.id, each.id, partial(_quarantined, each))
            for each in self._volume.store.removals.quarantined()
        ]


def _quarantined(each: Quarantined) -> bytes:
    return as_json(
        {
            "id": each.id,
            "path": _text(each.path),
            "reason": each.reason,
            "bytes": each.blocks * BLOCK,
            "since": each.since_ns / 1_000_000_000,
        }
    )


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
