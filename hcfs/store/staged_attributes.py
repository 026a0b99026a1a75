"""Attributes of staged objects: as the committed object will have them, or as its base will get them."""

from __future__ import annotations

import stat
import threading
from typing import Any

from hcfs.store.attributes import Attributes, Extra
from hcfs.store.errors import NoSuchAttribute
from hcfs.store.locking import lock_held
from hcfs.store.timestamps import now_ns
from hcfs.store.xattrs import check_xattr


class StagedAttributes:
    """The part of a staged object that needs no I/O. Thread-safe."""

    size: int
    modified: bool

    def __init__(self, lock: threading.RLock, attributes: Attributes, extra: Extra) -> None:
        """lock: the store's."""
        self.lock = lock
        self._attributes = attributes
        self._extra = extra
        self.changed_attributes: dict[str, int] = {}
        """What was set: the arguments of set_attributes"""
        self.xattrs_changed = False

    @property
    def blocks_held(self) -> int:
        """Blocks allocated so far."""
        raise AssertionError("the subclass says")

    @property
    def attributes_changed(self) -> bool:
        """Whether mode, owner or times were set."""
        return bool(self.changed_attributes)

    def attributes(self) -> Attributes:
        """As they would be after publishing now; memory only."""
        with self.lock:
            blocks = self.blocks_held if self.modified else self._attributes.blocks
            return self._attributes._replace(nlink=1, size=self.size, blocks=blocks, state="staged")

    def set_attributes(
        self,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        ctime_ns: int | None = None,
    ) -> None:
        """Change some; memory only. `mode` without the file type."""
        given = {"mode": mode, "uid": uid, "gid": gid, "atime_ns": atime_ns, "mtime_ns": mtime_ns, "ctime_ns": ctime_ns}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if mode is not None:
            changes["mode"] = stat.S_IFREG | stat.S_IMODE(mode)
        with self.lock:
            self._attributes = self._attributes._replace(**{"ctime_ns": now_ns()} | changes)
            self.changed_attributes.update(changes)

    def get_xattr(self, name: bytes) -> bytes | None:
        return self._extra.xattrs.get(name)

    def list_xattrs(self) -> list[bytes]:
        return list(self._extra.xattrs)

    def set_xattr(self, name: bytes, value: bytes, *, create: bool = False, replace: bool = False) -> None:
        """Memory only. Raises as the store's set_xattr."""
        with self.lock:
            check_xattr(self._extra.xattrs, name, value, create=create, replace=replace)
            self._extra.xattrs[name] = value
            self.xattrs_changed = True

    def remove_xattr(self, name: bytes) -> None:
        """Memory only. Raises NoSuchAttribute."""
        with self.lock:
            if self._extra.xattrs.pop(name, None) is None:
                raise NoSuchAttribute(f"no extended attribute {name!r}")
            self.xattrs_changed = True

    @property
    def extra(self) -> Extra:
        return self._extra

    @lock_held
    def note_write(self) -> None:
        """The content changes now: times follow it, also where they were set before. Lock held."""
        now = now_ns()
        self._attributes = self._attributes._replace(mtime_ns=now, ctime_ns=now)
        self.changed_attributes.pop("mtime_ns", None)
