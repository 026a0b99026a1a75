"""`hcfs info`: what a device or image is, and which store is on it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click

from hcfs.cli.arguments import json_option, target_argument
from hcfs.cli.devices import describe, open_target
from hcfs.cli.output import print_fields, print_json
from hcfs.device import mounted_or_held
from hcfs.store import BLOCK, read_superblock


@click.command(short_help="What a device or image holds.")
@target_argument
@json_option
def command(target: str, as_json: bool) -> None:
    """Show the store on TARGET, a device, an image, UUID=... or LABEL=..., mounted or not."""
    with open_target(target) as device:
        superblock = read_superblock(device)
        name, described = device.name, describe(device.name, device.geometry)
    # Once it is closed here: nobody asks about the process that asks.
    document: dict[str, Any] = {
        **described,
        "in_use": mounted_or_held(name),
        "uuid": str(superblock.uuid),
        "label": superblock.label,
        "format_version": superblock.format_version,
        "compat": superblock.compat,
        "ro_compat": superblock.ro_compat,
        "incompat": superblock.incompat,
        "created": dt.datetime.fromtimestamp(superblock.created_ns / 1e9, dt.UTC).isoformat(),
        "granule_bytes": superblock.granule,
        "usable_bytes": superblock.data_blocks * BLOCK,
        "metadata_bytes": 2 * superblock.region_blocks * BLOCK,
        "metadata_limit_bytes": superblock.metadata_limit,
        "max_objects": superblock.max_objects,
    }
    if as_json:
        print_json(document)
        return
    print_fields(document)
