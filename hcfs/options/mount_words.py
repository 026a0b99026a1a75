"""Words that mount(8) may hand over, those of fstab included: each is in force, without a meaning here, or refused."""

from __future__ import annotations

KERNEL_WORDS = frozenset(
    (
        *("ro", "rw", "dev", "nodev", "suid", "nosuid", "exec", "noexec", "allow_other"),
        *("atime", "noatime"),
    )
)
"""In force through the kernel or the FUSE library."""

MOUNT_WORDS = frozenset(
    (
        # For mount(8) and fstab, which have acted on them already.
        *("defaults", "auto", "noauto", "nofail", "_netdev"),
        *("user", "nouser", "users", "nousers", "owner", "noowner", "group", "nogroup", "comment"),
        # What they ask for is so on every mount: reads change no access time, a change is written some time later.
        *("nodiratime", "diratime", "relatime", "norelatime", "nostrictatime", "lazytime", "nolazytime", "async"),
        # So is this, since nothing else is there; and the kernel says of a mount of FUSE what it says in any case.
        *("nomand", "noiversion", "symfollow", "silent", "loud"),
    )
)
"""Taken, and nothing is done about them."""

VALUE_WORDS = ("user", "comment")
"""Of these, those that may have a value, as mount(8) writes the name of who mounts."""

PREFIXES = ("x-", "X-")
"""Of words for other programs, with a value or without."""

_TIMES = "hcfs keeps no access times, and user.hcfs.last_access of a file says when it was last used"
_DURABLE = "what is written is durable within commit_interval, or after fsync"
_LABELS = "labels of SELinux can't be set on a mount of hcfs"
_OTHER_MOUNT = "it changes a mount that is there, which mount(8) does without hcfs"
_IMAGE = "hcfs mounts an image file by itself: name the file"

REFUSED = {
    "allow_root": "the kernel knows allow_other only: give that, and chmod 700 the mount's root directory",
    "strictatime": f"{_TIMES}: leave it out",
    "sync": f"{_DURABLE}: leave it out, or make commit_interval shorter",
    "dirsync": f"{_DURABLE}: leave it out, or make commit_interval shorter",
    "mand": "there are no mandatory locks: leave it out",
    "iversion": "the kernel counts no changes of FUSE's files; user.hcfs.generation of a file tells them: leave it out",
    "nosymfollow": "the FUSE library can't have symlinks ignored: leave it out",
    "remount": "a mount's options stay as they are: run 'hcfs umount' and mount it with others",
    **dict.fromkeys(("context", "fscontext", "defcontext", "rootcontext"), f"{_LABELS}: leave it out"),
    **dict.fromkeys(("loop", "offset", "sizelimit", "encryption"), f"{_IMAGE}, without this"),
    **dict.fromkeys(
        (
            *("bind", "rbind", "move", "shared", "rshared", "slave", "rslave", "private", "rprivate"),
            *("unbindable", "runbindable"),
        ),
        f"{_OTHER_MOUNT}: leave it out",
    ),
}
"""Words that ask for what can't be had, and what to do."""


def is_word(name: str, value: object) -> bool:
    """Whether it is taken, with this value; True is none."""
    if name.startswith(PREFIXES):
        return True
    if value is True or value is False:
        return name in KERNEL_WORDS or name in MOUNT_WORDS
    return name in VALUE_WORDS
