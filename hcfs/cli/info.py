"""`hcfs info`: what a device or image is, and which store is on it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import click

from hcfs.cli.arguments import json_option, target_argument
from hcfs.cli.devices import describe, open_target
from hcfs.cli.output import print_fields, print_json, print_table, warn
from hcfs.device import BlockDevice, mounted_or_held
from hcfs.errors import HcfsError, UsageError
from hcfs.options.namespace_options import NamespaceOptions, parse
from hcfs.store import BLOCK, read_superblock
from hcfs.store.inspect import root_directories


@click.command(short_help="What a device or image holds.")
@target_argument
@json_option
def command(target: str, as_json: bool) -> None:
    """Show the store on TARGET, a device, an image, UUID=... or LABEL=..., mounted or not.

    Of its namespaces it shows the origins and write policies that they have; a mount uses those alone that its option
    allow_origin allows. Of a mounted store it shows what is on the device by now.
    """
    with open_target(target) as device:
        superblock = read_superblock(device)
        namespaces, problem = _namespaces(device)
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
        "namespaces": namespaces,
        "namespaces_problem": problem,
    }
    if as_json:
        print_json(document)
        return
    print_fields({field: value for field, value in document.items() if not field.startswith("namespaces")})
    if problem is not None:
        warn(f"its namespaces can't be read: {problem}.")
    if namespaces:
        click.echo()
        rows = [(each["name"], *map(_shown, (each["origin"], each["write_policy"]))) for each in namespaces]
        print_table(("namespace", "origin", "write policy"), rows)
    for each in namespaces or ():
        if each["problem"] is not None:
            warn(f"namespace {each['name']} has options that can't be used: {each['problem']}.")


def _shown(value: str | None) -> str:
    return "-" if value is None else value


def _namespaces(device: BlockDevice) -> tuple[list[dict[str, Any]] | None, str | None]:
    """What the namespaces of a store want of the world outside; None, and why, where that can't be read."""
    try:
        directories = root_directories(device)
    except HcfsError as error:
        return None, str(error)
    return [_namespace(name, attributes) for name, attributes in directories], None


def _namespace(name: bytes, attributes: Mapping[bytes, bytes]) -> dict[str, Any]:
    options, problem = NamespaceOptions(), None
    try:
        options = parse(attributes)
    except UsageError as error:
        problem = str(error)
    return {
        "name": name.decode(errors="backslashreplace"),
        "origin": options.origin,
        "write_policy": options.write_policy,
        "problem": problem,
    }
