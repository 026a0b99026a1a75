"""Ingest: an object comes from its origin to the device, once for all who want it, and is kept whole or not at all."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hcfs.cache import ETAG
from hcfs.errors import HcfsError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.handles.object_handle import ObjectReading
from hcfs.filesystem.versions.replaced_names import ReplacedNames
from hcfs.filesystem.volume import Volume
from hcfs.mountpoint.tuning import tune_streaming
from hcfs.origin import Listed, NotAtOrigin, OriginChanged, OriginError, Patience, WrongContent, transfer
from hcfs.remote.fetching.streaming import Stream, Waiting
from hcfs.remote.listing.remote import Remote
from hcfs.remote.namespace_origin import Origin
from hcfs.store import Staged
from hcfs.store.errors import NoSpace, QuotaExceeded

log = logging.getLogger(__name__)

INGESTS_AT_ONCE = 4
"""Objects fetched at once; others wait for their turn."""

BUFFER = 1 << 20
"""Bytes collected for one write to the device; each fetch has one such buffer of the pool."""

WHOLE_ATTEMPTS = 3
"""Fetches of a whole object that came with wrong bytes."""

NewRemote = Callable[[Origin, int, bytes, Listed, int | None], Remote]
"""As Origins.new_remote."""


class Ingest:
    """One fetch of one object."""

    def __init__(self, origin: Origin, remote: Remote) -> None:
        self.origin = origin
        self.remote = remote
        self.received = 0
        """Bytes so far."""
        self.stream: Stream | None = None
        """What is open for reading: the present attempt's, as soon as the origin has answered."""
        self._changed = threading.Condition()
        self._done = False
        self._error: HcfsError | None = None

    def begin(self, stream: Stream | None) -> None:
        """The origin has answered, and the object may be opened; None: it may not any more."""
        if stream is not self.stream:
            with self._changed:
                self.stream = stream
                self._changed.notify_all()

    def finish(self, error: HcfsError | None) -> None:
        """Tell all who wait; the first outcome counts."""
        with self._changed:
            if not self._done:
                self._error = error
                self._done = True
                self._changed.notify_all()

    def wait(self) -> None:
        """Return when the object is on the device. Blocks. CallError with the fetch's errno; OriginChanged when there
        is other content by now."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        self._raise_error()

    def wait_for_stream(self) -> Stream | None:
        """The stream, when the origin has answered; None when the object is on the device. Blocks. Raises as `wait`."""
        with self._changed:
            self._changed.wait_for(lambda: self._done or self.stream is not None)
            stream = None if self._done else self.stream
        if stream is None:
            self._raise_error()
        return stream

    def _raise_error(self) -> None:
        error = self._error
        if isinstance(error, OriginChanged):
            raise OriginChanged(str(error))
        if error is not None:
            raise CallError(error.errno, str(error))


class Ingests:
    """Those under way, one for each content of a name."""

    def __init__(
        self,
        core: Volume,
        replaced: ReplacedNames,
        reading: ObjectReading,
        stop: threading.Event,
        new_remote: NewRemote,
    ) -> None:
        self._core = core
        self._replaced = replaced
        self._reading = reading
        self._stop = stop
        self._new_remote = new_remote
        self._waiting = Waiting(self._tune_streaming)
        self._threads = ThreadPoolExecutor(INGESTS_AT_ONCE, "hcfs-ingest")
        self._under_way: dict[Remote, Ingest] = {}

    def _tune_streaming(self, streaming: bool) -> bool:
        device = self._core.device
        return device is not None and tune_streaming(device, streaming=streaming)

    def begin(self, origin: Origin, remote: Remote) -> Ingest:
        """The fetch of an object that isn't on the device: the one under way, or a new one. The core's lock is held;
        memory only."""
        ingest = self._under_way.get(remote)
        if ingest is None:
            if self._stop.is_set():
                raise CallError(errno.EIO, "the mount ends")
            ingest = self._under_way[remote] = Ingest(origin, remote)
            try:
                self._threads.submit(self._run, ingest)
            except BaseException:  # as where no thread can be started: whoever opens it next mustn't wait for this one
                self._forget(ingest)
                raise
        return ingest

    def end(self) -> None:
        """Let all go that wait, with EIO; the fetches see by themselves that they are to end."""
        with self._core.lock:
            under_way = list(self._under_way.values())
        for ingest in under_way:
            ingest.finish(OriginError("the mount ends"))
            stream = ingest.stream
            if stream is not None:
                stream.fail()
                stream.wake_all()

    def close(self) -> None:
        """Wait for the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def under_way(self, namespace: int) -> list[Ingest]:
        """Those of a namespace."""
        with self._core.lock:
            return [each for each in self._under_way.values() if each.remote.namespace == namespace]

    def status(self, namespace: int) -> list[dict[str, Any]]:
        """Key, bytes received, size, and open handles that read what has come, of each of a namespace's."""
        return [
            {
                "key": each.remote.listed.key,
                "bytes": each.received,
                "size": each.remote.listed.size,
                "readers": 0 if (stream := each.stream) is None else stream.readers,
            }
            for each in self.under_way(namespace)
        ]

    def _run(self, ingest: Ingest) -> None:
        """Whatever happens, all who wait are told."""
        error: HcfsError | None = OriginError("an unexpected error; the daemon's log has the details")
        try:
            error = self._outcome(ingest)
            self._note_end(ingest, error)
        except BaseException:
            log.exception("the end of the fetch of %s failed unexpectedly", ingest.remote.listed.key)
        finally:
            ingest.finish(error)

    def _outcome(self, ingest: Ingest) -> HcfsError | None:
        try:
            self._fetch(ingest)
        except HcfsError as error:
            return error
        except BaseException as error:
            log.exception("%s/%s can't be fetched, for a fault of hcfs", ingest.origin.url, ingest.remote.listed.key)
            return OriginError(f"an unexpected error ({type(error).__name__}); the daemon's log has the details")
        return None

    def _note_end(self, ingest: Ingest, error: HcfsError | None) -> None:
        origin, remote = ingest.origin, ingest.remote
        with self._core.lock:
            self._forget(ingest)
        if error is not None and not self._stop.is_set():
            counts = origin.counts
            counts.failures += 1
            counts.note_error(error)
            if isinstance(error, (NotAtOrigin, OriginChanged)):
                origin.outdated = True
                self._core.kernel.forget_name(remote.parent, remote.name)
                log.info("%s/%s isn't as it was listed: %s", origin.url, remote.listed.key, error)
            else:
                log.warning("%s/%s isn't fetched: %s", origin.url, remote.listed.key, error)

    def _forget(self, ingest: Ingest) -> None:
        """Nobody is to join it any more. The core's lock is held. Once it has published, the object may be evicted, and
        fetched by another, before its own thread comes here again."""
        if self._under_way.get(ingest.remote) is ingest:
            del self._under_way[ingest.remote]

    def _fetch(self, ingest: Ingest) -> None:
        self._require_fit(ingest)
        again = Patience(self._stop, attempts=WHOLE_ATTEMPTS)
        while True:
            staged = self._core.cache.with_room(lambda: self._staged(ingest))
            stream = Stream(self._reading, ingest.remote, staged, self._waiting)
            try:
                self._fill(staged, ingest, stream)
                staged.seal()
                self._publish(staged, ingest, stream)
                return
            except WrongContent as error:
                self._abandon(staged, ingest, stream)
                log.info("%s/%s came with wrong bytes: %s", ingest.origin.url, ingest.remote.listed.key, error)
                again.after_wrong(error)
            except BaseException:
                self._abandon(staged, ingest, stream)
                raise

    def _require_fit(self, ingest: Ingest) -> None:
        """QuotaExceeded or NoSpace for what can't be kept whatever is evicted: the open is to tell, and not a read in
        the middle."""
        store, listed, quota = self._core.store, ingest.remote.listed, ingest.origin.options.quota
        if quota is not None and listed.size > quota:
            raise QuotaExceeded(
                f"its {listed.size} bytes are more than the quota of its namespace; raise it with 'hcfs ns set'"
            )
        capacity = store.usage().capacity
        if listed.size > capacity:
            raise NoSpace(f"its {listed.size} bytes are more than the {capacity} that {store.device.name} can hold")

    def _abandon(self, staged: Staged, ingest: Ingest, stream: Stream) -> None:
        """An attempt has come to nothing. Where its bytes may have been read, the kernel may have pages of them, and
        processes may have those mapped: whoever opens the file from now on gets another inode, which has none."""
        ingest.begin(None)
        was_opened = stream.fail()
        try:
            staged.abandon()
        finally:
            stream.wake_all()  # who waited and looks at the status then doesn't find it there any more
        if not was_opened:
            return
        former = ingest.remote
        successor = self._new_remote(ingest.origin, former.parent, former.name, former.listed, None)
        with self._core.lock:
            former.successor = successor
            self._forget(ingest)
            ingest.remote = successor
            self._under_way[successor] = ingest
        self._core.kernel.forget_name(former.parent, former.name)
        self._core.kernel.forget_pages(former.ino)

    def _staged(self, ingest: Ingest) -> Staged:
        core, remote = self._core, ingest.remote
        with core.lock:
            core.store.staging.require_row()
            owner = core.store.attributes(remote.namespace)
            access = ingest.origin.shown(remote.listed, owner)
            staged = core.store.stage(
                None,
                namespace=remote.namespace,
                mode=access.mode,
                uid=access.uid,
                gid=access.gid,
                xattrs={ETAG: remote.listed.etag.encode()},
            )
            core.store.assign(staged, core.cache.account(remote.namespace, remote.name))
            return staged

    def _fill(self, staged: Staged, ingest: Ingest, stream: Stream) -> None:
        """The object's bytes, in order, in writes that go to the device as they are: a buffer at once, or where readers
        may come at any time the granules that are whole."""
        origin, listed = ingest.origin, ingest.remote.listed
        ingest.received = 0
        patience = Patience(self._stop)
        if listed.size:
            store = self._core.store
            granule, buffer = store.superblock.granule, store.pool.acquire(min(BUFFER, listed.size))
            piecewise = origin.streams(ingest.remote)
            held = written = 0  # bytes in the buffer, and those of them that are on the device
            for chunk in transfer(origin.client, listed, patience, md5=origin.options.origin_check == "etag"):
                ingest.begin(stream)
                while chunk:
                    count = min(len(buffer) - held, len(chunk))
                    buffer[held : held + count] = chunk[:count]
                    held, chunk = held + count, chunk[count:]
                    full = held == len(buffer)
                    end = held if full else held - held % granule if piecewise else written
                    if end > written:
                        staged.write(ingest.received, buffer[written:end])
                        ingest.received += end - written
                        stream.advance(ingest.received)
                        written = end
                    if full:
                        held = written = 0
            if held > written:
                staged.write(ingest.received, buffer[written:held])
                ingest.received += held - written
        else:
            for _ in transfer(origin.client, listed, patience, md5=origin.options.origin_check == "etag"):
                pass
            staged.truncate(0)
        if staged.size != listed.size:
            raise WrongContent(f"{listed.key}: {staged.size} bytes came instead of {listed.size}")
        staged.set_attributes(mtime_ns=listed.mtime_ns, atime_ns=listed.mtime_ns)

    def _publish(self, staged: Staged, ingest: Ingest, stream: Stream) -> None:
        """Under the lock that whoever begins a fetch holds: there is no moment with neither the fetch nor the
        object."""
        core, remote = self._core, ingest.remote
        with core.lock, core.store.atomically():
            if self._stop.is_set():
                raise OriginError("the mount ends")
            former = core.attributes_at(remote.parent, remote.name)
            if not ingest.origin.may_keep(core, remote, former):
                raise OriginChanged(f"{remote.listed.key} was written here while it was fetched")
            # A listing may have said since that fewer may read it.
            access = ingest.origin.shown(remote.listed, core.store.attributes(remote.namespace))
            staged.set_attributes(mode=access.mode, uid=access.uid, gid=access.gid)
            oid = core.store.publish(staged, remote.parent, remote.name)
            self._replaced.note(former, remote.parent, remote.name)
            ingest.origin.counts.ingests += 1
            ingest.origin.counts.ingested_bytes += remote.listed.size
            stream.publish(oid)
            self._forget(ingest)
        core.cache.looked_up(oid)  # protected from eviction as by a lookup: those who wait open it now
        stream.wake_all()
        core.kernel.forget_attributes(remote.ino)
