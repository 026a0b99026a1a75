"""A trial: a small store is made, mounted, written, read and unmounted, as a user would."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing, suppress

from hcfs.daemon.daemon import mount, unmount
from hcfs.device import BufferPool, open_device
from hcfs.doctor.connection import background
from hcfs.doctor.finding import Findings, failed, ok, warning
from hcfs.errors import HcfsError
from hcfs.mountpoint.client import mount_at, read_status
from hcfs.mountpoint.mountpoint import unmount_now
from hcfs.options.mount_options import MountOptions
from hcfs.store import format_device

IMAGE_BYTES = 64 << 20
_TRIED = 1 << 20
_MEMORY = 16 << 20


def trial_mount() -> Findings:
    """Mounts an image of 64 MiB, sparse, in a directory for temporary files, and leaves nothing behind. Blocks."""
    directory = tempfile.mkdtemp(prefix="hcfs-doctor-")
    target = os.path.join(directory, "mnt")
    try:
        os.mkdir(target)
        image = os.path.join(directory, "trial.img")
        with open(image, "xb") as file:
            file.truncate(IMAGE_BYTES)
        with closing(open_device(image, BufferPool(_MEMORY))) as device:
            format_device(device, uid=os.getuid(), gid=os.getgid())
        options = MountOptions.parse(memory=_MEMORY, log=os.path.join(directory, "log"))
        mount(image, target, options, foreground=False)
        yield from _used(target)
        unmount(target, lazy=False)
    except (HcfsError, OSError) as error:
        yield failed("trial mount", str(error), "see the failed lines above, and 'When something is wrong' in the docs")
    finally:
        if mount_at(target) is not None:
            with suppress(HcfsError):
                unmount_now(target, lazy=True)
        shutil.rmtree(directory, ignore_errors=True)


def _used(target: str) -> Findings:
    os.mkdir(os.path.join(target, "kv"))
    path, content = os.path.join(target, "kv", "object"), os.urandom(_TRIED)
    with open(path, "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    with open(path, "rb") as file:
        came_back = file.read() == content
    if came_back:
        yield ok("trial mount", "a store was made and mounted, and a file came back as it was written")
    else:
        yield failed("trial mount", "a file of 1 MiB didn't come back as it was written", "report it as a bug in hcfs")
    yield from data_plane(read_status(target))
    yield from background(target)


def data_plane(status: dict[str, object]) -> Findings:
    """Who serves the hot requests of a mount, from its status, and why."""
    reason = status.get("data_plane_reason")
    if status.get("data_plane") == "threads":
        yield ok("data plane", "threads serve the hot requests; the kernel has what that takes")
    elif reason == "data_plane=off":
        yield ok("data plane", "pyfuse3 serves all requests, as data_plane=off or HCFS_DATA_PLANE says")
    else:
        yield warning("data plane", f"pyfuse3 serves all requests, which is slower: {reason}", "see docs/dataplane.md")
