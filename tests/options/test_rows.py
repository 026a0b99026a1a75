"""Each row of the tables: what is said of an option or an origin is so wherever it is seen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import hcfs
from hcfs.cli.commands import group
from hcfs.errors import UsageError
from hcfs.options import schemes
from hcfs.options.described import TABLES
from hcfs.options.mount_options import MountOptions
from hcfs.options.namespace_options import OPTIONS, PREFIX, checked, parse
from hcfs.options.schemes import FORMS, SCHEMES, Scheme, load, problem_of, scheme_of
from hcfs.options.setters import Setter
from hcfs.options.table import Option, rows
from hcfs.origin import OriginRefused, OriginUploader, open_origin

MOUNT = rows(MountOptions)
BAD = ("a/?", "")
"""Texts of which no option takes both."""


def help_of(*words: str) -> str:
    """What a command's --help says, in one line."""
    done = CliRunner().invoke(group, [*words, "--help"], terminal_width=200)
    assert done.exit_code == 0
    return " ".join(done.output.split())


def refusal(row: Option) -> str:
    """What is said of a text that the option doesn't take."""
    for text in BAD:
        try:
            row.parse(text)
        except UsageError as error:
            return str(error)
    raise AssertionError(f"{row.name} takes everything")


def test_the_tables_are_all_there_is() -> None:
    """A field that is no option is one of these."""
    assert set(MountOptions.__dataclass_fields__) - set(MOUNT) == {"config", "words"}


@pytest.mark.parametrize("row", MOUNT.values(), ids=list(MOUNT))
def test_an_option_of_a_mount(row: Option, tmp_path: Path) -> None:
    given = MountOptions().with_words([(row.name, row.example)])
    value = getattr(given, row.name)
    assert value == row.parse(row.example)
    assert value != getattr(MountOptions(), row.name)
    assert given.in_force()[row.name] == value
    file = tmp_path / "hcfs.toml"
    file.write_text(f"{row.name} = {json.dumps([row.example] if row.several else row.example)}\n")
    assert getattr(MountOptions().with_words([(row.name, row.example)]), row.name) == value
    assert getattr(MountOptions.parse("high_watermark=99%,low_watermark=70%", config=str(file)), row.name) in (
        *(value, 0.99, 0.7),
    )
    if row.default != "none":
        assert row.parse(row.default) == getattr(MountOptions(), row.name)
        assert f"{row.name}={row.default} {row.help}" in help_of("mount")
    else:
        assert f"{row.name}={row.value.metavar} {row.help}" in help_of("mount")
    assert (f"{row.word} {row.value.metavar}" in help_of("mount")) is row.flag
    assert re.fullmatch(rf"{row.name}=.* can't be set: .+; give .+", refusal(row), re.DOTALL)
    assert f"| `{row.name}=`" in TABLES["mount options"]()
    assert row.doc in TABLES["mount options"]()
    with pytest.raises(UsageError, match=f"^{row.name}"):
        MountOptions().with_words([(row.name, {})])


@pytest.mark.parametrize("row", OPTIONS.values(), ids=list(OPTIONS))
def test_an_option_of_a_namespace(row: Option) -> None:
    kept = checked(row.name, row.example)
    assert kept is not None
    attributes = {PREFIX + row.name.encode(): kept.encode()}
    if row.needs is not None:
        assert getattr(parse(attributes), row.name) is None
        attributes[PREFIX + row.needs.encode()] = OPTIONS[row.needs].example.encode()
    value = getattr(parse(attributes), row.name)
    assert row.shown(value) == kept
    assert checked(row.name, row.shown(value)) == kept
    assert checked(row.name, row.default) is None
    for command in ("create", "set"):
        assert f"{row.word} {row.value.metavar} {row.help}" in help_of("ns", command)
    assert re.match(rf"{row.name}=.* can't be set: .*give ", refusal(row), re.DOTALL)
    table = TABLES["origin options" if row.name == "origin" or row.needs == "origin" else "namespace options"]()
    assert re.search(rf"^\| `{row.word}` \| `{re.escape(row.default)}`", table, re.MULTILINE)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_a_kind_of_origin(scheme: Scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_of(scheme.example) == ""
    assert scheme_of(scheme.example) is scheme
    for url in (f"{scheme.prefix}?", f"{scheme.prefix}me:word@x/y", f"{scheme.name}:x"):
        with pytest.raises(UsageError, match=re.escape(f"; give {FORMS}")):
            checked("origin", url)
    assert all(form in FORMS and form in help_of("ns", "set") for form in scheme.forms)
    assert OPTIONS["origin"].setters(scheme.example) == {Setter.DAEMON, scheme.set_by}
    assert scheme.client.startswith("hcfs.origin.")
    assert load(scheme.client)(scheme.example)
    policy = parse({PREFIX + b"origin": scheme.example.encode(), PREFIX + b"write_policy": b"write-back"})
    assert (policy.origin_problem is None) is (scheme.writer is not None)
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)
    if scheme.library is None:
        assert scheme.missing is None
    else:
        with pytest.raises(OriginRefused, match=rf"install hcfs\[{scheme.extra}\]"):
            list(open_origin(scheme.example).list())
        with pytest.raises(OriginRefused, match=rf"install hcfs\[{scheme.extra}\]"):
            OriginUploader(scheme.example, 1).delete("x")


def test_no_kind_of_origin_is_spelled_elsewhere() -> None:
    names = "|".join(scheme.name for scheme in SCHEMES)
    # Of these, `file` alone is a word of other things, too.
    spelled = re.compile(rf"\b({names}):(//|[\"'])|[\"'](?!file\b)({names})[\"']")
    package = Path(hcfs.__file__).parent
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        if path != package / "options" / "schemes.py"
        for line in path.read_text().splitlines()
        if spelled.search(line)
    ]
    assert found == []


def test_no_option_is_listed_elsewhere() -> None:
    """Who uses an option asks for it by name; three in a row are a second table."""
    names = "|".join((*OPTIONS, *MOUNT))
    listed = re.compile(rf"([\"']({names})[\"'],?\s*){{3}}")
    package = Path(hcfs.__file__).parent
    found = [path.name for path in package.rglob("*.py") if listed.search(path.read_text())]
    assert found == []
