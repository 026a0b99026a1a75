"""The structure that docs/architecture.md describes: objects have parts, and keep what is private to themselves."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import hcfs

PACKAGE = Path(hcfs.__file__).parent
NAMED_TUPLE = ("_replace", "_asdict", "_fields")
"""Public, though they look private: a field may have any name."""

COMPOSED = (
    *("filesystem", "remote", "frontends", "mountpoint", "daemon", "host"),
    *("store", "cache", "device", "origin", "fuse", "doctor", "cli", "lmcache", "weights"),
)
"""Rooms in which nobody calls what is private to another object."""

FACADE = "hcfs.filesystem.filesystem"


def classes() -> Iterator[type]:
    for found in pkgutil.walk_packages([str(PACKAGE)], "hcfs."):
        if found.name.startswith("hcfs.weights.bench") or found.name == "hcfs.__main__":
            continue  # they need the loaders of other projects; __main__ runs
        module = importlib.import_module(found.name)
        for _, value in inspect.getmembers(module, inspect.isclass):
            if value.__module__ == found.name:
                yield value


def behaving_bases(one: type) -> list[type]:
    """Classes of hcfs above this one that have code of their own: exceptions and protocols haven't."""
    return [
        base
        for base in one.__mro__[1:]
        if base.__module__.startswith("hcfs.")
        and not issubclass(base, BaseException)
        and not getattr(base, "_is_protocol", False)
        and any(inspect.isfunction(value) for value in vars(base).values())
    ]


def test_no_class_inherits_behaviour_over_more_than_one_level() -> None:
    ladders = {
        f"{one.__module__}.{one.__qualname__}": [base.__qualname__ for base in behaving_bases(one)]
        for one in classes()
        if len(behaving_bases(one)) > 1
    }
    assert not ladders


@pytest.mark.parametrize("room", COMPOSED)
def test_nobody_calls_what_is_private_to_another_object(room: str) -> None:
    """`self._x` and `cls._x` are one's own; so is what a module keeps for itself."""
    calls = []
    for path in sorted((PACKAGE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            owner = node.value
            if node.attr not in NAMED_TUPLE and not (isinstance(owner, ast.Name) and owner.id in ("self", "cls", "os")):
                calls.append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno} {ast.unparse(node)}")
    assert not calls


def test_only_the_store_works_on_its_ledger() -> None:
    """Everybody else calls the store and its parts."""
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{node.lineno} {ast.unparse(node)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "store"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr == "ledger"
    ]
    assert not found


def test_the_facade_only_dispatches() -> None:
    """No branch, no loop, no lock: each call is handed to a place, a handle or a part."""
    tree = ast.parse((PACKAGE / "filesystem" / "filesystem.py").read_bytes())
    found = [
        f"line {node.lineno}: {type(node).__name__}"
        for node in ast.walk(tree)
        if isinstance(node, ast.If | ast.IfExp | ast.For | ast.While | ast.Try | ast.With | ast.Match | ast.BoolOp)
    ]
    assert not found


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads a name in a traceback, or looks for it, finds one thing."""
    homes: dict[str, list[str]] = {}
    for one in classes():
        homes.setdefault(one.__name__, []).append(one.__module__)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}
