"""Which version a name means, to whom."""

from __future__ import annotations

import errno

from hcfs.cache import Cache
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.lock_files import is_lock_name
from hcfs.filesystem.versions.estale_retries import EstaleRetries
from hcfs.filesystem.versions.version import Version, Versions
from hcfs.store import Store


class VersionNames:
    """Memory only; the lock is held but where it says otherwise."""

    def __init__(self, store: Store, cache: Cache, versions: Versions, retries: EstaleRetries) -> None:
        self._store = store
        self._namespaces = cache.namespaces
        self._versions = versions
        self._retries = retries

    def is_staging_name(self, parent: int, name: bytes) -> bool:
        """Whether a version of this name waits for a rename instead of being published at the last close. The lock need
        not be held."""
        if is_lock_name(name):
            return False
        namespace = self._store.namespace_of(parent)
        return namespace != 0 and self._namespaces.options(namespace).is_staging_name(name)

    def own(self, parent: int, name: bytes, who: CallerIdentity) -> Version | None:
        """The caller's own version of a name, open or closed."""
        for version in reversed(self._versions.of_name(parent, name)):
            if version.owner is None:
                # The version that an open from another pid namespace is about to be repeated for.
                if not version.opened and who.process is None:
                    return version
            elif version.owner == who.process:
                return version
        return None

    def visible(self, parent: int, name: bytes, who: CallerIdentity) -> Version | None:
        """The version that the name means to the caller: its own, else the most recently closed one that waits under
        a staging name. None: the committed object, if any.

        A version that an open was promised is there for that open alone: it may never come, and the name mean something
        else long since, when the object was renamed between the caller's lookup and its open."""
        versions = self._versions.of_name(parent, name)
        if not versions:
            return None
        own = self.own(parent, name, who)
        if own is not None and (own.opened or self._retries.wants_version(who.caller)):
            return own
        waiting = [version for version in versions if version.waiting]
        return max(waiting, key=lambda version: version.closed_at or 0.0, default=None)

    def refuse_visible(self, parent: int, name: bytes, who: CallerIdentity) -> None:
        """EEXIST where the caller sees a version. What others are writing is no obstacle: it will replace, or not."""
        if self.visible(parent, name, who) is not None:
            raise CallError(errno.EEXIST)

    def is_written(self, parent: int, name: bytes) -> bool:
        """Whether anybody is writing a file of this name."""
        return any(version.writers or version.closing for version in self._versions.of_name(parent, name))

    def leftovers_in(self, directory: int) -> list[Version]:
        """Versions that go with a directory; ENOTEMPTY when one of them is being written, or will be in a moment. A
        view that no open has come for isn't: what it is a view of was removed, so that open finds no name."""
        versions = self._versions.in_directory(directory)
        if any(version.writers or version.closing or version.is_promised_empty for version in versions):
            raise CallError(errno.ENOTEMPTY)
        return versions
