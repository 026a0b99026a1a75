"""A table of options is a class of values whose fields are its rows: each field's default is an Option."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from hcfs.errors import UsageError
from hcfs.options.schemes import scheme_of
from hcfs.options.setters import Setter
from hcfs.options.values import NoSuchValue, OriginUrl, Value

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """A row: all that is said and done about an option, but for what the values do."""

    name: str
    value: Value[Any]
    default: str
    """As it would be given; `none` where it is nothing."""
    help: str
    """For `--help`: one line, without the default."""
    doc: str
    """For the documentation's table, in Markdown; "" where the help is enough."""
    example: str
    """Another value than the default, as it would be given."""
    set_by: Setter
    none: bool
    """Whether `none` stands for the default."""
    needs: str | None
    """The option without which it says nothing, and its value is None."""
    flag: bool
    """Whether the command has an option of its own for it, beside its word of `-o`."""
    variable: str | None
    """The variable of the environment that says it where nothing else does."""
    several: bool
    """Whether it may be given more than once, and each counts."""

    @property
    def word(self) -> str:
        """As an option of a command."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str, *, shown: str | None = None) -> Any:
        """Its value. UsageError. shown: what was given, where that isn't `name=text`."""
        if self.none and text == "none":
            text = self.default
        if text == "none" == self.default and not self.several:
            return None
        try:
            return self.value.parse(text)
        except NoSuchValue as error:
            raise UsageError(f"{shown or f'{self.name}={text}'} can't be set: {error}") from None

    def setters(self, text: str | None) -> set[Setter]:
        """Who may set it so; of several, all must agree. text: None for the default."""
        scheme = scheme_of(text) if isinstance(self.value, OriginUrl) and text is not None else None
        return {self.set_by} if scheme is None else {self.set_by, scheme.set_by}

    def kept(self, text: str) -> str | None:
        """The text to keep for what was given; None for the default. UsageError."""
        value = self.parse(text)
        return None if value is None or value == self.parse(self.default) else self.value.text(value)

    def shown(self, value: Any) -> str:
        """A value in force as a text."""
        return "none" if value is None else self.value.text(value)


def option(
    value: Value[T],
    default: str,
    *,
    help: str,  # noqa: A002  # what it is everywhere
    example: str,
    doc: str = "",
    set_by: Setter = Setter.OWNER,
    none: bool = False,
    needs: str | None = None,
    flag: bool = False,
    variable: str | None = None,
    several: bool = False,
) -> Any:
    """A field of a table, and with it a row; as Option's fields."""
    row = Option("", value, default, help, doc, example, set_by, none, needs, flag, variable, several)
    initial: Any = () if several else None if needs is not None else row.parse(default)
    return dataclasses.field(default=initial, metadata={"option": row})


def rows(table: Any) -> Mapping[str, Option]:
    """A table's rows by name, in their order."""
    return _rows(table)


@cache
def _rows(table: Any) -> Mapping[str, Option]:
    fields = (field for field in dataclasses.fields(table) if "option" in field.metadata)
    return MappingProxyType(
        {field.name: dataclasses.replace(field.metadata["option"], name=field.name) for field in fields}
    )
