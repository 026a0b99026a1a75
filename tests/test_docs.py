"""What the documentation shows is true: its commands parse or run, its tables are the code's, its links lead on. And
it can be read: lines, lists and words keep to some rules."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from hcfs.cli import run
from hcfs.lmcache.config import adapter_spec
from hcfs.options.described import TABLES, described
from hcfs.options.mount_options import MountOptions
from lab.harness.mounts import Mount
from lab.harness.weights import safetensors, write_model

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [page.name for page in PAGES]


def blocks(page: Path, language: str = "") -> list[str]:
    """Code blocks of a page that are marked with the language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def command_lines(page: Path) -> list[list[str]]:
    """Words of each line in a code block that calls hcfs, inside $(...) as well."""
    lines = "\n".join(blocks(page)).replace("\\\n", " ").splitlines()
    inner = [match for line in lines for match in re.findall(r"\$\((hcfs [^)]*)\)", line)]
    outer = [line for line in lines if line.startswith("hcfs ")]
    return [shlex.split(line, comments=True)[1:] for line in outer + inner]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_shown_is_one(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def note(self: click.Command, ctx: click.Context) -> None:
        if not isinstance(self, click.Group):
            called.append(ctx.command_path)

    monkeypatch.setattr(click.Command, "invoke", note)
    lines = command_lines(page)
    for words in lines:
        assert run.run(words) == 0, words
    assert len(called) == len(lines)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if page.name not in readme] == []


def test_the_readme_session_runs(make_loop: Callable[..., Path], tmp_path: Path) -> None:
    """The README's five minutes, on a loop device, without the lines that need LMCache's server or another user."""
    session = "".join(
        block for block in blocks(ROOT / "README.md") if "/mnt/hc" in block and "lmcache server" not in block
    )
    lines = [line for line in session.splitlines() if not line.startswith("chown vllm")]
    assert len(lines) > 8
    mount = Mount(make_loop("256M"), tmp_path / "hc")
    script = "\n".join(lines).replace("/dev/nvme1n1", str(mount.source)).replace("/mnt/hc", str(mount.dir))
    # Something to look at, stored before the lines that look.
    script = script.replace("ls -l", f"echo content >{mount.dir}/kv/object; ls -l", 1)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-euc", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "user.hcfs.state" in done.stdout
        assert not mount.mounted
    finally:
        mount.close()


def test_the_adapter_in_the_clients_page() -> None:
    (shown,) = blocks(ROOT / "docs" / "clients.md", "json")
    assert json.loads(shown) == adapter_spec("/mnt/hc", "kv")


