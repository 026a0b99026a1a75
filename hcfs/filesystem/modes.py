"""Permission bits, as far as the kernel leaves them to the filesystem."""

from __future__ import annotations

import os
import stat

from hcfs.filesystem.calls import Caller
from hcfs.store import Attributes, Staged


def without_privileges(mode: int) -> int:
    """The mode without setuid, and without setgid where it is one: without group execution it means mandatory
    locking."""
    return mode & ~(stat.S_ISUID | (stat.S_ISGID if mode & stat.S_IXGRP else 0))


def drop_privileges(staged: Staged) -> None:
    """Content that another user changes isn't what its owner gave setuid or setgid to. With the data plane the kernel
    leaves that to the filesystem (HANDLE_KILLPRIV_V2)."""
    mode = staged.attributes().mode
    kept = without_privileges(mode)
    if kept != mode:
        staged.set_attributes(mode=kept)


def inherited_gid(directory: Attributes, gid: int) -> int:
    """The group of something new: the directory's where its setgid bit says so."""
    return directory.gid if directory.mode & stat.S_ISGID else gid


def may_open(attributes: Attributes, flags: int, caller: Caller) -> bool:
    """Whether the mode's bits say so without a look at the caller's further groups. flags: of an open for writing."""
    wanted = {os.O_WRONLY: 2, os.O_RDWR: 6}[flags & os.O_ACCMODE]
    shift = 6 if caller.uid == attributes.uid else 3 if caller.gid == attributes.gid else 0
    return caller.uid == 0 or attributes.mode >> shift & wanted == wanted


def writes(flags: int) -> bool:
    """Whether an open with these flags is a writer's."""
    return flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC)
