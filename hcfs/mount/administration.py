"""What may be commanded through the control file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from hcfs.errors import UsageError
from hcfs.mount.control import Answer, Command
from hcfs.mount.filesystem import Filesystem
from hcfs.mount.scrubbing import Scrubbing
from hcfs.store import ROOT_ID, Kind
from hcfs.store.errors import StoreError


class Administration:
    """Commands over a filesystem, by name. Each blocks in the thread that brings it, holds no lock while it waits, and
    ends early, at the next piece of its work, when it is told to."""

    def __init__(self, filesystem: Filesystem, scrubbing: Scrubbing) -> None:
        self._fs = filesystem
        self._scrubbing = scrubbing

    def commands(self) -> Mapping[str, Callable[[Command], Answer]]:
        """For Control."""
        return {"evict": self.evict, "scrub": self._scrubbing.command}

    def evict(self, command: Command) -> Answer:
        """Words: namespace; bytes, or without them all that can go. What went is durable when this returns."""
        name, nbytes = command.words.text("namespace"), command.words.count("bytes")
        command.words.end()
        namespace = self._namespace(name)
        self._fs.store.require_writable()
        evicted = self._fs.cache.evict_namespace(namespace, nbytes, command.stopped)
        return {
            "freed_bytes": evicted.nbytes,
            "objects": evicted.objects,
            "kept": asdict(self._fs.cache.kept(namespace)),
            "stopped": command.stopped(),
        }

    def _namespace(self, name: str) -> int:
        """Id of a namespace; UsageError when there is none of that name."""
        try:
            encoded = name.encode(errors="surrogateescape")
            found = self._fs.store.lookup(ROOT_ID, encoded) if encoded else None
            if found is not None and self._fs.store.attributes(found).kind is Kind.DIRECTORY:
                return found
        except (StoreError, UnicodeEncodeError):
            pass
        raise UsageError(f"there is no namespace {name!r}")
