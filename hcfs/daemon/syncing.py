"""The command about what origins don't have yet: shown, waited for, uploaded again, or given up."""

from __future__ import annotations

import errno
from collections.abc import Callable

from hcfs.cache import ANYTHING
from hcfs.errors import UsageError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.places.control import POLL, Answer, Command
from hcfs.filesystem.versions.version import Name
from hcfs.origin import CONFLICT
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.origins import Origins
from hcfs.remote.uploading.unsynced_files import SHOWN_MAX
from hcfs.store import Kind


class Syncing:
    """Blocks in the thread that brings the command, which ends early when it is told to."""

    def __init__(self, filesystem: Filesystem, origins: Origins | None, namespace: Callable[[str], int]) -> None:
        """origins: None where the mount has none. namespace: finds one by name; UsageError when there is none."""
        self._store = filesystem.volume.store
        self._cache = filesystem.volume.cache
        self._lock = filesystem.volume.lock
        self._origins = origins
        self._namespace = namespace

    def command(self, command: Command) -> Answer:
        """Words: namespace; retry, to upload what was given up again; discard, the path of one file to drop from the
        device; overwrite, that of one to upload whatever the origin has there; check, that of one for which either
        could be said, and nothing is done; wait, until nothing is on its way.

        Without more than the namespace it only tells. Answers what its origin doesn't have, SHOWN_MAX of them one by
        one."""
        words = command.words
        name, retry, wait = words.text("namespace"), words.flag("retry"), words.flag("wait")
        discard, overwrite = words.optional_text("discard"), words.optional_text("overwrite")
        check = words.optional_text("check")
        words.end()
        namespace = self._namespace(name)
        origin = None if self._origins is None else self._origins.of(namespace)
        if origin is None or self._origins is None:
            raise UsageError(f"namespace {name!r} has no origin, so nothing of it is ever uploaded")
        uploads = self._origins.uploads
        answer: dict[str, object] = {}
        if check is not None:
            with self._lock:
                if uploads.at(self._unsynced(namespace, check)) is None:
                    raise _not_unsynced(check)
        if discard is not None:
            where = self._unsynced(namespace, discard)
            if not uploads.discard(origin, where):
                raise _not_unsynced(discard)
            answer["discarded"] = [discard]
        with self._lock:
            if overwrite is not None:
                unsynced = uploads.at(self._unsynced(namespace, overwrite))
                if unsynced is None:
                    raise _not_unsynced(overwrite)
                self._require_uploader(origin)
                uploads.retry(unsynced, base=ANYTHING)
            if retry:
                self._require_uploader(origin)
                for each in uploads.of(namespace):
                    uploads.retry(each)
        if wait:
            self._require_allowed(origin)
            uploads.wait(namespace, command.stopped, POLL)
        with self._lock:
            unsynced_files = uploads.of(namespace)
            states = [each.state for each in unsynced_files]
            return answer | {
                "dirty": states.count("dirty"),
                "uploading": states.count("uploading"),
                "sync_failed": states.count("sync-failed"),
                "unsynced_bytes": self._cache.unsynced_bytes(namespace),
                "objects": [uploads.shown(each) for each in unsynced_files[:SHOWN_MAX]],
                "stopped": command.stopped(),
            }

    def _require_allowed(self, origin: Origin) -> None:
        if origin.not_allowed is not None:
            raise CallError(errno.EACCES, f"nothing is uploaded here: {origin.not_allowed}")

    def _require_uploader(self, origin: Origin) -> None:
        self._require_allowed(origin)
        if origin.uploader is None:
            raise CallError(errno.EROFS, "the namespace's write policy is read-only: nothing is uploaded")

    def _unsynced(self, namespace: int, path: str) -> Name:
        """Directory and name of a path below a namespace."""
        store, parts = self._store, path.encode(errors="surrogateescape").strip(b"/").split(b"/")
        parent = namespace
        for part in parts[:-1]:
            found = store.lookup(parent, part) if part else None
            if found is None or store.attributes(found).kind is not Kind.DIRECTORY:
                raise _not_unsynced(path)
            parent = found
        return parent, parts[-1]


def is_conflict(reason: str) -> bool:
    """Whether an upload was given up since somebody else has written what it was to replace."""
    return CONFLICT in reason


def _not_unsynced(path: str) -> UsageError:
    return UsageError(f"{path!r} isn't a file that the origin doesn't have: give a path as 'hcfs sync' lists it")
