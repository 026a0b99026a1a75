"""Who may do what with a file of an origin that has owners, groups and modes: a directory of this machine."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

_ACL = "system.posix_acl_access"


class Access(NamedTuple):
    """Permissions as the origin has them."""

    mode: int
    """The nine bits, no others."""
    uid: int
    gid: int

    @classmethod
    def of(cls, status: os.stat_result) -> Access:
        """A file's or a directory's own."""
        return cls(status.st_mode & 0o777, status.st_uid, status.st_gid)

    def owner_only(self) -> Access:
        """What is left where an access control list says more than nine bits can."""
        return self._replace(mode=self.mode & 0o700)

    def within(self, directories: Iterable[os.stat_result]) -> Access:
        """The same, less what couldn't be reached through these directories: whoever may not search one of them may do
        nothing with what is in it, wherever that is shown."""
        owner, group, others = 0o700, 0o070, 0o007
        for status in directories:
            mode = status.st_mode
            all_search = mode & 0o011 == 0o011
            same_group = status.st_gid == self.gid
            if self.uid and not (mode & stat.S_IXUSR if status.st_uid == self.uid else all_search):
                owner = 0
            if not (mode & stat.S_IXGRP if same_group else all_search):
                group = 0
            if not (mode & stat.S_IXOTH if same_group else all_search):
                others = 0
        return self._replace(mode=self.mode & (owner | group | others))

    def grants_no_more_than(self, other: Access) -> bool:
        """Whether nobody gains by this one."""
        return self[1:] == other[1:] and not self.mode & ~other.mode


def has_acl(file: int | str, *, links: bool = True) -> bool:
    """Whether a file or directory has an access control list. links: a path's last part is followed. OSError where it
    is gone."""
    try:
        os.getxattr(file, _ACL, follow_symlinks=links)
    except OSError as error:
        if error.errno in _NO_ACL:
            return False
        raise
    return True


_NO_ACL = (errno.ENODATA, errno.EOPNOTSUPP, errno.EINVAL)
"""The last one is said of what can't have one."""
