"""`hcfs sync`: what an origin doesn't have yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from hcfs.cli.arguments import json_option, mount_argument, namespace_argument
from hcfs.cli.output import human_size, print_json, print_table, say, warn
from hcfs.errors import Unfinished, UsageError
from hcfs.mountpoint.client import Interrupted, administer, namespace_directory


@click.command(short_help="Show or resolve what an origin doesn't have yet.")
@mount_argument
@namespace_argument
@click.option("--wait", is_flag=True, help="Return when nothing is on its way any more.")
@click.option("--retry", is_flag=True, help="Upload again what was given up.")
@click.option("--overwrite", multiple=True, metavar="PATH", help="Upload this file, whatever the origin has there.")
@click.option("--discard", multiple=True, metavar="PATH", help="Drop this file from the device: what it holds is lost.")
@json_option
def command(
    directory: str,
    namespace: str,
    wait: bool,
    retry: bool,
    overwrite: tuple[str, ...],
    discard: tuple[str, ...],
    as_json: bool,
) -> int:
    """Tell which files of NAMESPACE, on the file system mounted at DIR, its origin doesn't have, and why.

    Such files stay on the device until it has them. PATH is below the namespace, as it is listed; --overwrite and
    --discard may be given several times, and nothing is done if one of the paths is wrong. What is discarded is then
    what the origin has, if it has anything. Exit code 1 while the upload of some file has failed, 3 when a --wait was
    ended by somebody else or with the mount.
    """
    both = sorted(set(discard) & set(overwrite))
    if both:
        raise UsageError(f"{both[0]} can't be dropped and uploaded: give it to one of --discard and --overwrite")
    namespace_directory(directory, namespace)
    discarded = list(dict.fromkeys(discard))
    _resolve(directory, namespace, discarded, list(dict.fromkeys(overwrite)))
    try:
        answer = administer(directory, "sync", namespace=namespace, retry=retry, wait=wait)
    except Interrupted as interrupted:
        _report({**interrupted.answer, "discarded": discarded}, as_json)
        raise
    _report({**answer, "discarded": discarded}, as_json)
    if wait and answer["stopped"] and answer["dirty"] + answer["uploading"]:
        raise Unfinished(
            f"the wait for {namespace} was stopped before its end, by another command or the end of the mount; what is "
            "left is uploaded when it is mounted again"
        )
    return 1 if answer["sync_failed"] else 0


def _resolve(directory: str, namespace: str, discard: list[str], overwrite: list[str]) -> None:
    """All of them or, where one path is wrong, none; what was done before another error is said on stderr."""
    if len(discard) + len(overwrite) > 1:
        for path in discard + overwrite:
            administer(directory, "sync", namespace=namespace, check=path)
    done: list[str] = []
    try:
        for path in discard:
            administer(directory, "sync", namespace=namespace, discard=path)
            done.append(f"--discard {path}")
        for path in overwrite:
            administer(directory, "sync", namespace=namespace, overwrite=path)
            done.append(f"--overwrite {path}")
    except BaseException:
        if done:
            warn(f"Done before the error: {', '.join(done)}")
        raise


def _report(answer: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for path in answer["discarded"]:
        say(f"{path}: dropped from the device; what it held and the origin doesn't have is lost")
    waiting = answer["dirty"] + answer["uploading"]
    say(
        f"{waiting} files to be uploaded, {answer['sync_failed']} failed, {human_size(answer['unsynced_bytes'])} in all"
    )
    if answer["objects"]:
        rows = [
            (each["state"], human_size(each["bytes"]), each["path"], each["reason"] or "-")
            for each in answer["objects"]
        ]
        print_table(("state", "size", "path", "reason"), rows)
    if answer["sync_failed"]:
        warn("Failed uploads stay on the device: --retry them, or --overwrite or --discard each.")
