"""READ, WRITE, FLUSH, FSYNC and RELEASE."""

from __future__ import annotations

import errno
import logging

from hcfs.errors import HcfsError
from hcfs.mount.answers import Awaiting, Blocking, CallError
from hcfs.mount.handles import ControlHandle, DirectoryHandle, LockHandle, StreamHandle, VersionHandle, VirtualHandle
from hcfs.mount.lockfiles import LockFile
from hcfs.mount.object_handle import ObjectHandle
from hcfs.mount.opening import Opening
from hcfs.mount.streaming import PAGE, Stream
from hcfs.mount.versions import Fate, Version
from hcfs.store.errors import DamagedGranule

log = logging.getLogger(__name__)

Content = memoryview | bytes


class Data(Opening):
    """write and fsync block; read does, or waits without a thread, but for virtual files; flush when it has something
    to seal; release never."""

    def read(self, number: int, offset: int, length: int) -> Content | Blocking[Content] | Awaiting:
        """Up to `length` verified bytes; fewer at the end of the file only. EIO for what can't be verified. Awaiting
        where an origin still has them; EAGAIN for read-ahead that would be one wait too many."""
        handle = self.handles.get(number)
        if isinstance(handle, ObjectHandle):
            return Blocking(lambda: self.read_object(handle, offset, length))
        if isinstance(handle, StreamHandle):
            awaiting = handle.stream.awaiting(offset, length, ahead=length > PAGE and not handle.direct)
            return awaiting or Blocking(lambda: self._read_stream(handle.stream, offset, length))
        if isinstance(handle, VersionHandle):
            return Blocking(lambda: self._read_version(handle.version, offset, length))
        if isinstance(handle, VirtualHandle):
            return handle.content[offset : offset + length]
        if isinstance(handle, ControlHandle):
            return handle.read(length)
        if isinstance(handle, LockHandle):
            return Blocking(lambda: self._read_lock(handle.lock_file, offset, length))
        raise CallError(errno.EISDIR)

    def _read_stream(self, stream: Stream, offset: int, length: int) -> Content:
        data = stream.read(offset, length)
        return self.read_object(data, offset, length) if isinstance(data, ObjectHandle) else data

    def _read_lock(self, lock_file: LockFile, offset: int, length: int) -> Content:
        try:
            return lock_file.read(offset, length)
        except DamagedGranule as error:
            self.quarantine(error.oid, error.generation, str(error))
            raise

    def write(self, number: int, offset: int, data: bytes | memoryview, *, drops_privileges: bool = False) -> int:
        """All of `data`, or an error, after which the version is never published. EIO on one that is published. To the
        control file: one command, done when this returns. drops_privileges: the writer may not keep setuid and
        setgid."""
        handle = self.handles.get(number)
        if isinstance(handle, LockHandle):
            return handle.lock_file.write(offset, data)
        if isinstance(handle, ControlHandle):
            return handle.write(bytes(data))
        if not isinstance(handle, VersionHandle) or not handle.writable:
            raise CallError(errno.EBADF)
        version = handle.version
        handle.used = True
        with self._change(version):
            if drops_privileges:
                with self.lock:
                    self.drop_privileges(version)
            return version.staged.write(offset, data)

    def flush(self, number: int) -> Blocking[None] | None:
        """A descriptor is closed, perhaps one of several of this handle: seal what was written, so that close() can
        fail and whatever publishes next can't. Blocking while it seals; it doesn't wait for writes under way."""
        handle = self.handles.get(number)
        if isinstance(handle, LockHandle):
            return Blocking(handle.lock_file.save) if handle.writable and handle.lock_file.unsaved else None
        if not isinstance(handle, VersionHandle) or not handle.writable:
            return None
        version = handle.version
        with self.lock:
            handle.used = True
            self._check_killed(version)
            if version.fate is Fate.ABANDONED:
                raise CallError(errno.EIO)
            if version.failed:
                raise CallError(version.failed)
            if version.fate is not Fate.STAGED or version.flushed or version.writing:
                # While a write is under way this isn't the last close. Waiting for that write would hold up whoever
                # inherited the descriptor, as a fork does within its exec.
                return None
            if not version.modified:
                version.flushed_changes = version.changes
                return None
        return Blocking(lambda: self.seal(version, as_flush=True))

    def fsync(self, number: int) -> None:
        """Make everything visible durable. A version's own content gets to the medium too, and is reported as durable
        only in that sense: it is lost with the machine unless it is published. Blocks."""
        handle = self.handles.get(number)
        if isinstance(handle, LockHandle):
            handle.lock_file.save()
        elif isinstance(handle, VersionHandle):
            version = handle.version
            if version.failed:
                raise CallError(version.failed)
            if version.fate is Fate.STAGED and version.modified:
                self.seal(version, as_flush=False)
        if not self.read_only:
            self.store.commit()

    def release(self, number: int) -> None:
        """The last descriptor of a handle is closed; for the last writer of a version that publishes. Never waits."""
        handle = self.handles.pop(number)
        if isinstance(handle, ObjectHandle):
            handle.pin.release()
        elif isinstance(handle, StreamHandle):
            handle.stream.release()
        elif isinstance(handle, VersionHandle):
            with self.lock:
                self._let_go(handle.version, writer=handle.writable, used=handle.used)
        elif isinstance(handle, ControlHandle):
            handle.close()
        elif isinstance(handle, LockHandle):
            self._release_lock(handle.lock_file)
        elif isinstance(handle, DirectoryHandle) and handle.pin is not None:
            handle.pin.release()

    def _read_version(self, version: Version, offset: int, length: int) -> Content:
        if version.fate is Fate.ABANDONED or version.failed:
            raise CallError(errno.EIO)
        pin = version.pin
        try:
            if pin is not None:
                return self.store.read(pin, offset, length)
            try:
                return version.staged.read(offset, length)
            except HcfsError:
                # It may have been published since, or is just being: who does that holds the lock until the pin is
                # there.
                with self.lock:
                    pin = version.pin
                if pin is None:
                    raise
            return self.store.read(pin, offset, length)
        except DamagedGranule as error:
            self.quarantine(error.oid, error.generation, str(error))
            raise

    def _let_go(self, version: Version, *, writer: bool, used: bool = True) -> None:
        """One handle less. used: something was written through it, or a descriptor of it closed. Lock held."""
        version.handles -= 1
        if writer:
            version.writers -= 1
            if not version.writers and version.fate is Fate.STAGED:
                self._last_writer_closed(version, used=used)
        if version.handles:
            return
        if version.fate is Fate.NAMELESS:
            self._discard(version)
        elif version.fate is not Fate.STAGED:
            self.versions.forget(version)
            if version.pin is not None:
                version.pin.release()

    def _release_lock(self, lock_file: LockFile) -> None:
        with self.lock:
            lock_file.handles -= 1
            if lock_file.handles:
                return
            if not lock_file.dirty:
                del self.lock_files[lock_file.oid]
                lock_file.close()
                return
        self.in_background(lambda: self._finish_lock(lock_file))

    def _finish_lock(self, lock_file: LockFile) -> None:
        try:
            lock_file.settle()
        except HcfsError as error:
            log.warning("what was written last to lock file %d can't be kept: %s", lock_file.oid, error)
        finally:
            with self.lock:
                if not lock_file.handles:
                    self.lock_files.pop(lock_file.oid, None)
                    lock_file.close()
