"""Directories of ten thousand entries on a mount: right counts, `rm -rf`, and others in between."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from lab.harness.actors import eventually
from lab.harness.cli import hcfs
from lab.harness.many import fill, format_image, names
from lab.harness.mounts import Mount

ENTRIES = 10_000


def listings(mount: Mount) -> int:
    """READDIR requests answered so far."""
    requests = mount.status()["requests"]
    return sum(count for opcode, count in requests.items() if opcode.upper().startswith("READDIR"))


def filled(make_mount: Callable[..., Mount], directory: Path, entries: int) -> Mount:
    image = format_image(directory / f"image-{entries}", entries)
    fill(image, entries)
    return make_mount(image)


def removed(directory: Path) -> None:
    subprocess.run(["rm", "-rf", directory], check=True, timeout=150)


def test_listings_count_and_go_in_steps_of_bounded_size(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """Ten times the entries take at most twelve times the requests; a request is some milliseconds at most, after which
    whoever waits has its turn."""
    taken = {}
    for entries in (ENTRIES // 10, ENTRIES):
        mount = filled(make_mount, tmp_path, entries)
        before = listings(mount)
        found = os.listdir(os.fsencode(mount.dir / "kv"))
        taken[entries] = listings(mount) - before
        assert sorted(found) == sorted(islice(names(), entries))
        assert taken[entries] >= entries // 256
    assert taken[ENTRIES] <= 12 * taken[ENTRIES // 10]


def test_others_are_served_while_a_listing_is_under_way(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """What comes and goes meanwhile is listed or not; what stays is listed once."""
    mount = filled(make_mount, tmp_path, ENTRIES)
    kv = mount.dir / "kv"
    stays = {name.decode() for name in islice(names(), ENTRIES)}
    found = []
    with os.scandir(kv) as entries:
        for number, entry in enumerate(entries):
            found.append(entry.name)
            if number % 500 == 0:
                (kv / f"new-{number}").write_bytes(b"new")
                gone = sorted(stays)[number // 500]
                (kv / gone).unlink()
                stays.discard(gone)
    assert len(found) == len(set(found))
    assert stays <= set(found)
    # A second look through the same handle is a new listing.
    fd = os.open(kv, os.O_RDONLY)
    try:
        assert set(os.listdir(fd)) == set(os.listdir(fd)) == stays | {f"new-{n}" for n in range(0, number, 500)}
    finally:
        os.close(fd)


def test_rm_rf(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    mount = filled(make_mount, tmp_path, ENTRIES)
    assert mount.status()["objects"] == ENTRIES
    removed(mount.dir / "kv")
    status = mount.status()
    assert (status["objects"], status["used_bytes"]) == (0, 0)
    eventually(lambda: mount.status()["free_bytes"] == status["capacity_bytes"], "the space is free after a commit")
    mount.umount()
    assert "clean" in hcfs("fsck", mount.source).stdout
    mount.mount()
    assert [name for name in os.listdir(mount.dir) if name != ".hcfs"] == []
