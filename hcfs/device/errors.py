"""What can go wrong with a device: I/O that failed, and devices that can't be used at all."""

from __future__ import annotations

from errno import EBUSY, EINVAL, EIO, ENODEV, ENOSPC, EROFS
from os import strerror

from hcfs.errors import HcfsError

_REMEDIES = {
    ENOSPC: "free space on the filesystem that holds the image",
    EROFS: "open it for writing",
}
_LOOK_AT_THE_LOG = "look at the device's messages in the kernel's log (dmesg)"


class DeviceError(HcfsError):
    """One read, write or flush failed; `errno` is EIO whatever the kernel's reason was, which `os_errno` keeps.

    operation: "read", "write", "flush" or "discard". offset, length: bytes, of the part of the call's range that
    failed; None for a flush. os_errno: None where the kernel named none (a range beyond the end, a transfer that ended
    early).
    """

    errno = EIO

    def __init__(
        self,
        name: str,
        operation: str,
        offset: int | None = None,
        length: int | None = None,
        *,
        reason: str | None = None,
        os_errno: int | None = None,
    ) -> None:
        self.name = name
        self.operation = operation
        self.offset = offset
        self.length = length
        self.os_errno = os_errno
        where = "" if offset is None else f" of {length} bytes at offset {offset}"
        if reason is None:
            code = os_errno if os_errno is not None else EIO
            reason = f"{strerror(code)}; {_REMEDIES.get(code, _LOOK_AT_THE_LOG)}"
        super().__init__(f"{name}: {operation}{where} failed: {reason}")


class DeviceUnusable(HcfsError):
    """Root of the reasons for which a path can't serve as a device."""

    errno = ENODEV


class DeviceNotFound(DeviceUnusable):
    """Nothing at that path, or no permission to open it; `errno` on the instance is the kernel's."""


class NotADevice(DeviceUnusable):
    """Neither a block device nor a regular file."""

    errno = EINVAL


class DeviceHeld(DeviceUnusable):
    """Mounted, claimed or otherwise in use; `holder` says by whom, in words, "" where that can't be found out."""

    errno = EBUSY

    def __init__(self, name: str, holder: str = "") -> None:
        self.holder = holder
        by = holder or "held by something that can't be named from here (perhaps another container or the kernel)"
        super().__init__(f"{name} is in use: {by}; stop or unmount that first")


class DeviceReadOnly(DeviceUnusable):
    """Opened for writing, but the device or the file is write-protected."""

    errno = EROFS


class DeviceTooSmall(DeviceUnusable):
    """Smaller than what it should hold."""

    errno = ENOSPC

    def __init__(self, name: str, size: int, needed: int) -> None:
        self.size = size
        self.needed = needed
        super().__init__(f"{name} has {size} bytes but {needed} are needed; use a larger device or restore its size")
