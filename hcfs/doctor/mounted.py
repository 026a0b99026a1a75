"""One mount: whether it answers, its state, and what its counters tell."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from hcfs import __version__
from hcfs.daemon.syncing import is_conflict
from hcfs.doctor.connection import background
from hcfs.doctor.finding import Finding, Findings, failed, ok, warning
from hcfs.doctor.machine import memory_for
from hcfs.doctor.medium import medium
from hcfs.doctor.trial import data_plane
from hcfs.errors import HcfsError
from hcfs.mountpoint.client import NotAllowed, mount_at, read_file, read_status, resolved
from hcfs.mountpoint.mountpoint import condition_of
from hcfs.options.schemes import scheme_of

Status = dict[str, Any]


def status_of(directory: str) -> tuple[Status | None, list[Finding]]:
    """The status of the mount at a directory, or None where there is none; what was found on the way."""
    if mount_at(directory) is None:
        remedy = f"mount a store there with 'hcfs mount SOURCE {directory}'"
        return None, [failed("mount", f"{directory} is not an hcfs mount", remedy)]
    condition = condition_of(resolved(directory))
    if condition == "dead":
        remedy = "mount it again: what was committed is there"
        return None, [failed("mount", f"the daemon of the mount at {directory} has died", remedy)]
    if condition == "hung":
        remedy = f"wait for its device, or give it up with 'hcfs umount --lazy {directory}'"
        return None, [failed("mount", f"the mount at {directory} doesn't answer", remedy)]
    try:
        return read_status(directory), [ok("mount", f"{directory} answers")]
    except NotAllowed as error:
        return None, [failed("mount", str(error), "ask as root")]
    except HcfsError as error:
        return None, [failed("mount", str(error), "look at its log")]


def mounted(directory: str, status: Status) -> Findings:
    """Everything about a mount that answers, from its status and from the kernel."""
    yield from _state(status)
    yield from _version(status)
    yield from data_plane(status)
    yield from background(directory)
    yield from medium(status["device"], status["io"])
    yield from _memory(directory, status)
    yield from _room(status)
    yield from _damage(directory, status)
    yield from _clients(status)
    yield from _origins(status)


def _state(status: Status) -> Findings:
    state, reason = status["state"], status.get("state_reason")
    if state == "ok":
        yield ok("state", "ok")
    elif status.get("read_only"):
        yield ok("state", f"{state}, as it was mounted")
    else:
        remedy = (
            "unmount it and run 'hcfs fsck --repair' on its source"
            if state == "degraded"
            else "look at the kernel's log and mount it again; replace the device if that repeats"
        )
        yield failed("state", f"{state}: {reason}", remedy)


def _version(status: Status) -> Findings:
    serves = status.get("version")
    if serves == __version__:
        yield ok("version", f"hcfs {serves} serves it")
    else:
        yield warning("version", f"hcfs {serves} serves it, and this is {__version__}", "mount it again")


def _memory(directory: str, status: Status) -> Findings:
    config = json.loads(read_file(os.path.join(resolved(directory), ".hcfs", "config.json"), directory))
    pid = status["pid"]
    try:
        found = re.search(r"^VmRSS:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        yield from memory_for(config["memory"], int(found[1]) << 10 if found else 0, pid)
    except OSError:
        yield warning("memory", f"process {pid}, the daemon, can't be looked at from here", "ask on its own host")


def _room(status: Status) -> Findings:
    capacity = status["capacity_bytes"]
    room = status["free_bytes"] + status["evictable_bytes"]
    text = f"{room >> 20} of {capacity >> 20} MiB are free or can be evicted"
    if room * 20 < capacity:
        remedy = "look at what is open, pinned, dirty or quarantined in 'hcfs status'"
        yield warning("room", f"{text}: writes may get ENOSPC", remedy)
    else:
        yield ok("room", text)


def _damage(directory: str, status: Status) -> Findings:
    quarantined = status["quarantined_objects"]
    if quarantined:
        remedy = f"see {directory}/.hcfs/quarantine for which and why; they go first when room is needed"
        yield warning("quarantine", f"{quarantined} damaged objects are kept for inspection", remedy)
    else:
        yield ok("quarantine", "empty")
    counters = status["counters"]
    counts = {name.replace("_", " "): counters[name] for name in ("checksum_errors", "device_errors")}
    text = ", ".join(f"{count} {name}" for name, count in counts.items()) + " since it was mounted"
    if any(counts.values()):
        remedy = "look at the kernel's log and the drive's SMART data, and run 'hcfs scrub'"
        yield warning("medium errors", text, remedy)
    else:
        yield ok("medium errors", text)


def _clients(status: Status) -> Findings:
    if status.get("sharing") == "handle":
        yield warning(
            "writers",
            "a client in another PID namespace has written: a killed writer isn't told from one that closed",
            "start the daemon in the clients' PID namespace, or in one above it",
        )
    else:
        yield ok("writers", "the process of every writer so far could be told")


def _origins(status: Status) -> Findings:
    yield from _library(status)
    for name, origin in status.get("origins", {}).items():
        if origin.get("not_allowed"):
            remedy = "if it may go there: unmount, and mount with that option too; 'hcfs info' lists what a store wants"
            yield failed("origin", f"{name}: {origin['not_allowed']}", remedy)
            continue
        error = origin.get("last_error")
        # Of uploads, what counts is what is given up now, and not what has been resolved.
        if error and not is_conflict(error) and error not in [each["reason"] for each in origin.get("failed", ())]:
            remedy = (
                "mend what it names; else check the URL, the credentials in the daemon's environment, and the network"
            )
            yield warning("origin", f"{name}: {error}{_ago(origin)}", remedy)
        elif origin.get("listings"):
            yield ok("origin", f"{name}: {origin['url']} was listed")
        if origin.get("refused_objects"):
            yield _refused(name, origin)
        if origin.get("failed_objects"):
            yield _given_up(status["directory"], name, origin)


def _ago(origin: Status) -> str:
    """When an origin's last error was, which stays until there is another."""
    seconds = origin.get("last_error_s")
    return "" if seconds is None else f" ({seconds:.0f} s ago)"