def test_the_examples_of_the_weights_page(shared_mount: Mount, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    models = shared_mount.ns("models")
    names = ["lm_head.weight", "model.layers.10.w", "model.layers.2.w", "model.embed_tokens.weight"]
    parts = [
        {name: ("F32", [2], bytes(8)) for name in names[:2]},
        {name: ("BF16", [4], bytes(8)) for name in names[2:]},
    ]
    write_model(models / "llama", parts)
    (models / "broken.safetensors").write_bytes(safetensors(parts[0])[:-1])
    examples = blocks(ROOT / "docs" / "weights.md", "python")
    assert len(examples) == 2
    for example in examples:
        exec(example.replace("/mnt/hc", str(shared_mount.dir)), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in printed[:4]] == names[::-1]
    assert printed[4:9] == ["embeddings 1 tensors", "model.layers.2 1 tensors", "model.layers.10 1 tensors",
                            "head 1 tensors", "32"]  # fmt: skip
    shown = re.findall(r"# (/mnt/hc.*)$", examples[1], re.MULTILINE)
    assert re.fullmatch(
        re.escape(shown[0]).replace(re.escape("(...)"), r"\(.*\)"), printed[9].replace(str(shared_mount.dir), "/mnt/hc")
    )


def table(page: str, *heads: str) -> list[list[str]]:
    """Rows of the page's table with these heads."""
    pattern = r"^\| " + r" \| ".join(map(re.escape, heads)) + r" \|.*\n\|[-|]+\|\n((?:\|.*\|\n)+)"
    (found,) = re.findall(pattern, (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found.splitlines()]


def test_mount_options_in_the_operations_page() -> None:
    shown = {}
    for name, default, _ in table("operations.md", "option", "default", "meaning"):
        option = name.split("=")[0].strip("`")
        shown[option] = default
        if default[0].isdigit():
            assert MountOptions.parse(f"{option}={default}") == MountOptions(), option
    known = {field.name for field in dataclasses.fields(MountOptions)} - {"config", "words"}
    assert set(shown) == known


def test_tables_of_options_and_origins_are_the_codes() -> None:
    """`python -m hcfs.options.described docs` writes them."""
    texts = {page.name: page.read_text() for page in PAGES}
    assert {name for text in texts.values() for name in re.findall("<!-- table: ([a-z ]+) -->", text)} == set(TABLES)
    assert [name for name, text in texts.items() if described(text) != text] == []


def test_files_of_the_debug_tree_in_the_operations_page(shared_mount: Mount) -> None:
    shown = {name.strip("`").split("/")[0] for name, _ in table("operations.md", "file", "what")}
    assert shown == set(os.listdir(shared_mount.dir / ".hcfs"))


def test_checks_of_the_doctor_in_the_operations_page() -> None:
    """A check is named in the page if and only if some line of the doctor's can have that name."""
    shown = {name for row in table("operations.md", "check", "what is done") for name in row[0].split(", ")}
    source = "".join(path.read_text() for path in (ROOT / "hcfs" / "doctor").glob("*.py"))
    made = set(re.findall(r'\b(?:ok|warning|failed)\(\s*f?"([^"]+)"', source)) | set(
        re.findall(r'^_CHECK = "(.+)"$', source, re.MULTILINE)
    )
    assert {name.replace("{extra}", "...") for name in made} == {name.split(" (")[0] for name in shown}


def test_dependencies_are_argued() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[^\w-]", each, maxsplit=1)[0] for each in project["dependencies"]}
    assert {row[0] for row in table("dependencies.md", "library", "used in")} == required
    extras = {row[0].strip("`") for row in table("dependencies.md", "extra", "libraries")}
    assert extras == set(project["optional-dependencies"])


# --- how pages are written -------------------------------------------------------------------------------------------


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line outside of code blocks."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = line.lstrip().startswith("```")
        if not inside and not fence:
            yield number, line
        inside ^= fence


def of_figures(rows: list[str]) -> bool:
    """Whether a table has figures: most cells have a digit, and all are short, but for the first of a row."""
    cells = [cell.strip() for row in rows[2:] for cell in row.strip("| ").split(" | ")[1:]]
    filled = [cell for cell in cells if cell]
    return 2 * sum(bool(re.search(r"\d", cell)) for cell in filled) > len(filled) and max(map(len, cells)) <= 40


def too_wide(page: Path) -> list[str]:
    """Lines of more than 100 columns, which a reader of the plain text would have to scroll for. These may be longer:

    * code blocks;
    * a line that is one word, which can't be broken: an address, a link, code between backquotes, with a mark of a
      list before it;
    * tables of figures, since a row of figures is looked at as one;
    * tables that the code makes (`hcfs.options.described`).
    """
    wide, tables = [], dict[int, list[str]]()
    rows: list[str] = []
    made = False
    for number, line in prose(page):
        made = (made or line.startswith("<!-- table: ")) and not line.startswith("<!-- end of table")
        if made:
            continue
        rows = [*rows, line] if line.startswith("|") else []
        if rows:
            tables[number - len(rows) + 1] = rows
        elif len(re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "x", line).split()) > 1 + line.lstrip().startswith(
            ("* ", "- ")
        ):
            wide += [f"{page.name}:{number}: {line}"] * (len(line) > 100)
    for begin, table_rows in tables.items():
        if not of_figures(table_rows):
            wide += [f"{page.name}:{begin + at}: {row}" for at, row in enumerate(table_rows) if len(row) > 100]
    return wide


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_prose_fits_100_columns(page: Path) -> None:
    assert too_wide(page) == []


def test_the_rule_of_width_sees_what_it_should(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    word, figures = "x" * 120, "| a |" + " 1,234.5 (1,200 to 1,300) |" * 5
    fine = [f"`{word} {word}`", f"* `{word}`", f"[a b]({word})", f"```\n{word} {word}\n```"]
    fine += [f"|  |{' x |' * 5}\n|---|{'---|' * 5}\n{figures}"]
    page.write_text("\n\n".join(fine))
    assert too_wide(page) == []
    for wrong in (f"{'word ' * 25}", f"* {'word ' * 25}", f"| a | b |\n|---|---|\n| x | {'word ' * 25} |"):
        page.write_text(f"{fine[0]}\n\n{wrong}\n")
        assert len(too_wide(page)) == 1, wrong


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_list_begins_behind_an_empty_line(page: Path) -> None:
    """Markdown on the site takes it for a part of the paragraph otherwise. A line that is indented goes on with an
    item."""
    wrong, before = [], ""
    for number, line in prose(page):
        is_item = re.match(r"([*-]|\d+\.) ", line)
        if is_item and before and not before.startswith(" ") and not re.match(r"([*-]|\d+\.) ", before):
            wrong.append(f"{page.name}:{number}: {line}")
        before = line
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_of_the_code_that_are_named_exist(page: Path) -> None:
    """With or without hcfs/ before them, since the pages speak of its rooms."""
    named = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|c|sh|toml|yml))(?:::\w+)?`", page.read_text()))
    tests = ROOT / "tests"
    assert [
        name for name in sorted(named) if not any((at / name).exists() for at in (ROOT, ROOT / "hcfs", tests))
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    """A home, a checkout, a temporary directory: they mean nothing on the reader's machine."""
    found = re.findall(r"(?:^|[\s`(\"'])((?:/home|/root|/work|/tmp|/Users)/[\w.-]+)", page.read_text(), re.MULTILINE)
    assert found == []


def docstrings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, text and owner of every docstring of a file, those of attributes included."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for at, child in enumerate(body):
            if not isinstance(child, ast.Expr) or not isinstance(child.value, ast.Constant):
                continue
            text = child.value.value
            if isinstance(text, str) and (at == 0 or isinstance(body[at - 1], ast.Assign | ast.AnnAssign)):
                yield child.lineno, text.strip(), getattr(node, "name", "")


def test_docstrings_begin_with_a_capital_letter() -> None:
    """Or with what is no letter. Those of constructors may begin with the parameter that they are about."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / "hcfs").rglob("*.py"))
        for line, text, owner in docstrings(path)
        if text[0].islower() and not (owner == "__init__" and re.match(r"\w+(, \w+)*: ", text))
    ]
    assert wrong == []
