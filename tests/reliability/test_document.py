"""docs/reliability.md names a test for each rule, and docs/dataplane.md one for each danger: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
DATA_PLANE = (ROOT / "docs" / "dataplane.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE + DATA_PLANE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_rule_has_its_test(file: str, name: str) -> None:
    assert not name or f"def {name}(" in (ROOT / file).read_text()


def test_each_rule_names_one() -> None:
    """A rule is an item of a list that begins with the fault in bold letters."""
    rules = re.findall(r"^\* \*\*.*(?:\n  .*)*", PAGE.partition("## fsck")[0], re.MULTILINE)
    dangers = re.findall(r"^\* \*\*.*(?:\n  .*)*", DATA_PLANE.partition("## Dangers")[2], re.MULTILINE)
    assert len(rules) > 20
    assert len(dangers) > 10
    assert [rule for rule in rules + dangers if "`tests/" not in rule] == []


@pytest.mark.parametrize("tool", sorted(set(re.findall(r"`(tools/[\w-]+)", PAGE))))
def test_each_command_is_there(tool: str) -> None:
    assert (ROOT / tool).stat().st_mode & 0o111
