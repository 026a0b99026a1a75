"""Mount namespaces of a test's own."""

from __future__ import annotations

import os


def own_mounts(script: str, *words: str | os.PathLike[str], keep: str | os.PathLike[str] = "") -> list[str]:
    """The command that runs a shell script in a mount namespace of its own; words are its $0 and so on. Of the mounts
    that other tests have at the same moment, whose devices would stay in use with it, it keeps none; `keep` is the
    caller's."""
    others = (
        "for m in $(findmnt -rno TARGET -t fuse.hcfs,ext4,btrfs | grep -E 'pytest|hcfs-'); do "
        f'[ "$m" = "{os.fspath(keep)}" ] || umount -l "$m" 2>/dev/null; done; '
    )
    start = ["unshare", "--mount", "--propagation", "private", "sh", "-c", others + script]
    return [*start, *(os.fspath(word) for word in words)]
