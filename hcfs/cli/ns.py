"""`hcfs ns`: namespaces and their options, through the mount itself."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from hcfs.cache.options import ABOUT_ORIGIN, OF_ORIGIN, checked
from hcfs.cli.arguments import QUOTA, json_option, mount_argument
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
    read_config,
    read_status,
)
from hcfs.printable import printable

_XATTR_PREFIX = "user.hcfs."

name_argument = click.argument("name")


def option_words(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a namespace, as `create` and `set` take them."""
    words = (
        click.option("--quota", type=QUOTA, help="Most bytes of the namespace, or none."),
        click.option("--salt-quota", type=QUOTA, help="Most bytes of each LMCache cache salt, or none."),
        click.option("--verify", help="read: check what is read; open: check the whole object before open returns."),
        click.option("--staging-patterns", metavar="PATTERNS", help="Unfinished files, as '*.tmp,*.incomplete'."),
        click.option(
            "--origin", metavar="URL", help="Where its files come from: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or /DIR."
        ),
        click.option("--origin-changes", metavar="WORD", help="immutable, or revalidate=SECONDS."),
        click.option("--origin-check", metavar="WORD", help="What is fetched must agree with: etag or length."),
        click.option("--origin-open", metavar="WORD", help="An open of what is to be fetched: stream or whole."),
        click.option("--write-policy", metavar="WORD", help="read-only, write-through or write-back."),
    )
    for word in reversed(words):
        function = word(function)
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
    if values.get("origin", "none") == "none" and any(values.get(name, "none") != "none" for name in OF_ORIGIN):
        raise UsageError("--origin-changes, --origin-check, --origin-open and --write-policy need an --origin")
    read_status(directory)
    _require_name(name)
    path = os.path.join(directory, name)
    try:
        os.mkdir(path)
    except FileExistsError:
        raise HcfsError(f"{path} exists already: change its options with 'hcfs ns set {directory} {name}'") from None
    try:
        _set(path, values)
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
    _set(namespace_directory(directory, name), values)
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
    """The options that were given, as text; UsageError with the reason, which the mount could only answer by EINVAL."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    for name, value in given.items():
        checked(name, value)
    return given


def _require_name(name: str) -> None:
    if name in ("", ".", "..", ".hcfs") or "/" in name:
        raise UsageError(f"{name!r} can't be a namespace: give one name without '/', such as kv")


def _refusal(directory: str, origin: str) -> str | None:
    """Why the mount at a directory doesn't allow an origin; None when it does."""
    from hcfs.remote.allowed_origins import AllowedOrigins

    return AllowedOrigins(read_config(directory).get("allow_origin", [])).refusal(origin)


def _set(path: str, values: dict[str, str]) -> None:
    for name, value in values.items():
        try:
            os.setxattr(path, _XATTR_PREFIX + name, os.fsencode(value))
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            if error.errno == errno.EPERM and name in ABOUT_ORIGIN:
                reason = "what concerns an origin is set by root or the user whose daemon serves the mount alone"
            elif error.errno == errno.EACCES and name == "origin":
                reason = _refusal(os.path.dirname(path), value) or reason
            elif error.errno == errno.EPERM:
                reason = "only root and the owner of the mount's root directory may set options"
            elif error.errno == errno.ENOTEMPTY:
                reason = (
                    "the namespace holds files, which keep the kind that they were stored as; evict or remove them "
                    "first, or make another namespace"
                )
            elif error.errno == errno.EBUSY:
                reason = (
                    "it holds files that its origin doesn't have yet, or that are being written; wait for them with "
                    "'hcfs sync --wait', or resolve what has failed there"
                )
            elif name == "origin" and error.errno == errno.EINVAL:
                reason = "the daemon can't use it, its log says why: obstore must be installed, as by hcfs[origins]"
            elif name in OF_ORIGIN and error.errno == errno.EINVAL:
                reason = "the namespace has no origin"
            raise HcfsError(f"{path}: the mount refused {name}={value}: {reason}") from error
    # Options are metadata like others: durable within commit_interval, or at once by fsync.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
