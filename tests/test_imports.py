"""The rooms' order: imports point downwards only, and each room knows only the libraries that are its business."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hcfs"

# Room: the rooms below it that it may import, and the libraries it may import.
ROOMS = {
    # What can be said of mounts, namespaces and origins: every room may know it.
    "options": (set(), set()),
    "device": (set(), set()),
    "store": ({"device"}, {"crc32c", "sortedcontainers"}),
    "cache": ({"store", "device"}, {"sortedcontainers"}),
    "fuse": (set(), set()),
    # The only way to a network, and it only reads: neither store nor cache can reach it.
    "origin": (set(), {"obstore"}),
    "host": (set(), {"trio"}),
    "filesystem": ({"cache", "store", "device", "host"}, set()),
    "mountpoint": ({"fuse", "device", "host"}, set()),
    "remote": ({"filesystem", "cache", "store", "device", "origin", "mountpoint", "fuse", "host"}, set()),
    "frontends": ({"filesystem", "mountpoint", "fuse", "store", "device"}, {"pyfuse3", "trio"}),
    "daemon": (
        {"frontends", "remote", "filesystem", "mountpoint", "fuse", "cache", "store", "device", "origin", "host"},
        {"prometheus_client", "trio"},
    ),
    "doctor": ({"daemon", "frontends", "mountpoint", "fuse", "host", "store", "device", "lmcache"}, {"pyfuse3"}),
    "cli": (
        {"doctor", "daemon", "remote", "mountpoint", "cache", "store", "device", "lmcache", "weights"},
        {"click", "rich"},
    ),
    # Clients of a mount: they know paths and xattr names, as a program that isn't part of hcfs does.
    "lmcache": (set(), {"lmcache"}),
    # The last three are what `hcfs weights bench` measures beside its own reader.
    "weights": (
        set(),
        {"ml_dtypes", "numpy", "torch", "safetensors", "runai_model_streamer", "fastsafetensors"},
    ),
}
INNER = {
    "filesystem": ["versions", "handles", "operations", "places"],
    "remote": ["listing", "fetching", "uploading", "syncing"],
}
"""Rooms within rooms, from the lowest to the highest; each may import those before it. A file beside them is where its
imports put it."""

_TYPING = "from typing_extensions import "
COMMON = {"hcfs", "hcfs.errors", "hcfs.printable", "hcfs.faults"}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import in a file, those inside functions and under TYPE_CHECKING included."""
    module = path.relative_to(PACKAGE.parent).with_suffix("").parts
    tree = ast.parse(path.read_bytes())
    # What only a type checker reads may come from typing_extensions, which every type checker brings.
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    typing_only = {child for block in blocks for child in block.body if ast.unparse(child).startswith(_TYPING)}
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module[: -node.level]) + "." * bool(node.module) if node.level else ""
            origin = base + (node.module or "")
            # `from hcfs import store` imports hcfs.store; of `from hcfs.store import Store` the module says enough.
            names = [f"hcfs.{alias.name}" for alias in node.names] if origin == "hcfs" else [origin]
            yield from ((node.lineno, "hcfs" if name == "hcfs.__version__" else name) for name in names)


def modules(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def test_every_package_is_a_known_room() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_downwards(room: str) -> None:
    allowed_rooms, allowed_libraries = ROOMS[room]
    wrong = []
    for path in modules(room):
        for line, name in imported(path):
            top, *rest = name.split(".")
            if top == "hcfs":
                fine = name in COMMON or (rest and rest[0] in allowed_rooms | {room, "options"})
            else:
                fine = top in allowed_libraries or top in sys.stdlib_module_names
            if not fine:
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line} imports {name}")
    assert not wrong


def test_the_roots_import_no_room() -> None:
    for name in ("__init__.py", "errors.py"):
        found = [name for _, name in imported(PACKAGE / name) if name.split(".")[0] not in sys.stdlib_module_names]
        assert not found


@pytest.mark.parametrize("room", [room for room in ROOMS if (PACKAGE / room / "__init__.py").exists()])
def test_every_module_of_the_room_can_be_imported_alone(room: str) -> None:
    """No module works only because another one happened to be imported before it."""
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in modules(room)]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    program = (
        "import sys, importlib\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [m for m in sys.modules if m == 'hcfs' or m.startswith('hcfs.')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", program, *names], check=True, timeout=120)


@pytest.mark.parametrize("command", ["status", "top", "info", "ns", "keys", "lmcache-config", "weights"])
def test_reporting_commands_start_without_the_daemon_libraries(command: str) -> None:
    program = (
        "import sys\n"
        "from hcfs.cli.run import run\n"
        f"assert run([{command!r}, '--help']) == 0\n"
        "print(*sorted({'pyfuse3', 'trio', 'rich', 'prometheus_client'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stderr.split() == []


@pytest.mark.parametrize("room", INNER)
def test_inner_rooms_point_downwards(room: str) -> None:
    order, wrong = INNER[room], []
    assert sorted(order) == sorted(path.parent.name for path in (PACKAGE / room).glob("*/__init__.py"))
    for number, inner in enumerate(order):
        for path in sorted((PACKAGE / room / inner).glob("*.py")):
            for line, name in imported(path):
                _, *rest = name.split(".")
                if rest[:1] == [room] and len(rest) > 2 and rest[1] in order[number + 1 :]:
                    wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line} imports {name}")
    assert not wrong
