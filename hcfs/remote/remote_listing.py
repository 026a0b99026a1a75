"""READDIR where an origin has more than the device."""

from __future__ import annotations

from hcfs.filesystem.calls import Blocking, Entry
from hcfs.filesystem.handles.directory_handle import NameListing
from hcfs.filesystem.operations.listing import DirectoryListing
from hcfs.filesystem.versions.version import Versions
from hcfs.filesystem.volume import Volume
from hcfs.remote.origins import Origins
from hcfs.remote.remote_files import RemoteFiles


class RemoteLister:
    """A Lister: of what is in the store, and what is only at the origin."""

    def __init__(
        self, volume: Volume, versions: Versions, listing: DirectoryListing, origins: Origins, files: RemoteFiles
    ) -> None:
        self._volume = volume
        self._versions = versions
        self._listing = listing
        self._origins = origins
        self._files = files

    def begin_listing(self, directory: int) -> Blocking[None] | None:
        """Blocking while the origin must be listed, EIO when it can't be."""
        origin = self._origins.of_inode(directory)
        if origin is None or not origin.must_list(self._volume.clock(), known=False, cached=False):
            return None
        return self._files.listed_first(origin, lambda: None)

    def names_in(self, directory: int) -> NameListing:
        origin = self._origins.of_inode(directory)
        names = self._listing.names_in(directory)
        if origin is None or origin.listing is None:
            return names
        return MergedListing(names, origin.listing.names_in(directory))

    def led_to(self, directory: int, batch: list[tuple[bytes, int]]) -> list[Entry | None]:
        origin = self._origins.of_inode(directory)
        if origin is None:
            return self._listing.led_to(directory, batch)
        with self._volume.lock, self._volume.store.atomically():
            found: list[Entry | None] = []
            for name, ino in batch:
                if origin.refused(directory, name):
                    found.append(None)
                    continue
                remote = origin.get(directory, name)
                if remote is None or self._versions.get(ino) is not None or self._files.written_over(origin, remote):
                    found.append(self._listing.led_to_one(directory, name, ino))
                else:
                    found.append(self._files.listed_entry(origin, remote))
            return found

    def getattr(self, ino: int) -> Entry:
        return self._listing.getattr(ino)

    def path(self, directory: int) -> bytes:
        return self._listing.path(directory)


class MergedListing:
    """A NameListing: names of a directory in the store, then those that are only at the origin."""

    def __init__(self, stored: NameListing, remote: list[bytes]) -> None:
        self._stored = stored
        self._remote = remote
        self._seen: set[bytes] = set()

    def more(self) -> list[bytes]:
        names = self._stored.more()
        if names:
            self._seen.update(names)
            return names
        rest = [name for name in self._remote if name not in self._seen]
        self._remote = []
        return rest
