"""The target of mkfs before it is a device: an image file that is still to be created or grown."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from hcfs.cli.devices import POOL_BYTES
from hcfs.cli.output import human_size, warn
from hcfs.device import BLOCK, BufferPool, Geometry, NotADevice, open_device
from hcfs.device.geometry import geometry
from hcfs.errors import UsageError


def final_geometry(target: str, size: int | None) -> Geometry:
    """What the target will be once `sized` has done its part; nothing is changed.

    UsageError for a `size` that doesn't go with the target; DeviceUnusable for what can't become a device.
    """
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if os.path.islink(target):
            raise UsageError(
                f"{target} is a symlink to {os.readlink(target)}, where nothing is: give that path itself"
            ) from None
        if size is None:
            raise UsageError(f"{target} does not exist: give --size to create an image file of that size") from None
        return replace(_geometry_to_be(target), size=size)
    if stat.S_ISBLK(mode):
        if size is not None:
            raise UsageError(f"{target} is a block device, whose size is what it is: leave --size out")
        with closing(open_device(target, BufferPool(POOL_BYTES))) as device:
            return device.geometry
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "neither a block device nor a file"
        raise NotADevice(f"{target} is {kind}: give a block device or an image file")
    with open(target, "r+b") as image:
        shape = geometry(image.fileno())
        try:
            os.lseek(image.fileno(), 0, os.SEEK_END)
        except OSError as error:
            raise NotADevice(f"{target} has no end ({error.strerror}), as files of /proc: give an image file") from None
    if size is None:
        return shape
    if size < shape.size:
        raise UsageError(f"{target} has {shape.size} bytes, and --size only grows an image: remove the file first")
    return replace(shape, size=size)


def _geometry_to_be(target: str) -> Geometry:
    """Of a file that isn't there yet: that of one without a name on the same filesystem, where it makes such files."""
    try:
        fd = os.open(os.path.dirname(os.path.abspath(target)), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return Geometry(0, BLOCK, BLOCK, 0, 0)
    try:
        return geometry(fd)
    finally:
        os.close(fd)


def _open_private(path: str, flags: int) -> int:
    """Make a file that its owner alone may read, whatever the umask."""
    fd = os.open(path, flags, 0o600)
    os.fchmod(fd, 0o600)
    return fd


@contextmanager
def sized(target: str, size: int | None) -> Iterator[None]:
    """Create the image file, with mode 600, or grow it to `size` bytes; undone when the body fails. Without a
    size nothing happens."""
    if size is None:
        yield
        return
    exists = os.path.exists(target)
    with open(target, "r+b" if exists else "xb", opener=None if exists else _open_private) as image:
        before = os.fstat(image.fileno()).st_size
        # Growing a file leaves a hole, so that an image may promise more than its filesystem can keep.
        free = shutil.disk_usage(os.path.dirname(os.path.abspath(target))).free
        if size - before > free:
            grows = human_size(size - before)
            warn(f"{target} may come to take {grows} more, but its filesystem has {human_size(free)} free.")
        try:
            try:
                image.truncate(size)
            except (OSError, OverflowError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no file can be so large"
                raise UsageError(
                    f"{target} can't get {size} bytes: {reason}; give a smaller --size, or a file elsewhere"
                ) from error
            yield
        except BaseException:
            if not exists:
                os.unlink(target)
            elif os.fstat(image.fileno()).st_size != before:
                image.truncate(before)
            raise
