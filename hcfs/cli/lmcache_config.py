"""`hcfs lmcache-config`: what LMCache must be told to use a namespace."""

from __future__ import annotations

import click

from hcfs.cli.arguments import mount_argument, namespace_argument
from hcfs.cli.output import print_json
from hcfs.errors import UsageError
from hcfs.lmcache.config import WORKERS_DEFAULT, adapter_json, adapter_spec
from hcfs.mountpoint.client import namespace_status


@click.command(short_help="The JSON for LMCache's --l2-adapter.")
@mount_argument
@namespace_argument
@click.option("--num-workers", type=int, default=WORKERS_DEFAULT, show_default=True, help="LMCache's I/O threads.")
@click.option("--odirect/--no-odirect", default=True, show_default=True, help="Go around the page cache.")
@click.option("--json", "as_json", is_flag=True, help="Print it over several lines, for people.")
def command(directory: str, namespace: str, num_workers: int, odirect: bool, as_json: bool) -> None:
    """Print the JSON for LMCache's --l2-adapter that points it at NAMESPACE of the file system mounted at DIR.

    One line, to be used as it is: lmcache server --l2-adapter "$(hcfs lmcache-config DIR NAMESPACE)" ...
    """
    _require_stores(directory, namespace)
    try:
        if as_json:
            print_json(adapter_spec(directory, namespace, num_workers=num_workers, use_odirect=odirect))
        else:
            click.echo(adapter_json(directory, namespace, num_workers=num_workers, use_odirect=odirect))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _require_stores(directory: str, namespace: str) -> None:
    """UsageError where LMCache could store nothing."""
    found = namespace_status(directory, namespace)
    if found["origin"] is not None and found["write_policy"] in (None, "read-only"):
        raise UsageError(
            f"namespace {namespace!r} has the origin {found['origin']} and is read-only, so LMCache can store nothing "
            f"in it; make another one for KV with 'hcfs ns create {directory} kv'"
        )