def _refused(name: str, origin: Status) -> Finding:
    text = f"{name}: {origin['refused_objects']} paths at its origin are refused, with EIO for whoever asks for them"
    first = next(iter(origin.get("refused", ())), None)
    if first is not None:
        path = "".join(each if each.isprintable() else repr(each)[1:-1] for each in first["path"])
        text += f"; {path}: {first['reason']}"
    return warning("origin", text, "rename or remove them there; 'hcfs status --json' names the first hundred")


def _given_up(directory: str, name: str, origin: Status) -> Finding:
    text = f"{name}: {origin['failed_objects']} files were given up, which its origin doesn't have"
    first = next(iter(origin.get("failed", ())), None)
    if first is not None:
        text += f"; {first['path']}: {first['reason']}"
    command = f"hcfs sync {shlex.quote(directory)} {shlex.quote(name)}"
    if any(is_conflict(each["reason"]) for each in origin.get("failed", ())):
        return warning("uploads", text, f"give '{command} --overwrite PATH' or '--discard PATH' for each")
    remedy = f"mend what '{command}' tells, then '{command} --retry'; --overwrite or --discard what is to go otherwise"
    return warning("uploads", text, remedy)


def _library(status: Status) -> Findings:
    """Of the environment that asks, which may not be the daemon's."""
    needed: dict[tuple[str, str], list[str]] = {}
    for name, each in status["namespaces"].items():
        scheme = scheme_of(each.get("origin") or "")
        if scheme is not None and scheme.missing is not None:
            needed.setdefault((scheme.library or "", scheme.extra or ""), []).append(name)
    for (library, extra), names in needed.items():
        text = f"{library} isn't installed in this environment, and {', '.join(names)} has an origin that needs it"
        yield warning(f"extra {extra}", text, f"run 'pip install hcfs[{extra}]' in the daemon's environment")
