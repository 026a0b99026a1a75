"""`hcfs status`: what a mount says about itself."""

from __future__ import annotations

from typing import Any

import click

from hcfs.cli.arguments import json_option, mount_argument
from hcfs.cli.output import human_size, print_fields, print_json, print_table, say, shown_quota
from hcfs.mountpoint.client import read_status


@click.command(short_help="State, space, counters and namespaces of a mount.")
@mount_argument
@json_option
def command(directory: str, as_json: bool) -> None:
    """Show state, space, counters and namespaces of the file system mounted at DIR."""
    status = read_status(directory)
    if as_json:
        print_json(status)
    else:
        _print(status)


def _print(status: dict[str, Any]) -> None:
    parts = ("counters", "namespaces", "scrub")
    print_fields({name: value for name, value in status.items() if name not in parts})
    scrub = {name: value for name, value in status["scrub"].items() if name != "bad"}
    print_fields({"scrub": scrub if scrub["began_at"] else scrub["state"]})
    say("")
    print_table(("counter", "value"), status["counters"].items())
    say("")
    rows = [
        (name, usage["objects"], human_size(usage["used_bytes"]), shown_quota(usage), usage["evictions"])
        for name, usage in status["namespaces"].items()
    ]
    print_table(("namespace", "objects", "used", "quota", "evictions"), rows)
