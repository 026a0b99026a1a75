"""What can be wrong with weight files; each text is one sentence that names the file and the reason."""

from __future__ import annotations

from errno import EIO, ENOENT

from hcfs.errors import HcfsError


class DamagedWeights(HcfsError):
    """A file that isn't what the safetensors format says, or a set of files that don't belong together."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} can't be loaded: {reason}; fetch or write it again")
        self.path = path
        """The file."""
        self.reason = reason
        """What is wrong with it, without a full stop."""


class UnreadableWeights(HcfsError):
    """A system call on a file failed; `errno` says how."""

    def __init__(self, path: str, error: OSError, doing: str = "read", *, was_there: bool = False) -> None:
        """was_there: the name was, a moment before."""
        self.errno = error.errno or EIO
        if self.errno == EIO:
            remedy = (
                "its medium failed or its content didn't verify, and on hcfs the file is gone by now; fetch it again"
            )
        elif self.errno == ENOENT and was_there:
            remedy = (
                "it was there a moment ago, so it was removed, or it is damaged and lies in a namespace of hcfs with "
                "verify=open, which then lists it in .hcfs/quarantine; fetch it again"
            )
        else:
            remedy = "give a file or directory that this user may read"
        super().__init__(f"{path} can't be {doing}: {error.strerror or error}; {remedy}")
        self.path = path
        """The file."""


class UnsupportedTensor(HcfsError):
    """A tensor that the framework asked for has no type for, or can't hold."""

    def __init__(self, path: str, name: str, reason: str) -> None:
        super().__init__(f"tensor {name!r} of {path} can't be made: {reason}")
        self.path = path
        """The file."""
        self.name = name
        """The tensor."""
