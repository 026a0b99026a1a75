"""Owners and modes that change at an origin which has such, after the device has its files and directories."""

from __future__ import annotations

from hcfs.filesystem.volume import Volume
from hcfs.origin import Access
from hcfs.remote.namespace_origin import Origin
from hcfs.store import Attributes

ACCESS = b"hcfs.access"
"""The extended attribute of a directory of a namespace with a write policy: what the origin said of it last."""


def follow_file(core: Volume, origin: Origin, attributes: Attributes, access: Access) -> None:
    """A cached file's become the origin's, but where users may change them here. Both locks held."""
    if origin.uploader is None:
        _set(core, attributes, origin.allowed(access))


def follow_directory(core: Volume, origin: Origin, attributes: Attributes, access: Access) -> None:
    """A directory's become the origin's; where users may change them here, only when they have changed there. Both
    locks held."""
    store = core.store
    if origin.uploader is not None:
        said = b"%o %d %d" % access
        former = store.get_xattr(attributes.id, ACCESS)
        if former == said:
            return
        store.replace_xattrs(attributes.id, {ACCESS: said})
        if former is None and access[1:] == (attributes.uid, attributes.gid):
            # Made here, and perhaps changed here since the origin has it.
            access = access._replace(mode=access.mode & attributes.mode)
    _set(core, attributes, origin.allowed(access))


def _set(core: Volume, attributes: Attributes, access: Access) -> None:
    if Access(attributes.mode & 0o777, attributes.uid, attributes.gid) != access:
        core.store.set_attributes(attributes.id, mode=access.mode, uid=access.uid, gid=access.gid)
        core.kernel.forget_attributes(attributes.id)
