"""`hcfs inspect`: a store's structures as they stand on the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from hcfs.cli.arguments import json_option, target_argument
from hcfs.cli.devices import open_target
from hcfs.cli.output import print_fields, print_json, print_json_list, say
from hcfs.device import FileDevice
from hcfs.errors import UsageError
from hcfs.store import inspect as structures

Fields = dict[str, Any]


@click.command(short_help="A store's structures as they stand on the device.")
@target_argument
@click.argument("what", type=click.Choice(["superblock", "log", "objects", "extents", "object"]))
@click.argument("key", required=False)
@json_option
def command(target: str, what: str, key: str | None, as_json: bool) -> None:
    """Show structures of the store on TARGET, a device, an image, UUID=... or LABEL=..., as docs/format.md names them.

    \b
    superblock  both copies, and the headers of the metadata regions
    log         the transactions behind the checkpoint
    objects     every file, directory and symlink
    extents     the data area by place, free runs included
    object KEY  one object, by path (/kv/NAME) or id, with its checksums as stored and as read

    Of a mounted store it shows what is on the device by now: the last second's changes may be missing.
    """
    if (key is not None) != (what == "object"):
        raise UsageError("a KEY goes with 'object', and with nothing else: see hcfs inspect --help")
    with open_target(target) as device:
        if what == "object":
            assert key is not None
            _show_object(structures.one_object(device, key), as_json)
        elif what == "superblock":
            _show_superblock(structures.superblocks(device), as_json)
        else:
            _show_list(device, what, as_json)


def _show_list(device: FileDevice, what: str, as_json: bool) -> None:
    entries: Iterable[Fields]
    if what == "log":
        entries, lines = structures.log_transactions(device), _transaction
    elif what == "objects":
        entries, lines = structures.objects(device), _object
    else:
        entries, lines = structures.extents(device), _extent
    if as_json:
        print_json_list(entries)
        return
    for entry in entries:
        for each in lines(entry):
            say(each)


def _transaction(entry: Fields) -> list[str]:
    if "items" not in entry:
        return [" ".join(f"{name}={value}" for name, value in entry.items())]
    batch = ", starts a batch" if entry["first_in_batch"] else ""
    lines = [f"transaction {entry['sequence']} ({entry['bytes']} bytes{batch})"]
    for item in entry["items"]:
        fields = " ".join(f"{name}={value}" for name, value in item.items() if name != "item")
        lines.append(f"  {item['item']} {fields}")
    return lines


def _object(entry: Fields) -> list[str]:
    where = entry["path"] or "(no name)"
    return [f"{entry['id']:>20} {entry['kind']:<9} {entry['state']:<11} {entry['size']:>14} {where}"]


def _extent(entry: Fields) -> list[str]:
    holder = "free" if entry["id"] is None else f"{entry['id']} {entry['path']}"
    return [f"block {entry['block']:>12} + {entry['count']:>10}  {holder}"]


def _show_superblock(found: Fields, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_fields(found["superblock"])
    for place, copy in found["copies"].items():
        say(f"{place} copy: {copy.get('error') or 'verifies, generation {}'.format(copy['generation'])}")
    for number, header in enumerate(found["regions"]):
        current = " (current)" if number == found["current_region"] else ""
        text = "no valid header" if header is None else " ".join(f"{name}={value}" for name, value in header.items())
        say(f"region {number}{current}: {text}")
    for problem in found["region_problems"]:
        say(problem)


def _show_object(found: Fields, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_fields({name: value for name, value in found.items() if name not in ("extents", "xattrs", "checksums")})
    for name, value in found["xattrs"].items():
        say(f"xattr {name} = {value!r}")
    for extent in found["extents"]:
        say("extent " + " ".join(f"{name}={value}" for name, value in extent.items()))
    for granule in found["checksums"]:
        say("granule " + " ".join(f"{name}={value}" for name, value in granule.items()))
