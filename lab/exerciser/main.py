"""Random calls on one file of a mount, compared with a model: reads, writes, truncates, mappings, appends, fsyncs.

`tools/lab exerciser --help` says how to call it. Exit code 0: no difference. 1: one was found, and how to see it again
is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab.exerciser.file import OPERATIONS, Difference, File
from lab.harness.actors import Actor, digest
from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount
from lab.harness.places import Place


class Exerciser:
    """A mount, the file on it, and another process that looks at it."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.chance = random.Random(f"exerciser {seed}")
        self.counts: Counter[str] = Counter()
        image = create_image(directory / "image.img", "256M")
        hcfs("mkfs", image, "--granule", self.chance.choice(["64K", "256K", "1M"]))
        self.mount = Mount(image, directory / "mnt")
        self.mount_anew()
        self.file = File(self.mount.ns(), self.chance)
        self.other = Actor()

    def mount_anew(self) -> None:
        """With other options than before."""
        commit = self.chance.choice(["0.02", "0.5", "3"])
        memory = self.chance.choice(["16M", "64M"])
        self.mount.mount(f"commit_interval={commit},memory={memory},lookup_grace={self.chance.choice([0, 5])}")

    def run(self, operations: int) -> None:
        """So many calls. Raises Difference."""
        file = self.file
        calls, weights = [call for call, _ in OPERATIONS], [weight for _, weight in OPERATIONS]
        for number in range(operations):
            call = self.chance.choices(calls, weights)[0]
            self.counts[call.__name__] += 1
            call(file)
            if number % 50 == 49:
                self.look_from_outside()
            if number % 1500 == 1499:
                self.chance.choice([self.remount, self.remount, self.kill])()
        file.close_all()
        self.look_from_outside()

    def look_from_outside(self) -> None:
        """Another process sees what is committed: the whole of it, and nothing of what is being written."""
        committed = self.file.committed
        expected = None if committed is None else digest(bytes(committed.data))
        deadline = time.monotonic() + 30
        while (found := self.seen_outside()) != expected:
            # RELEASE, which publishes, comes after close has returned.
            if time.monotonic() > deadline:
                raise Difference(f"another process sees {found}, committed is {expected}")
            time.sleep(0.01)
        self.counts["looks from outside"] += 1

    def seen_outside(self) -> str | None:
        """By another process."""
        try:
            return digest(self.other.load(os.fspath(self.file.final)))
        except FileNotFoundError:
            return None

    def remount(self) -> None:
        """Everything closed, unmounted and mounted: what was committed is there."""
        self.file.note("remount")
        self.file.close_all()
        self.file.own = None
        self.look_from_outside()
        self.mount.umount()
        hcfs("fsck", self.mount.source, "--data", timeout=120)
        self.mount_anew()
        self.counts["remounts"] += 1
        self.look_from_outside()

    def kill(self) -> None:
        """The daemon is killed in the middle: what was committed is there, and nothing of the version."""
        self.file.note("kill")
        self.look_from_outside()
        directory = os.open(self.file.directory, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        for _ in range(self.chance.randrange(1, 8)):
            self.file.open()
            self.file.write()
        for handle in self.file.handles:
            if handle.mapping is not None:
                handle.mapping.flush()
        self.mount.kill()
        for handle in self.file.handles:
            if handle.mapping is not None:
                handle.mapping.close()
            else:
                try:
                    os.close(handle.number)
                except OSError:
                    continue
        self.file.handles.clear()
        self.file.own = None
        self.mount_anew()
        if self.mount.status()["staged_objects"]:
            raise Difference(f"staged after a kill: {self.mount.status()}")
        self.counts["kills"] += 1
        self.look_from_outside()

    def close(self) -> None:
        """Whatever is open or mounted goes."""
        self.other.__exit__(None, None, None)
        for handle in self.file.handles:
            if handle.mapping is None:
                os.close(handle.number)
            else:
                handle.mapping.close()
        self.mount.close()


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/lab exerciser", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seed", default=None, help="what decides everything; random without it")
    parser.add_argument("--operations", type=int, default=10_000, help="how many calls (default: 10000)")
    parser.add_argument("--summary", type=Path, default=None, help="file for a summary in JSON")
    options = parser.parse_args(words)
    options.seed = secrets.token_hex(4) if options.seed is None else options.seed
    return options


def main(words: Sequence[str]) -> int:
    """Run it and report."""
    options = parse(words)
    again = f"tools/lab exerciser --seed {options.seed} --operations {options.operations}"
    place = Place.make("hcfs-exerciser-")
    directory = place.path
    print(f"seed {options.seed}, in {directory}; again: {again}", flush=True)
    began, finding = time.time(), ""
    exerciser = Exerciser(directory, options.seed)
    try:
        exerciser.run(options.operations)
    except (Difference, OSError) as error:
        done = "\n  ".join(exerciser.file.done)
        finding = (
            f"{type(error).__name__} after {sum(exerciser.counts.values())} steps: {error}\nthe last calls:\n  {done}"
        )
    finally:
        exerciser.close()
    summary = {
        "seed": options.seed,
        "again": again,
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": round(time.time() - began, 1),
        "finding": finding,
        "counts": dict(sorted(exerciser.counts.items())),
    }
    if options.summary is not None:
        options.summary.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))
    if finding:
        place.keep()
        print(f"FOUND: {finding}\nkept: {directory}\nagain: {again}", file=sys.stderr)
        return 1
    place.close()
    return 0
