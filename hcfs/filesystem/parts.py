"""The filesystem's parts, put together from the bottom up: what each needs is what its constructor is given."""

from __future__ import annotations

from hcfs.filesystem.damage import Damage
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.handles.object_handle import ObjectReading
from hcfs.filesystem.handles.table import Handles
from hcfs.filesystem.handles.version_handle import VersionAccess
from hcfs.filesystem.lock_files import LockFiles
from hcfs.filesystem.operations.attribute_changes import AttributeChanges
from hcfs.filesystem.operations.capacity import Capacity
from hcfs.filesystem.operations.listing import DirectoryListing
from hcfs.filesystem.operations.lookup import Lookup
from hcfs.filesystem.operations.naming import Naming
from hcfs.filesystem.operations.opening import Opening
from hcfs.filesystem.operations.removal import Removal
from hcfs.filesystem.operations.renaming import Renaming
from hcfs.filesystem.operations.xattrs import Xattrs
from hcfs.filesystem.paths import Paths
from hcfs.filesystem.places.control import Control
from hcfs.filesystem.places.dispatch import Places
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.filesystem.places.root import Root
from hcfs.filesystem.places.virtual_place import VirtualPlace
from hcfs.filesystem.places.virtual_tree import VirtualTree
from hcfs.filesystem.versions.closing import Closings, LocalClosing
from hcfs.filesystem.versions.drafting import Drafting
from hcfs.filesystem.versions.estale_retries import EstaleRetries
from hcfs.filesystem.versions.housekeeping import Housekeeping
from hcfs.filesystem.versions.policy import Policies
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.replaced_names import ReplacedNames
from hcfs.filesystem.versions.version import Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume


class Parts:
    """One of each, over one volume. Other kinds of namespaces are made of the same ones."""

    def __init__(self, volume: Volume, *, entry_timeout: float, staging_ttl: float) -> None:
        store, cache = volume.store, volume.cache
        # What is remembered.
        self.versions = Versions()
        self.retries = EstaleRetries(volume.clock)
        self.replaced = ReplacedNames()
        self.handles = Handles()
        self.lock_files = LockFiles(store, cache, volume.lock, volume.background)
        self.policies = Policies()
        # Versions, from their names to their ends.
        self.paths = Paths(volume, self.versions)
        self.names = VersionNames(store, cache, self.versions, self.retries)
        self.publisher = Publisher(volume, self.versions, self.replaced, self.paths, self.policies)
        self.local_closing = LocalClosing(volume, self.publisher, self.paths)
        self.closings = Closings(self.local_closing, self.policies, self.publisher, self.versions)
        self.drafting = Drafting(volume, self.versions, self.names, self.publisher, self.policies)
        self.housekeeping = Housekeeping(
            volume,
            self.versions,
            self.retries,
            self.publisher,
            self.closings,
            self.paths,
            staging_ttl=staging_ttl,
        )
        # Calls.
        self.entries = Entries(store, self.lock_files, entry_timeout)
        self.damage = Damage(volume, self.policies)
        self.reading = ObjectReading(store, self.damage, self.paths)
        access = VersionAccess(volume, self.publisher, self.closings, self.damage, self.paths)
        self.lookup = Lookup(
            volume, self.versions, self.names, self.retries, self.replaced, self.drafting, self.entries
        )
        self.opening = Opening(
            volume,
            self.versions,
            self.names,
            self.retries,
            self.replaced,
            self.drafting,
            self.entries,
            self.handles,
            self.lock_files,
            self.damage,
            self.reading,
            access,
        )
        attribute_changes = AttributeChanges(
            volume,
            self.versions,
            self.retries,
            self.drafting,
            self.publisher,
            self.closings,
            self.entries,
            self.lookup,
            self.handles,
            self.lock_files,
        )
        naming = Naming(volume, self.versions, self.names, self.publisher, self.entries)
        renaming = Renaming(
            volume,
            self.versions,
            self.names,
            self.replaced,
            self.drafting,
            self.publisher,
            self.policies,
            naming,
        )
        self.listing = DirectoryListing(volume, self.versions, self.entries, self.lookup, self.handles, self.paths)
        self.xattrs = Xattrs(volume, self.versions, self.entries)
        self.capacity = Capacity(volume)
        self.removal = Removal(volume, self.versions, self.publisher)
        # Places.
        self.local = LocalNamespace(
            self.lookup, self.opening, attribute_changes, naming, renaming, self.listing, self.xattrs
        )
        self.places = Places(Root(self.local, self.listing), self.local)

    def show(self, tree: VirtualTree, control: Control | None) -> None:
        """The mount is made: the `.hcfs` tree is there from now on. control: what its control file leads to."""
        self.places.add_virtual(VirtualPlace(tree, control, self.handles, self.local.getattr))
