"""`hcfs mkfs`: make a store on a device or image file, after every check and before the first write."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from hcfs.cli.arguments import SIZE, json_option, target_argument
from hcfs.cli.devices import POOL_BYTES, describe
from hcfs.cli.images import final_geometry, sized
from hcfs.cli.output import print_fields, print_json, progress
from hcfs.device import BLOCK, BufferPool, DeviceHeld, FileDevice, mounted_or_held, open_device
from hcfs.device.holders import users_of_file
from hcfs.device.signatures import Signature, contents, probe, wipe
from hcfs.errors import HcfsError
from hcfs.printable import printable
from hcfs.store import Superblock, format_device, plan

_DISCARD_STEP = 1 << 30


class ForeignSignatures(HcfsError):
    """The target looks like somebody's data, and nobody said that it may go."""


@click.command(short_help="Make a store on a device or an image file.")
@target_argument
@click.option("--size", type=SIZE, help="Create the image file TARGET with this size, or grow it to that.")
@click.option("--label", default="", metavar="NAME", help="A name for LABEL=NAME, at most 64 bytes.")
@click.option("--granule", type=SIZE, default="256K", show_default=True, help="Bytes under one checksum, 64K to 1M.")
@click.option("--max-objects", type=int, help="Most files, directories and symlinks; by default it follows the size.")
@click.option("--force", is_flag=True, help="Overwrite a filesystem, partition table, volume or data.")
@click.option("--dry-run", is_flag=True, help="Check and show everything, write nothing.")
@click.option("--no-discard", is_flag=True, help="Don't tell the device first that all its blocks are free.")
@json_option
def command(
    target: str,
    size: int | None,
    label: str,
    granule: int,
    max_objects: int | None,
    force: bool,
    dry_run: bool,
    no_discard: bool,
    as_json: bool,
) -> None:
    """Make an empty hcfs store on TARGET, a block device or an image file; what was there is lost.

    A device that is mounted or held is always refused. One with a known signature, or with data at its ends, and a file
    that isn't all zeros, or that a process or loop device has open, is refused without --force, or asked about where
    there is a terminal.
    """
    shape = final_geometry(target, size)
    holder = mounted_or_held(target)
    if holder:
        raise DeviceHeld(target, holder)
    found = _found(target) if os.path.exists(target) else []
    users = users_of_file(target)
    document: dict[str, Any] = {
        **describe(target, shape),
        "signatures": [{"kind": each.kind, "label": each.label, "offset": each.offset} for each in found],
        "users": users,
    }
    if not as_json:
        print_fields({**document, "signatures": ", ".join(map(str, found)) or "none"})
    superblock = plan(target, shape.size, label=label, granule=granule, max_objects=max_objects)
    if (found or users) and not force:
        _ask(target, found, users, may_ask=not dry_run)
    if not dry_run:
        with sized(target, size), closing(open_device(target, BufferPool(POOL_BYTES))) as device:
            _clear(device, discard=not no_discard)
            superblock = format_device(
                device, label=label, granule=granule, max_objects=max_objects, uid=os.getuid(), gid=os.getgid()
            )
    made = _made(superblock, dry_run)
    if as_json:
        print_json({**document, **made})
    else:
        print_fields(made)


def _found(target: str) -> list[Signature]:
    """What may be somebody's on an existing file or device."""
    known = probe(target)
    if known:
        return known
    with progress("look for data") as advance:
        data = contents(target, advance)
    return [] if data is None else [data]


def _ask(target: str, found: Sequence[Signature], users: Sequence[str], *, may_ask: bool) -> None:
    """Return when the user agrees to the end of what was found; ForeignSignatures when not, or when nobody is there."""
    carries = [f"carries {', '.join(map(str, found))}"] if found else []
    what = f"{target} {' and '.join([*carries, *(f'is {each}' for each in users)])}"
    if not (may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise ForeignSignatures(f"{what}: give --force if that may be lost")
    if not click.confirm(printable(f"{what}. Make a store there, and lose that?"), default=False, err=True):
        raise ForeignSignatures(f"{target} was left as it is")


def _clear(device: FileDevice, *, discard: bool) -> None:
    """Give all blocks back to the device, and leave no old signature for blkid to find."""
    if discard:
        with progress("discard") as advance:
            for start in range(0, device.size, _DISCARD_STEP):
                end = min(start + _DISCARD_STEP, device.size)
                device.discard(start, end - start)
                advance(end, device.size)
    wipe(device)


def _made(superblock: Superblock, dry_run: bool) -> dict[str, Any]:
    return {
        "uuid": None if dry_run else str(superblock.uuid),
        "label": superblock.label,
        "granule_bytes": superblock.granule,
        "usable_bytes": superblock.data_blocks * BLOCK,
        "max_objects": superblock.max_objects,
        "dry_run": dry_run,
    }
