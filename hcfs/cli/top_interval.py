"""What happened on a mount between two looks at its status: rates, fetches under way, errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Status = Mapping[str, Any]

IDENTITY = ("directory", "device", "label", "uuid", "version", "pid", "mounted_at")
CONDITION = ("state", "state_reason", "read_only", "io", "sharing", "data_plane", "data_plane_reason")
SPACE = ("capacity", "used", "free", "staged", "pending", "quarantined", "evictable", "dirty")
COUNTS = ("objects", "staged_objects", "quarantined_objects", "max_objects", "open_handles")
_OF_NAMESPACES = ("objects", "used_bytes", "staged_bytes", "quota_bytes", "local_only", "origin", "write_policy")
_STATES = ("dirty", "uploading", "sync_failed")
"""Of objects in namespaces that write to their origin; shown where the status has them."""


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
        name: _namespace(usage, (before or {}).get("namespaces", {}).get(name), seconds)
        for name, usage in now.get("namespaces", {}).items()
    }
    document["fetches"] = list(_fetches(before, now, seconds))
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


def _namespace(usage: Status, earlier: Status | None, seconds: float) -> dict[str, Any]:
    states = (f"{state}_{unit}" for state in _STATES for unit in ("objects", "bytes"))
    known = {name: usage[name] for name in (*_OF_NAMESPACES, *states) if name in usage}
    evictions = None if earlier is None else _rate(earlier.get("evictions", 0), usage.get("evictions", 0), seconds)
    return known | {"evictions_rate": evictions}


def _fetches(before: Status | None, now: Status, seconds: float) -> Iterator[dict[str, Any]]:
    """Objects on their way from origins; the rate is null for those that began since the look before."""
    earlier = {(name, each["key"]): each["bytes"] for name, each in _ingesting(before or {})}
    for name, each in _ingesting(now):
        was = earlier.get((name, each["key"]))
        # A fetch that met wrong bytes begins again at 0.
        known = was is not None and was <= each["bytes"]
        yield {"namespace": name, **each, "bytes_rate": _rate(was or 0, each["bytes"], seconds) if known else None}


def _ingesting(status: Status) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, origin in status.get("origins", {}).items():
        for each in origin.get("ingesting", ()):
            yield name, each


def _errors(now: Status) -> Iterator[dict[str, str]]:
    """What is, or was last, wrong: where, and the sentence for it."""
    if now.get("state") != "ok" and now.get("state_reason"):
        yield {"where": "mount", "error": now["state_reason"]}
    for name, origin in now.get("origins", {}).items():
        for field in ("last_error", "last_upload_error"):
            if origin.get(field):
                yield {"where": name, "error": origin[field]}
    for bad in now.get("scrub", {}).get("bad", ())[-3:]:
        yield {"where": bad["path"], "error": bad["reason"]}
    for name in ("checksum_errors", "device_errors", "upload_failures"):
        count = now.get("counters", {}).get(name)
        if count:
            yield {"where": "mount", "error": f"{count} {name.replace('_', ' ')} since it was mounted"}
