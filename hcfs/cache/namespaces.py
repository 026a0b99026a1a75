"""The namespaces of a store: their options and what they hold."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

from hcfs.cache.quotas import Quotas
from hcfs.cache.usage import NamespaceUsage, UsageCounts
from hcfs.errors import UsageError
from hcfs.options.namespace_options import OPTIONS, PREFIX, NamespaceOptions, checked, parse
from hcfs.store import BLOCK, ROOT_ID, Kind, Store
from hcfs.store.errors import NoSuchAttribute, NoSuchObject


class Namespaces:
    """Options and usage of the directories directly under the root, by the directory's object id.

    Thread-safe; nothing here does I/O or waits for any.
    """

    def __init__(self, store: Store, lock: threading.Lock, usage: UsageCounts, quotas: Quotas) -> None:
        """The lock guards `usage` and is never held here while the store is called.

        UsageError when a namespace has an option that this version can't honour: mounting it would break a promise
        that a later version made.
        """
        self._store = store
        self._lock = lock
        self._usage = usage
        self._quotas = quotas
        self._options: dict[int, NamespaceOptions] = {}
        self._changes = 0
        for name, namespace in self.names().items():
            try:
                self.options(namespace)
                # A daemon that was killed may not have evicted what a lowered quota leaves no room for.
                quotas.changed.add(namespace)
            except UsageError as error:
                raise UsageError(
                    f"namespace {_shown(name)} needs a later version of hcfs: it has an option that this one doesn't "
                    f"support ({error})"
                ) from None

    def names(self) -> dict[bytes, int]:
        """Each namespace's name and id, in the order in which they were made."""
        found = {}
        for name, oid in self._store.list_directory(ROOT_ID):
            try:
                if self._store.attributes(oid).kind is Kind.DIRECTORY:
                    found[name] = oid
            except NoSuchObject:
                pass  # removed since it was listed
        present = set(found.values())
        with self._lock:
            self._usage.keep_only(present)
            for gone in self._options.keys() - present:
                del self._options[gone]
        return found

    def options(self, namespace: int) -> NamespaceOptions:
        """The namespace's options; NoSuchObject when there is no such directory.

        Quick enough for every create: they are parsed once, and again after a change.
        """
        options = self._options.get(namespace)
        if options is None:
            changes = self._changes
            options = parse(self._attributes(namespace))
            with self._lock:
                # Two threads may read before and after a change, and come here in the other order.
                if changes == self._changes:
                    self._options[namespace] = options
        return options

    def set_option(self, namespace: int, option: str, value: str | None) -> None:
        """Set one option from its text, or with None back to its default; in force at once, durable at the next commit.

        UsageError for an option or a value that there isn't or that this version doesn't support, and for an object
        that isn't a namespace's directory.
        """
        self._require(namespace)
        text = checked(option, value)
        now, name = self.options(namespace), PREFIX + option.encode()
        needs = OPTIONS[option].needs
        if needs is not None and value not in (None, "none") and getattr(now, needs) is None:
            raise UsageError(f"{option}={value} can't be set: the namespace has no {needs}")
        kept = self._attributes(namespace)
        if text is None:
            kept.pop(name, None)
        else:
            kept[name] = text.encode(errors="surrogateescape")
        problem = parse(kept).origin_problem
        if problem not in (None, now.origin_problem):
            raise UsageError(problem)
        if text is not None:
            self._store.set_xattr(namespace, name, kept[name])
        else:
            with contextlib.suppress(NoSuchAttribute):  # it had its default
                self._store.remove_xattr(namespace, name)
        with self._lock:
            self._changes += 1
            self._options.pop(namespace, None)
        self._quotas.changed.add(namespace)

    def usage(self, namespace: int) -> NamespaceUsage:
        """What the namespace holds, all of one moment; zeros for one that is empty or gone."""
        with self._store.atomically():
            with self._lock:
                usage = self._usage.of(namespace)
            return replace(usage, staged_bytes=self._quotas.staged(namespace) * BLOCK)

    def _attributes(self, namespace: int) -> dict[bytes, bytes]:
        names = [name for name in self._store.list_xattrs(namespace) if name.startswith(PREFIX)]
        values = ((name, self._store.get_xattr(namespace, name)) for name in names)
        return {name: value for name, value in values if value is not None}

    def _require(self, namespace: int) -> None:
        try:
            found = self._store.attributes(namespace).kind is Kind.DIRECTORY
            found = found and namespace != ROOT_ID and self._store.parent_of(namespace) == ROOT_ID
        except NoSuchObject:
            found = False
        if not found:
            raise UsageError("options can't be set here: this isn't a namespace; name a directory at the mount's root")


def _shown(name: bytes) -> str:
    return repr(name.decode(errors="backslashreplace"))
