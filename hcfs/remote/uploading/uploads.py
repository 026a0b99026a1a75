"""Write-back: what was published here goes to its origin in the background, and isn't evicted before it is there."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from hcfs.cache import ANYTHING, DOUBT, ETAG, SYNC, SyncRecord
from hcfs.errors import HcfsError
from hcfs.filesystem.versions.version import Name
from hcfs.filesystem.volume import Volume
from hcfs.origin import Access, Listed, OriginError, Outgoing, Patience, Uploaded
from hcfs.remote.namespace_origin import Origin, OriginRegistry
from hcfs.remote.uploading.unsynced_files import Unsynced, UnsyncedFiles
from hcfs.remote.uploading.upload_source import key_of, outgoing_object
from hcfs.store.errors import DamagedGranule

log = logging.getLogger(__name__)

UPLOADS_AT_ONCE = 4
"""For each namespace: one request after the other leaves most of a connection's time to latency, and more of them hold
more memory (hcfs.origin.uploader.BODIES_MAX). A namespace has its own threads, so that an origin that hangs holds up no
other's."""

REASON_MAX = 400
"""Characters of a reason that is kept."""


class Uploads(UnsyncedFiles):
    """The unsynced files of a mount, and the threads that upload them.

    One upload, or removal, of a name is under way at a time, so the origin gets a name's contents in the order in which
    they were published. A content that is replaced meanwhile is marked as gone: its end marks nothing clean."""

    def __init__(self, core: Volume, origins: OriginRegistry, stop: threading.Event, *, attempts: int) -> None:
        super().__init__(core)
        self._origins = origins
        self.stop = stop
        self._attempts = attempts
        self._busy: set[Name] = set()
        self._doubted: set[Name] = set()
        self._wanted: Counter[Name] = Counter()
        self._threads: dict[int, ThreadPoolExecutor] = {}

    # --- one at a time -----------------------------------------------------------------------------------------------

    def is_busy(self, name: Name) -> bool:
        """Whether a name's content is on its way, or is being removed, at this moment. The core's lock is held."""
        return name in self._busy

    @contextmanager
    def hold(self, name: Name, *, halt: bool = False) -> Iterator[None]:
        """Nobody else uploads or removes a name's content meanwhile; waits for whoever does. halt: who uploads is to
        end early, and begins again afterwards. Blocks; no lock is held."""
        with self._changed:
            self._wanted[name] += 1
            while name in self._busy:
                unsynced = self._by_name.get(name)
                if halt and unsynced is not None:
                    unsynced.halt.set()
                self._changed.wait()
            self._wanted[name] -= 1
            if not self._wanted[name]:
                del self._wanted[name]
            self._busy.add(name)
        try:
            yield
        finally:
            self._release(name)

    @contextmanager
    def doubted(self, name: Name) -> Iterator[None]:
        """What a name leads to is replaced or removed at the origin meanwhile. If the origin has it, and the daemon
        crashes before the device has followed, the next mount drops it; so does it with what is published there before
        `settled`. The name is held; blocks for a commit."""
        core = self._core
        with core.lock, core.store.atomically():
            self._doubted.add(name)
            oid = core.store.lookup(*name)
            clean = oid is not None and core.store.get_xattr(oid, ETAG) is not None
            if oid is not None and clean:
                core.store.replace_xattrs(oid, {DOUBT: b""})
        if clean:
            core.store.commit()
        try:
            yield
        except BaseException:
            with core.lock, core.store.atomically(), suppress(HcfsError):  # its directory is gone
                self._doubted.discard(name)
                oid = core.store.lookup(*name)  # another one, where its close was before
                if oid is not None and core.store.get_xattr(oid, DOUBT) is not None:
                    core.store.replace_xattrs(oid, {DOUBT: None})
            raise

    def is_doubted(self, name: Name) -> bool:
        """Whether what is published under a name just now may be replaced at the origin already. The core's lock is
        held."""
        return name in self._doubted

    def settled(self, name: Name) -> None:
        """The origin has followed, and the device knows: what it has is what is known of it from now on. The core's
        lock is held."""
        self._doubted.discard(name)

    def in_background(self, namespace: int, work: Callable[[], None]) -> None:
        """Run something that waits for a namespace's origin. The core's lock is held."""
        if namespace not in self._threads:
            self._threads[namespace] = ThreadPoolExecutor(UPLOADS_AT_ONCE, "hcfs-upload")
        with suppress(RuntimeError):  # the mount ends
            self._threads[namespace].submit(work)

    # --- administrators ----------------------------------------------------------------------------------------------

    def retry(self, unsynced: Unsynced, *, base: str | None = None) -> None:
        """Upload what was given up again; base: replacing that content, ANYTHING whatever there is. The core's lock is
        held."""
        if unsynced.record.reason is None and base is None:
            return
        self._set_record(unsynced, unsynced.record.again(base=base))
        unsynced.halt.set()  # an upload under way goes by the former record
        unsynced.halt = threading.Event()
        self._submit(unsynced)

    def fail(self, unsynced: Unsynced, reason: str) -> None:
        """Give an upload up, for a reason that is kept with the file and logged once. The core's lock is held."""
        if unsynced.gone or unsynced.record.reason is not None:
            return
        reason = " ".join(reason.split())[:REASON_MAX]
        self._set_record(unsynced, unsynced.record.failed(reason))
        origin = self._origins.of(unsynced.namespace)
        if origin is not None:
            origin.counts.upload_failures += 1
            origin.counts.note_error(reason)
        log.warning("%s isn't uploaded, and is kept: %s; see 'hcfs sync'", self._path(unsynced), reason)
        self._changed.notify_all()

    def discard(self, origin: Origin, name: Name) -> bool:
        """Remove what only the device has under a name, and leave the origin as it is; whether there was any. Blocks
        while it is being uploaded; no lock is held."""
        core = self._core
        with self.hold(name, halt=True), core.lock, core.store.atomically():
            if self.at(name) is None:
                return False
            core.store.unlink(*name)
            self.forget(name)
            origin.outdated = True
        core.kernel.forget_name(*name)
        return True

    def wait(self, namespace: int, stopped: Callable[[], bool], poll: float) -> None:
        """Return when nothing of a namespace is dirty or on its way; what was given up doesn't count."""

        def pending() -> bool:
            each = self._unsynced.values()
            return any(one.record.reason is None for one in each if one.namespace == namespace)

        with self._changed:
            while pending() and not stopped():
                self._changed.wait(poll)

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Begin nothing more; what is on its way ends at its next piece, and stays dirty. Doesn't wait."""
        with self._core.lock:
            for unsynced in self._unsynced.values():
                unsynced.halt.set()
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the threads: a request's time limit at most."""
        for threads in list(self._threads.values()):
            threads.shutdown(wait=True, cancel_futures=True)

    # --- uploading ---------------------------------------------------------------------------------------------------

    def _submit(self, unsynced: Unsynced) -> None:
        origin = self._origins.of(unsynced.namespace)
        if origin is not None and origin.not_allowed is not None:
            return  # it stays dirty, for a mount that allows its origin
        self.in_background(unsynced.namespace, lambda: self._run(unsynced))

    def _release(self, name: Name) -> None:
        with self._changed:
            self._busy.discard(name)
            self._doubted.discard(name)
            unsynced = self._by_name.get(name)
            if unsynced is not None and not self._is_current(unsynced):
                self.forget(name)
            elif unsynced is not None and unsynced.record.reason is None and not self.stop.is_set():
                unsynced.halt = threading.Event()
                self._submit(unsynced)
            self._changed.notify_all()

    def _run(self, unsynced: Unsynced) -> None:
        with self._core.lock:
            if self.stop.is_set() or unsynced.gone or unsynced.record.reason is not None:
                return
            if unsynced.name in self._busy or unsynced.name in self._wanted:
                return  # begun again by whoever has the name
            self._busy.add(unsynced.name)
            halt = unsynced.halt
        try:
            self._upload(unsynced, halt)
        except DamagedGranule as error:
            self._give_up(unsynced, f"its bytes on the device are damaged: {error}")
        except HcfsError as error:
            if not halt.is_set() and not self.stop.is_set():
                self._give_up(unsynced, str(error))
        except BaseException:  # a panic in the library isn't an Exception
            log.exception("%s can't be uploaded, for a fault of hcfs", self._path(unsynced))
            self._give_up(unsynced, "an unexpected error; the daemon's log has the details")
        finally:
            with self._core.lock:
                unsynced.uploading = False
            self._release(unsynced.name)

    def _give_up(self, unsynced: Unsynced, reason: str) -> None:
        with self._core.lock:
            self.fail(unsynced, reason)

    def _upload(self, unsynced: Unsynced, halt: threading.Event) -> None:
        """Until the origin has it; HcfsError when it is given up."""
        core = self._core
        patience = Patience(halt, attempts=self._attempts)
        with core.lock:
            origin = self._origins.of(unsynced.namespace)
            uploader = None if origin is None else origin.uploader
            if origin is None or uploader is None:
                raise OriginError("its namespace has no origin that takes it")
            key = key_of(core.store, *unsynced.name)
        # Else a crash could bring back here what was before, with the origin having this.
        core.store.commit()

        def on_piece(at: int) -> None:
            unsynced.sent = at
            if halt.is_set():
                raise OriginError("the upload is to end")

        while True:
            with core.lock:
                if not self._is_current(unsynced):
                    return
                pin = core.store.pin(unsynced.oid)
                base = unsynced.record.base
                unsynced.uploading, unsynced.attempts = True, unsynced.attempts + 1
            try:
                outgoing = outgoing_object(uploader, core.store, pin, key, on_piece)
                uploaded = uploader.put(outgoing, None if base == ANYTHING else base)
                break
            except OriginError as error:
                with core.lock:
                    unsynced.uploading = False
                    unsynced.last_error = str(error)
                patience.after(error)
            finally:
                pin.release()
        self._arrived(origin, unsynced, outgoing, uploaded)

    def _arrived(self, origin: Origin, unsynced: Unsynced, outgoing: Outgoing, uploaded: Uploaded) -> None:
        """The origin has it: if it is still what its name leads to, it is clean from now on. One transaction."""
        core, store, key = self._core, self._core.store, outgoing.key
        access = None if origin.uploader is None or origin.uploader.conditional else outgoing.access
        origin.counts.uploads += 1
        origin.counts.uploaded_bytes += uploaded.size

        def mark() -> None:
            with core.lock, store.atomically():
                if not self._is_current(unsynced):
                    self._note_base(origin, unsynced, key, uploaded, access)
                    return
                store.replace_xattrs(unsynced.oid, {ETAG: uploaded.etag.encode(), SYNC: None})
                attributes = store.attributes(unsynced.oid)
                listed = Listed(key, uploaded.size, attributes.mtime_ns, uploaded.etag, access)
                remote = self._origins.new_remote(origin, *unsynced.name, listed, unsynced.oid)
                self._origins.changed(origin, unsynced.name, remote)
                self.forget(unsynced.name)

        core.cache.with_room(mark)

    def _note_base(
        self, origin: Origin, unsynced: Unsynced, key: str, uploaded: Uploaded, access: Access | None
    ) -> None:
        """The origin has what was replaced here meanwhile: the successor is to replace just that there."""
        listed = Listed(key, uploaded.size, time.time_ns(), uploaded.etag, access)
        with suppress(HcfsError):  # its directory is gone
            self._origins.changed(origin, unsynced.name, self._origins.new_remote(origin, *unsynced.name, listed, None))
        successor = self._by_name.get(unsynced.name)
        if successor is not None and successor.record.base == unsynced.record.base != ANYTHING:
            self._set_record(successor, SyncRecord(uploaded.etag, successor.record.reason))
