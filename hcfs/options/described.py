"""The tables of the documentation, which `python -m hcfs.options.described docs` writes anew into a directory's pages.

A page has a table between two lines, `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping

from hcfs.options.mount_options import MountOptions
from hcfs.options.namespace_options import OPTIONS
from hcfs.options.schemes import SCHEMES
from hcfs.options.table import Option, rows
from hcfs.options.values import Word

_MARKED = re.compile(r"(<!-- table: ([a-z ]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def _table(heads: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, *cells]
    shown = [f"| {' | '.join(each.replace('|', chr(92) + '|') for each in line)} |" for line in lines]
    return "\n".join([shown[0], "|" + "---|" * len(heads), *shown[1:]]) + "\n"


def _mount_options() -> str:
    cells = (
        (f"`{row.name}=`" + (f" (`{row.word}`)" if row.flag else ""), row.default, row.doc)
        for row in rows(MountOptions).values()
    )
    return _table(("option", "default", "meaning"), cells)


def _namespace_options(*, of_origin: bool) -> str:
    cells = (
        (f"`{row.word}`", _values(row), row.doc or row.help)
        for row in OPTIONS.values()
        if of_origin == (row.name == "origin" or row.needs == "origin")
    )
    return _table(("option", "values, the default first", "what it says"), cells)


def _values(row: Option) -> str:
    words = row.value.words if isinstance(row.value, Word) else row.value.metavar.split("|")
    return ", ".join(f"`{each}`" for each in dict.fromkeys((row.default, *words)))


def _origins() -> str:
    cells = (
        (
            ", ".join(f"`{form}`" for form in scheme.forms),
            scheme.title,
            f"{scheme.library}: `hcfs[{scheme.extra}]`" if scheme.library else "nothing",
            "read only" if scheme.writer is None else "by a write policy",
        )
        for scheme in SCHEMES
    )
    return _table(("origin", "what it is", "needs", "written"), cells)


TABLES: Mapping[str, Callable[[], str]] = {
    "mount options": _mount_options,
    "namespace options": lambda: _namespace_options(of_origin=False),
    "origin options": lambda: _namespace_options(of_origin=True),
    "origins": _origins,
}


def described(page: str) -> str:
    """A page's text, with its tables as they are to be. KeyError for one that isn't known."""
    return _MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[4], page)


def main(directory: str) -> None:
    """Write the tables of the pages in a directory."""
    for name in sorted(os.listdir(directory)):
        if name.endswith(".md"):
            path = os.path.join(directory, name)
            with open(path, "r+", encoding="utf-8") as file:
                before = file.read()
                after = described(before)
                if after != before:
                    file.seek(0)
                    file.truncate()
                    file.write(after)


if __name__ == "__main__":
    main(sys.argv[1])
