"""The extent store: objects by id and name, staged and committed, on one block device. Usable without a mount.

Everything is synchronous and thread-safe. What is said to be "memory only" never waits for I/O; the rest blocks the
calling thread. Rooms above see this class, `UnrecoveredStore` which makes it, and `format_device`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from hcfs.store.allocation import Allocation
from hcfs.store.census import Census
from hcfs.store.content import Content
from hcfs.store.durability import Durability
from hcfs.store.ledger import Ledger, Observer
from hcfs.store.metadata_room import MetadataRoom
from hcfs.store.names import Names
from hcfs.store.object_metadata import ObjectMetadata
from hcfs.store.partial_reads import PartialReads
from hcfs.store.publishing import Publishing
from hcfs.store.removals import Removals
from hcfs.store.retention import Retention
from hcfs.store.staging import Staging


class Store:
    """A recovered store: its parts, and their everyday calls by one name. Made by `UnrecoveredStore.recover`; ended by
    `close`.

    What a call means is said where it is defined. The rest is asked of the part whose subject it is, as in
    `store.durability.checkpoint_due`; the ledger is for the parts, and for whoever works on them in this package."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.superblock = ledger.superblock
        self.device = ledger.device
        self.pool = ledger.pool
        self.counters = ledger.counters

        self.metadata_room = room = MetadataRoom(ledger)
        self.retention = retention = Retention(ledger)
        self.durability = durability = Durability(ledger, retention)
        self.metadata = metadata = ObjectMetadata(ledger, room, retention)
        self.names = names = Names(ledger, room, retention)
        self.content = content = Content(ledger, retention)
        self.partial_reads = PartialReads(ledger.device, ledger.pool, content)
        self.allocation = allocation = Allocation(ledger, retention, durability.commit)
        self.staging = staging = Staging(ledger, room, retention, names, metadata, content, allocation)
        self.publishing = publishing = Publishing(ledger, retention, names, staging)
        self.removals = removals = Removals(ledger, room, retention, names, metadata)
        self.census = census = Census(ledger, staging)

        # The parts' own methods: a call costs what it costs there.
        self.lookup = names.lookup
        self.is_current = names.is_current
        self.list_directory = names.list_directory
        self.listing = names.listing
        self.parent_of = names.parent_of
        self.names_of = names.names_of
        self.path_of = names.path_of
        self.namespace_of = names.namespace_of
        self.mkdir = names.mkdir
        self.symlink = names.symlink
        self.create_empty = names.create_empty
        self.unlink = names.unlink
        self.rmdir = names.rmdir
        self.rename = names.rename
        self.link = names.link
        self.attributes = metadata.attributes
        self.set_attributes = metadata.set_attributes
        self.readlink = metadata.readlink
        self.get_xattr = metadata.get_xattr
        self.list_xattrs = metadata.list_xattrs
        self.set_xattr = metadata.set_xattr
        self.remove_xattr = metadata.remove_xattr
        self.replace_xattrs = metadata.replace_xattrs
        self.touch = metadata.touch
        self.pin = retention.pin
        self.read = content.read
        self.stage = staging.stage
        self.stage_in_place = staging.stage_in_place
        self.assign = allocation.assign
        self.require_possible_size = staging.require_possible_size
        self.publish = publishing.publish
        self.publish_in_place = publishing.publish_in_place
        self.quarantine = removals.quarantine
        self.evict = removals.evict
        self.commit = durability.commit
        self.checkpoint = durability.checkpoint
        self.close = durability.close
        self.usage = census.usage
        self.require_writable = ledger.require_writable

    def atomically(self) -> AbstractContextManager[object]:
        """As a context: what is asked and changed within it is seen by others all at once or not at all, and nobody
        else changes the store meanwhile. May be entered again by the thread that is in it. Others wait: nothing that
        blocks is called within. Atomic in memory only: each change is still a transaction of its own, and a crash may
        come between two."""
        return self.ledger.lock

    @property
    def state(self) -> str:
        """ "ok", "degraded" or "read-only"."""
        return self.ledger.state

    @property
    def state_reason(self) -> str:
        """Why the state isn't "ok"; "" when it is."""
        return self.ledger.state_reason

    def attach(self, observer: Observer, make_room: Callable[[int], bool]) -> None:
        """What stands above the store: told of committed files, and asked for room with the blocks that are wanted, or
        0 for room in the metadata; True: try again. `make_room` is called without the store's locks."""
        self.ledger.observer, self.ledger.make_room = observer, make_room

    def when_pending(self, tell: Callable[[], None] | None) -> None:
        """Whom to tell when a change waits for a commit and none did before. It must only signal."""
        self.ledger.on_pending = tell
