"""What commands read from a mount and tell it, by its own files under `.hcfs`, and never for long when its daemon
hangs."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

from hcfs.device.mounts import MountEntry, mounts
from hcfs.errors import HcfsError, Unfinished, UsageError
from hcfs.mountpoint import control_client

FILESYSTEM = "fuse.hcfs"
TIME_LIMIT = 5.0
"""Seconds for an answer from the daemon."""

LOOK = 0.5
"""Seconds between two looks at how far a command is."""


def mount_at(directory: str) -> MountEntry | None:
    """The hcfs mount at a directory, by the mount table alone: nothing is asked of the mount itself."""
    return _mounted(resolved(directory))


def _mounted(path: str) -> MountEntry | None:
    found = [each for each in mounts() if each.pid is None and each.directory == path]
    # The last one covers the others.
    return found[-1] if found and found[-1].filesystem == FILESYSTEM else None


def connection_of(path: str) -> int | None:
    """Number of the FUSE connection of the hcfs mount at a path, as under /sys/fs/fuse/connections. path: as `resolved`
    gives it, so that it need not be looked at: what is just being mounted there may never answer."""
    mounted = _mounted(path)
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


def read_config(directory: str) -> dict[str, Any]:
    """`.hcfs/config.json` of the mount at a directory; errors as read_status."""
    return _read_json(directory, "config.json")


def namespace_status(directory: str, name: str) -> dict[str, Any]:
    """Options and usage of a namespace; errors as read_status, UsageError when there is no such namespace."""
    namespace_directory(directory, name)
    return _read_json(directory, f"namespaces/{name}.json")


def namespace_directory(directory: str, name: str) -> str:
    """Path of a namespace; errors as read_status, UsageError when there is no such namespace."""
    known = read_status(directory)["namespaces"]
    # As the status has it: what isn't UTF-8 is escaped there.
    if os.fsencode(name).decode(errors="backslashreplace") not in known:
        others = ", ".join(sorted(known)) or "none yet"
        raise UsageError(
            f"{directory} has no namespace {name!r} (there are: {others}); make it with "
            f"'hcfs ns create {directory} {name}'"
        )
    return os.path.join(directory, name)


def _read_json(directory: str, name: str) -> dict[str, Any]:
    if mount_at(directory) is None:
        raise _no_mount(directory)
    content = json.loads(read_file(os.path.join(resolved(directory), ".hcfs", name), directory))
    assert isinstance(content, dict)
    return content


def _no_mount(directory: str) -> HcfsError:
    return HcfsError(f"{directory} is not an hcfs mount; give the directory that 'hcfs mount SOURCE DIR' was given")


def read_file(path: str, directory: str) -> bytes:
    """A file of the mount at `directory`, read by a process of its own: one that waits for a daemon that hangs can't be
    ended, so it is left behind."""
    process = subprocess.Popen(
        ["cat", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},  # its complaints are read
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
        if reason == os.strerror(errno.EACCES):
            raise NotAllowed(
                f"the mount at {directory} is closed to this user: ask as root or as whoever mounted it, or mount it "
                "with '-o allow_other'"
            )
        raise HcfsError(f"the mount at {directory} can't be read: {reason}; if its daemon has died, mount it again")
    return content


class NotAllowed(HcfsError):
    """Only others may look at the mount."""

    errno = errno.EACCES


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came while a command was under way, which has ended early."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer
        """What it had done by then."""


def administer(
    directory: str, name: str, *, on_progress: Callable[[dict[str, Any]], None] | None = None, **words: Any
) -> dict[str, Any]:
    """Have the mount at a directory do a command, through its control file; the answer. on_progress: called twice a
    second with `phase`, `done_bytes` and `total_bytes` while the daemon tells how far it is.

    However long it takes, as long as the daemon lives: it is asked for its status meanwhile. HcfsError with the
    daemon's sentence when it refuses, and when none answers; Interrupted instead of KeyboardInterrupt once the command
    has ended early."""
    if mount_at(directory) is None:
        raise _no_mount(directory)
    identity = uuid.uuid4().hex
    talk = _talk(directory, {"command": name, "id": identity, "later": True, **words})
    try:
        return _answer(talk, directory, identity, on_progress)
    except KeyboardInterrupt:
        _answer(_talk(directory, {"command": "stop", "id": identity}), directory)
        raise Interrupted(_answer(talk, directory)) from None


def _talk(directory: str, command: dict[str, Any]) -> subprocess.Popen[bytes]:
    path = os.path.join(resolved(directory), ".hcfs", "control")
    script = control_client.__file__
    talk = subprocess.Popen(
        [sys.executable, "-I", "-S", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C isn't for it: it brings the answer of what was stopped.
    )
    assert talk.stdin is not None
    talk.stdin.write(json.dumps(command).encode())
    talk.stdin.close()
    talk.stdin = None
    return talk


def _answer(
    talk: subprocess.Popen[bytes],
    directory: str,
    identity: str | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    while True:
        try:
            said, _ = talk.communicate(timeout=TIME_LIMIT if on_progress is None else LOOK)
            break
        except subprocess.TimeoutExpired:
            try:
                status = read_status(directory)
            except HcfsError as error:
                talk.kill()
                raise Unfinished(f"whether the command was done isn't known: {error}") from error
            for each in status.get("commands", ()):
                if on_progress is not None and each["id"] == identity and "phase" in each:
                    on_progress(each)
    if talk.returncode == control_client.CANT_OPEN:
        raise _cant_administer(directory, int(said))
    if not said:
        raise Unfinished(
            f"the mount at {directory} gave no answer, so how far the command came isn't known: if its daemon has "
            "died, mount it again"
        )
    answer = json.loads(said)
    assert isinstance(answer, dict)
    if "error" in answer:
        failure = HcfsError(f"{directory}: {answer['error']}")
        failure.exit_code = UsageError.exit_code if answer["errno"] == "EINVAL" else 1
        raise failure
    return answer


def _cant_administer(directory: str, code: int) -> HcfsError:
    if code in (errno.EACCES, errno.EPERM):
        return HcfsError(f"{directory}: only root and the owner of the mount's root directory may administer it")
    if code == errno.EROFS:
        return HcfsError(f"{directory} is mounted read-only, so nothing is done there; mount it without 'ro'")
    if code == errno.ENOENT:
        return HcfsError(f"{directory} is served by an hcfs that has no control file; mount it again with this one")
    return HcfsError(f"{directory} can't be administered: {os.strerror(code)}; if its daemon has died, mount it again")


def _is_mount_point(path: str) -> bool:
    return any(each.directory == path for each in mounts() if each.pid is None)
