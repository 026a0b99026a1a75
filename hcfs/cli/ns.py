"""`hcfs ns`: namespaces and their options, through the mount itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from hcfs.cli.arguments import json_option, mount_argument
from hcfs.cli.output import (
    Advance,
    human_size,
    print_fields,
    print_json,
    print_table,
    progress,
    say,
    shown_quota,
    warn,
)
from hcfs.errors import HcfsError, Unfinished, UsageError
from hcfs.mountpoint.client import (
    Interrupted,
    administer,
    namespace_directory,
    namespace_status,
    read_status,
)
from hcfs.options.namespace_options import OPTIONS, checked
from hcfs.printable import printable

name_argument = click.argument("name")


def option_words(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a namespace, as `create` and `set` take them."""
    for row in reversed(list(OPTIONS.values())):
        function = click.option(row.word, row.name, metavar=row.value.metavar, help=row.help)(function)
    return function


@click.group()
def command() -> None:
    """Namespaces: the directories at the root of a mount."""


@command.command()
@mount_argument
@name_argument
@option_words
@json_option
def create(directory: str, name: str, as_json: bool, **options: Any) -> None:
    """Make the namespace NAME on the file system mounted at DIR."""
    values = _checked(options)
    for row in OPTIONS.values():
        if row.needs and values.get(row.name, "none") != "none" and values.get(row.needs, "none") == "none":
            raise UsageError(f"{row.word} needs an {OPTIONS[row.needs].word}")
    read_status(directory)
    _require_name(name)
    path = os.path.join(directory, name)
    try:
        os.mkdir(path)
    except FileExistsError:
        raise HcfsError(f"{path} exists already: change its options with 'hcfs ns set {directory} {name}'") from None
    try:
        _set(directory, name, values)
    except BaseException:
        os.rmdir(path)
        raise
    if as_json:
        print_json(namespace_status(directory, name))
    else:
        say(path)


@command.command(name="set")
@mount_argument
@name_argument
@option_words
@json_option
def set_options(directory: str, name: str, as_json: bool, **options: Any) -> None:
    """Change options of the namespace NAME; those not given stay as they are."""
    values = _checked(options)
    if not values:
        raise UsageError("no option is given, so nothing is set: name one, as in --verify open")
    namespace_directory(directory, name)
    _set(directory, name, values)
    if as_json:
        print_json(namespace_status(directory, name))


@command.command(name="list")
@mount_argument
@json_option
def list_names(directory: str, as_json: bool) -> None:
    """List the namespaces on the file system mounted at DIR."""
    namespaces = read_status(directory)["namespaces"]
    if as_json:
        print_json(namespaces)
        return
    rows = (
        (name, usage["objects"], human_size(usage["used_bytes"]), shown_quota(usage))
        for name, usage in namespaces.items()
    )
    print_table(("namespace", "objects", "used", "quota"), rows)


@command.command()
@mount_argument
@name_argument
@json_option
def show(directory: str, name: str, as_json: bool) -> None:
    """Show the options and the usage of the namespace NAME."""
    status = namespace_status(directory, name)
    if as_json:
        print_json(status)
    else:
        print_fields(status)


@command.command(short_help="Remove a namespace.")
@mount_argument
@name_argument
@click.option("--force", is_flag=True, help="Also with files in it, which go too.")
@click.option("--discard", is_flag=True, help="Also files that its origin doesn't have yet: they are lost.")
@click.option("--wipe", is_flag=True, help="Leave no byte and no name of them on the device: zeros instead.")
@json_option
def rm(directory: str, name: str, force: bool, discard: bool, wipe: bool, as_json: bool) -> int:
    """Remove the namespace NAME; durable when this returns. Nothing is removed at its origin.

    With --wipe all free space is zeroed, since nobody remembers whose bytes it holds, and the metadata written anew.
    Exit code 1 when something isn't wiped, since it is open or being written: the empty namespace is kept then, and the
    command can be given again. Stop the namespace's clients before. Exit code 3 when somebody else, or the end of the
    mount, stopped it.
    """
    namespace_directory(directory, name)
    try:
        with progress(f"remove {printable(name)}") as advance:
            answer = administer(
                directory,
                "remove",
                on_progress=_shown_by(advance) if sys.stderr.isatty() else None,
                namespace=name,
                force=force,
                discard=discard,
                wipe=wipe,
            )
    except Interrupted as interrupted:
        _report_removal(directory, name, interrupted.answer, as_json)
        raise
    _report_removal(directory, name, answer, as_json)
    if answer.get("stopped"):
        raise Unfinished(
            f"the removal of {name} was stopped before its end, by another command or the end of the mount; give the "
            "command again"
        )
    return 0 if answer["removed"] else 1


def _shown_by(advance: Advance) -> Callable[[dict[str, Any]], None]:
    return lambda told: advance(told["done_bytes"], told["total_bytes"], told["phase"])


def _report_removal(directory: str, name: str, answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['objects']} files removed, {human_size(answer['freed_bytes'])}")
        if "wiped_bytes" in answer:
            say(f"{human_size(answer['wiped_bytes'])} of free space wiped")
    if answer["removed"]:
        return
    reasons = []
    if answer.get("open_bytes"):
        reasons.append(f"{human_size(answer['open_bytes'])} of removed files are still open")
    if answer.get("unfinished_objects"):
        reasons.append(f"{answer['unfinished_objects']} files are being written")
    why = " and ".join(reasons) or "the command was stopped"
    warn(f"{name} is emptied, but not everything is wiped: {why}; close them and give the command again.")


def _checked(options: dict[str, Any]) -> dict[str, str]:
    """The options that were given, as text. UsageError before anything is done."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        checked(name, value)
    return given


def _require_name(name: str) -> None:
    if name in ("", ".", "..", ".hcfs") or "/" in name:
        raise UsageError(f"{name!r} can't be a namespace: give one name without '/', such as kv")


def _set(directory: str, name: str, values: dict[str, str]) -> None:
    for option, value in values.items():
        administer(directory, "set", namespace=name, option=option, value=value)
