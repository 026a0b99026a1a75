"""The laboratory: `tools/lab` lists and starts its commands, and its packages stand on no test."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import COMMANDS
from lab.harness import programs

ROOT = programs.ROOT
LAB = ROOT / "lab"
ROOM = 20
"""Files that a package may have, at most."""


def run(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "tools" / "lab", *words], cwd=cwd, capture_output=True, text=True, timeout=100, check=False
    )


def sources(*rooms: str) -> Iterator[tuple[Path, ast.Module]]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path, ast.parse(path.read_bytes())


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_the_list_has_every_command_with_a_line(words: Sequence[str], tmp_path: Path) -> None:
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert lines == [[name, command.meaning] for name, command in COMMANDS.items()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_tells_its_options(name: str, tmp_path: Path) -> None:
    """In a directory of anybody's, whatever lies there."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("raise ImportError('another one')\n")
    done = run(name, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: tools/lab {name} ")


def test_a_command_that_is_not_there_is_said_with_the_one_that_was_meant() -> None:
    done = run("tortur")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tools/lab: there is no 'tortur' (did you mean torture?); tools/lab --help lists what there is\n"
    )


def test_a_library_that_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    program = "import sys; sys.modules['matplotlib'] = None; from lab.__main__ import main; main(sys.argv[1:])"
    words = ["redraw", str(LAB / "recorded" / "l2.json"), str(tmp_path / "picture.svg")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tools/lab redraw: the package matplotlib isn't installed: run tools/setup --with-tests\n"


def test_the_tools_are_four() -> None:
    assert {path.name for path in (ROOT / "tools").iterdir()} == {"setup", "demo", "test", "lab"}


def test_the_lab_imports_no_test() -> None:
    """Of what lies in tests/, no name; the folders there have names of their own on the tests' import path."""
    ours = {"lab", "hcfs"} | set(sys.stdlib_module_names)
    folders = {path.stem for path in (ROOT / "tests").iterdir() if path.suffix in ("", ".py")} | {"tests"}
    folders -= {"lmcache"}  # LMCache's own package, which comes before a folder that is none
    found = []
    for path, tree in sources("lab"):
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are absolute"
                names = [node.module or ""]
            found += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if (top := name.partition(".")[0]) in folders and top not in ours
            ]
    assert not found


def test_nothing_edits_the_import_path() -> None:
    """There is one way to the packages, in pyproject.toml and in the launchers."""
    found = []
    for path, tree in sources("hcfs", "lab", "tests"):
        text = ast.unparse
        for node in ast.walk(tree):
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                targets = [node.func.value]
            found += [f"{path.relative_to(ROOT)}:{target.lineno}" for target in targets if "sys.path" in text(target)]
        lines = path.read_text().splitlines()
        found += [f"{path.relative_to(ROOT)}:{at}" for at, line in enumerate(lines, 1) if "noqa: " + "E402" in line]
    assert not found


def test_rooms_are_small() -> None:
    sizes = {room: len([*room.glob("*.py")]) for room in {LAB, *(path.parent for path in LAB.rglob("*.py"))}}
    assert {str(room.relative_to(ROOT)): size for room, size in sizes.items() if size > ROOM} == {}


def test_users_do_not_get_it() -> None:
    """The wheel has hcfs alone, and hcfs imports nothing of the laboratory."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["packages"]["find"]["include"] == ["hcfs", "hcfs.*"]
    imports = [
        path
        for path, tree in sources("hcfs")
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "lab" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "lab")
    ]
    assert not imports


@pytest.mark.parametrize("name", ["l2", "scale"])
def test_the_pictures_of_the_documents_are_drawn_from_recorded_figures(name: str, tmp_path: Path) -> None:
    """Twice the same bytes, and the words and figures that the page shows."""
    recorded = LAB / "recorded" / f"{name}.json"
    for drawn in ("one.svg", "other.svg"):
        done = run("redraw", recorded, tmp_path / drawn)
        assert done.returncode == 0, done.stderr
    svg = (tmp_path / "one.svg").read_text()
    assert svg == (tmp_path / "other.svg").read_text()
    assert texts(svg) == texts((ROOT / "docs" / f"{name}.svg").read_text())
    if name == "l2":
        cases = json.loads(recorded.read_text())["cases"]
        ratios = [entry["ratio"] for case in cases for found in case["measures"].values() for entry in found.values()]
        assert {f"{ratio['median']:.2f}" for ratio in ratios} <= {text[:4] for text in texts(svg)}


def texts(svg: str) -> list[str]:
    """Texts are texts, not outlines."""
    from xml.etree import ElementTree as ET

    found = ["".join(part.itertext()).strip() for part in ET.fromstring(svg).iter() if part.tag.endswith("}text")]
    assert found
    return found
