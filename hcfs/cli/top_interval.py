"""What happened on a mount between two looks at its status: rates, fetches under way, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Status = Mapping[str, Any]

IDENTITY = ("directory", "device", "label", "uuid", "version", "pid", "mounted_at")
CONDITION = ("state", "state_reason", "read_only", "io", "sharing", "data_plane", "data_plane_reason")
SPACE = ("capacity", "used", "free", "staged", "pending", "quarantined", "evictable", "dirty")
COUNTS = ("objects", "staged_objects", "quarantined_objects", "max_objects", "open_handles")
_OF_NAMESPACES = (
    *("objects", "used_bytes", "staged_bytes", "dirty_bytes", "quota_bytes", "local_only", "origin", "write_policy"),
)
_OF_ORIGINS = ("unsynced_objects", "failed_objects")
"""What an origin doesn't have yet, in namespaces that write to theirs, and what was given up of that."""


def interval(before: Status | None, now: Status, seconds: float) -> dict[str, Any]:
    """The document of one interval that `hcfs top` shows: fields as the later look has them, counters and requests as
    rates a second.

    before: the look `seconds` earlier; None at the first. Rates are null where there is nothing to compare with: at the
    first look, and after the mount was made anew meanwhile. What either status lacks is left out."""
    if before is not None and before.get("mounted_at") != now.get("mounted_at"):
        before = None
    document: dict[str, Any] = {name: now[name] for name in (*IDENTITY, *CONDITION) if name in now}
    document |= {name: now[name] for name in (f"{part}_bytes" for part in SPACE) if name in now}
    document |= {name: now[name] for name in (*COUNTS, "memory") if name in now}
    document["interval_s"] = None if before is None else round(seconds, 3)
    document["rates"] = _rates(before, now, "counters", seconds)
    document["requests"] = _rates(before, now, "requests", seconds)
    document["namespaces"] = {
        name: _namespace(
            usage, now.get("origins", {}).get(name, {}), (before or {}).get("namespaces", {}).get(name), seconds
        )
        for name, usage in now.get("namespaces", {}).items()
    }
    document["fetches"] = list(_transfers(before, now, seconds, _ingesting))
    document["uploads"] = list(_transfers(before, now, seconds, _uploading))
    document["scrub"] = {name: value for name, value in now.get("scrub", {}).items() if name != "bad"}
    document["commands"] = list(now.get("commands", ()))
    document["errors"] = list(_errors(now))
    return document


def _rates(before: Status | None, now: Status, part: str, seconds: float) -> dict[str, float | None]:
    earlier = None if before is None else before.get(part, {})
    return {
        name: None if earlier is None else _rate(earlier.get(name, 0), value, seconds)
        for name, value in now.get(part, {}).items()
    }


def _rate(earlier: int, later: int, seconds: float) -> float:
    return round((later - earlier) / max(seconds, 1e-6), 2)


def _namespace(usage: Status, origin: Status, earlier: Status | None, seconds: float) -> dict[str, Any]:
    known = {name: usage[name] for name in _OF_NAMESPACES if name in usage}
    known |= {name: origin[name] for name in _OF_ORIGINS if name in origin}
    evictions = None if earlier is None else _rate(earlier.get("evictions", 0), usage.get("evictions", 0), seconds)
    return known | {"evictions_rate": evictions}


Transfer = tuple[str, str, int, int]
"""Namespace, key, bytes so far and in all."""


def _transfers(
    before: Status | None, now: Status, seconds: float, of: Callable[[Status], Iterator[Transfer]]
) -> Iterator[dict[str, Any]]:
    """Objects on their way; the rate is null for those that began since the look before."""
    earlier = {(name, key): done for name, key, done, _ in of(before or {})}
    for name, key, done, size in of(now):
        was = earlier.get((name, key))
        # One that met wrong bytes, or an error, begins again at 0.
        rate = None if was is None or was > done else _rate(was, done, seconds)
        yield {"namespace": name, "key": key, "bytes": done, "size": size, "bytes_rate": rate}


def _ingesting(status: Status) -> Iterator[Transfer]:
    for name, origin in status.get("origins", {}).items():
        yield from ((name, each["key"], each["bytes"], each["size"]) for each in origin.get("ingesting", ()))


def _uploading(status: Status) -> Iterator[Transfer]:
    for name, origin in status.get("origins", {}).items():
        yield from ((name, each["path"], each["sent_bytes"], each["bytes"]) for each in origin.get("uploading", ()))


def _errors(now: Status) -> Iterator[dict[str, str]]:
    """What is, or was last, wrong: where, and the sentence for it."""
    if now.get("state") != "ok" and now.get("state_reason"):
        yield {"where": "mount", "error": now["state_reason"]}
    for name, origin in now.get("origins", {}).items():
        if origin.get("last_error"):
            yield {"where": name, "error": origin["last_error"]}
        for failed in origin.get("failed", ())[:3]:
            yield {"where": f"{name}/{failed['path']}", "error": f"not uploaded: {failed['reason']}"}
    for bad in now.get("scrub", {}).get("bad", ())[-3:]:
        yield {"where": bad["path"], "error": bad["reason"]}
    for name in ("checksum_errors", "device_errors", "upload_failures"):
        count = now.get("counters", {}).get(name)
        if count:
            yield {"where": "mount", "error": f"{count} {name.replace('_', ' ')} since it was mounted"}
