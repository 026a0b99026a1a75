"""LMCache in this environment, and whether it can use the namespaces of a mount."""

from __future__ import annotations

import os
from typing import Any

from hcfs.doctor.finding import Findings, failed, ok, warning
from hcfs.lmcache.accepts import TESTED, ask, installed
from hcfs.lmcache.config import adapter_spec

_CHECK = "LMCache"


def lmcache() -> Findings:
    """Its version, beside those that were tested."""
    version = installed()
    if version is None:
        yield ok(_CHECK, "not installed in this environment, where hcfs doesn't need it; its servers have their own")
    elif version in TESTED:
        yield ok(_CHECK, f"{version}, which was tested with hcfs")
    else:
        yield warning(_CHECK, f"{version}; tested with hcfs: {', '.join(TESTED)}", "run 'lmcache bench l2' first")


def lmcache_namespaces(directory: str, namespaces: dict[str, Any]) -> Findings:
    """Whether LMCache, if it is installed here, makes a healthy adapter of each local namespace's configuration, and
    whether this user may store there. Nothing is stored."""
    specs: dict[str, dict[str, Any]] = {}
    for name in (name for name, usage in namespaces.items() if usage.get("local_only", True)):
        path = os.path.join(directory, name)
        if not os.access(path, os.W_OK | os.X_OK):
            remedy = f"give it to whoever runs LMCache, as with 'chown USER {path}'"
            yield warning(_CHECK, f"user {os.getuid()} may not store in namespace {name}", remedy)
            continue
        try:
            specs[name] = adapter_spec(directory, name)
        except ValueError as error:
            yield warning(_CHECK, f"namespace {name} can't be used: {error}", "make one of another name for LMCache")
    if not specs or installed() is None:
        return
    for name, reason in zip(specs, ask(list(specs.values())), strict=True):
        if reason is None:
            yield ok(_CHECK, f"it takes the configuration of namespace {name}, and its adapter is healthy")
        else:
            remedy = f"see 'hcfs lmcache-config {directory} {name}', and docs/clients.md"
            yield failed(_CHECK, f"namespace {name} can't be used: {reason}", remedy)
