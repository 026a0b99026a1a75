"""`hcfs evict`: room made at an administrator's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from hcfs.cli.arguments import SIZE, json_option, mount_argument, namespace_argument
from hcfs.cli.output import human_size, print_json, say
from hcfs.errors import Unfinished, UsageError
from hcfs.mountpoint.client import Interrupted, administer, namespace_directory

_REASONS = {
    "unsynced": "not at the origin yet; see 'hcfs sync'",
    "pinned": "open, or mapped",
    "protected": "looked up within lookup_grace",
    "other": "came or were used meanwhile, or are empty",
}


@click.command(short_help="Evict files of a namespace.")
@mount_argument
@namespace_argument
@click.option("--bytes", "nbytes", type=SIZE, help="Free so many bytes, the least recently used files first.")
@click.option("--all", "everything", is_flag=True, help="Evict all that can be evicted.")
@json_option
def command(directory: str, namespace: str, nbytes: int | None, everything: bool, as_json: bool) -> None:
    """Evict files of NAMESPACE on the file system mounted at DIR: each becomes a miss, for good when this returns.

    Files that are open, that a lookup protects (lookup_grace), or that no origin has yet stay; what stays, and why, is
    told. Exit code 3 when somebody else, or the end of the mount, stopped it.
    """
    if everything is (nbytes is not None):
        raise UsageError("how much is to go? Give either --bytes SIZE or --all")
    namespace_directory(directory, namespace)
    words: dict[str, Any] = {} if nbytes is None else {"bytes": nbytes}
    try:
        answer = administer(directory, "evict", namespace=namespace, **words)
    except Interrupted as interrupted:
        _report(interrupted.answer, nbytes, as_json)
        raise
    _report(answer, nbytes, as_json)
    if answer["stopped"]:
        raise Unfinished(
            f"the eviction from {namespace} was stopped before its end, by another command or the end of the mount; "
            "give the command again for the rest"
        )


def _report(answer: Mapping[str, Any], nbytes: int | None, as_json: bool) -> None:
    kept = answer["kept"]
    if as_json:
        print_json(answer)
        return
    say(f"{answer['objects']} objects evicted, {human_size(answer['freed_bytes'])} freed")
    if nbytes is not None and answer["freed_bytes"] >= nbytes:
        return
    for reason, meaning in _REASONS.items():
        if kept[f"{reason}_objects"]:
            say(
                f"{kept[f'{reason}_objects']} objects stay, {human_size(kept[f'{reason}_bytes'])}: {reason} ({meaning})"
            )
