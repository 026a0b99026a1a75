"""`hcfs keys`: LMCache's chunks in a namespace."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from hcfs.cli.arguments import json_option, mount_argument, namespace_argument
from hcfs.cli.output import print_json, print_table
from hcfs.lmcache.keys import ChunkName, parse_name
from hcfs.mountpoint.client import namespace_directory


@click.command(short_help="LMCache's keys in a namespace.")
@mount_argument
@namespace_argument
@json_option
def command(directory: str, namespace: str, as_json: bool) -> None:
    """List the LMCache keys in NAMESPACE of the file system mounted at DIR, read from the names of its files.

    Files that aren't LMCache's chunks are left out.
    """
    chunks = sorted(_chunks(namespace_directory(directory, namespace)), key=lambda found: found[0].name)
    keys = [
        {
            "model": chunk.key.model,
            "model_is_ambiguous": chunk.model_is_ambiguous,
            "rank": chunk.key.rank,
            "group": chunk.key.group,
            "hash": chunk.key.hash,
            "salt": chunk.key.salt,
            "size": size,
            "state": state,
            "file": chunk.name,
        }
        for chunk, size, state in chunks
    ]
    if as_json:
        print_json(keys)
        return
    heads = ("model", "rank", "group", "hash", "salt", "size", "state")
    for key in keys:
        key |= {"rank": f"{key['rank']:#010x}", "group": "-" if key["group"] is None else f"{key['group']:x}"}
    print_table(heads, ([key[head] or "-" if head == "salt" else key[head] for head in heads] for key in keys))


def _chunks(directory: str) -> Iterator[tuple[ChunkName, int, str]]:
    """Chunk, size in bytes and state of each; what is evicted or deleted meanwhile is left out."""
    for parent, _, names in os.walk(os.fsencode(directory)):
        for name in names:
            chunk = parse_name(name)
            if isinstance(chunk, ChunkName):
                path = os.path.join(parent, name)
                try:
                    size = os.lstat(path).st_size
                    state = os.getxattr(path, "user.hcfs.state", follow_symlinks=False).decode()
                except FileNotFoundError:
                    continue
                yield chunk, size, state
