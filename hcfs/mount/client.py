"""What commands read from a mount: its own files under `.hcfs`, and never for long when its daemon hangs."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from hcfs.device.mounts import MountEntry, mounts
from hcfs.errors import HcfsError, UsageError

FILESYSTEM = "fuse.hcfs"
TIME_LIMIT = 5.0
"""Seconds for an answer from the daemon."""


def mount_at(directory: str) -> MountEntry | None:
    """The hcfs mount at a directory, by the mount table alone: nothing is asked of the mount itself."""
    path = resolved(directory)
    found = [each for each in mounts() if each.pid is None and each.directory == path]
    # The last one covers the others.
    return found[-1] if found and found[-1].filesystem == FILESYSTEM else None


def connection_of(path: str) -> int | None:
    """Number of the FUSE connection of the hcfs mount at a directory, as under /sys/fs/fuse/connections."""
    mounted = mount_at(path)
    return None if mounted is None else os.minor(mounted.device)


def resolved(directory: str) -> str:
    """The absolute path without symlinks, but for the last component, which may belong to a daemon that hangs."""
    parent, name = os.path.split(os.path.abspath(directory))
    path = os.path.join(os.path.realpath(parent), name)
    if name and not _is_mount_point(path) and os.path.islink(path):
        return os.path.realpath(path)
    return path


def read_status(directory: str) -> dict[str, Any]:
    """`.hcfs/status.json` of the mount at a directory. HcfsError, within TIME_LIMIT, when none answers there."""
    return _read_json(directory, "status.json")


def namespace_status(directory: str, name: str) -> dict[str, Any]:
    """Options and usage of a namespace; errors as read_status, UsageError when there is no such namespace."""
    namespace_directory(directory, name)
    return _read_json(directory, f"namespaces/{name}.json")


def namespace_directory(directory: str, name: str) -> str:
    """Path of a namespace; errors as read_status, UsageError when there is no such namespace."""
    known = read_status(directory)["namespaces"]
    if name not in known:
        others = ", ".join(sorted(known)) or "none yet"
        raise UsageError(
            f"{directory} has no namespace {name!r} (there are: {others}); make it with "
            f"'hcfs ns create {directory} {name}'"
        )
    return os.path.join(directory, name)


def _read_json(directory: str, name: str) -> dict[str, Any]:
    if mount_at(directory) is None:
        raise HcfsError(f"{directory} is not an hcfs mount; give the directory that 'hcfs mount SOURCE DIR' was given")
    content = json.loads(read_file(os.path.join(resolved(directory), ".hcfs", name), directory))
    assert isinstance(content, dict)
    return content


def read_file(path: str, directory: str) -> bytes:
    """A file of the mount at `directory`, read by a process of its own: one that waits for a daemon that hangs can't be
    ended, so it is left behind."""
    process = subprocess.Popen(
        ["cat", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False
    )
    try:
        content, complaint = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise HcfsError(
            f"the mount at {directory} doesn't answer within {TIME_LIMIT:g} s: look at its log, or end its daemon and "
            f"clear the mount with 'hcfs umount --lazy {directory}'"
        ) from None
    if process.returncode:
        reason = complaint.decode(errors="replace").strip().rpartition(": ")[2]
        raise HcfsError(f"the mount at {directory} can't be read: {reason}; if its daemon has died, mount it again")
    return content


def _is_mount_point(path: str) -> bool:
    return any(each.directory == path for each in mounts() if each.pid is None)
