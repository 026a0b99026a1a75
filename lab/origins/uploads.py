"""Rounds of writers in a namespace with a write policy, over a real server that fails now and then. After each round
what the mount shows must be what the server has, every file whole, and nothing that was acknowledged lost."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lab.harness import programs
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import ALLOWED, namespace, sync
from lab.harness.origins.gcs import Gcs
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault, OriginServer
from lab.harness.places import Place
from lab.origins.uploads_writer import number_of


def main(words: Sequence[str]) -> int:
    """Exit code 1 when something was lost, mixed, or left different."""
    parser = argparse.ArgumentParser(prog="tools/lab uploads", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120, help="no round is begun after that")
    parser.add_argument("--round", type=float, default=3, help="seconds for which the writers of a round write")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--errors", type=float, default=0.1, help="part of the requests that fail")
    parser.add_argument("--kills", type=float, default=0.4, help="part of the rounds in which the daemon is killed")
    parser.add_argument("--write-policy", default="write-back", choices=("write-back", "write-through"))
    parser.add_argument("--data-plane", default="on", choices=("on", "off"))
    parser.add_argument("--origin", default="s3", choices=("s3", "gs"), help="kind of the server")
    options = parser.parse_args(words)
    server = Gcs() if options.origin == "gs" else S3()
    try:
        os.environ.update(server.environment())
        with Place.make("hcfs-uploads-") as place:
            return Rounds(place, server, options).run()
    finally:
        server.close()


class Rounds:
    """One mount, and the writers of each round."""

    def __init__(self, place: Path, server: OriginServer, options: argparse.Namespace) -> None:
        self._place = place
        self._server = server
        self._options = options
        self._chance = random.Random(options.seed)
        hcfs("mkfs", place / "image", "--size", "128M")
        words = f"lookup_grace=0,upload_attempts=50,data_plane={options.data_plane},{ALLOWED}"
        self._mount = Mount(place / "image", place / "mnt", options=words, allow_warnings=(".",))
        self._problems: list[str] = []

    def run(self) -> int:
        end, rounds = time.monotonic() + self._options.seconds, 0
        self._mount.mount()
        try:
            self._directory, self._prefix = namespace(
                self._mount, self._server, {}, write_policy=self._options.write_policy
            )
            for name in ("own", "common"):
                (self._directory / name).mkdir()
            while time.monotonic() < end and not self._problems:
                rounds += 1
                self._round(rounds)
        finally:
            self._mount.close()
        print("\n".join(self._problems) or f"{rounds} rounds, and nothing lost")
        return 1 if self._problems else 0

    def _round(self, number: int) -> None:
        options, server = self._options, self._server
        server.fresh()
        server.faults = self._fault
        seeds = [1 + index + 100 * (1000 * options.seed + number) for index in range(options.writers)]
        journals = [self._place / f"journal-{seed}" for seed in seeds]
        writers = [
            subprocess.Popen(
                programs.command("lab.origins.uploads_writer", self._directory, journal, seed, options.round),
                env=programs.environment(),
                stderr=subprocess.DEVNULL,
            )
            for journal, seed in zip(journals, seeds, strict=True)
        ]
        killed = self._chance.random() < options.kills
        time.sleep(options.round * self._chance.uniform(0.3, 0.9))
        hcfs("evict", self._mount.dir, self._directory.name, "--all", check=False)
        if killed:
            self._mount.kill(signal.SIGKILL)
        for writer in writers:
            writer.wait(120)
        if killed:
            self._mount.mount()
        refused = {path for path in (asked.path for asked in server.asked) if path.endswith((".tmp", ".lock"))}
        if refused:
            self._problems.append(f"round {number}: staging names were sent: {refused}")
        server.faults = lambda *_: None
        answer = sync(self._mount, self._directory, "--retry", "--wait")
        if answer["objects"]:
            self._problems.append(f"round {number}: not uploaded: {answer['objects'][:3]}")
        requests = len(server.asked)
        self._compare(number, journals, killed=killed)
        print(f"round {number}: {requests} requests, killed: {killed}", flush=True)

    def _fault(self, asked: Asked, _: int) -> Fault | None:
        if asked.lists or self._chance.random() > self._options.errors:
            return None
        word = self._chance.choice(("status", "lost", "slow"))
        return {"status": Fault(status=503), "lost": Fault(lost=True), "slow": Fault(slow=0.05)}[word]

    def _compare(self, number: int, journals: list[Path], *, killed: bool) -> None:
        deadline = time.monotonic() + 20  # closes are published a little later than they return
        while (self._mount.dir / ".hcfs" / "staged").read_bytes().count(b"closing") and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.2)
        here = {
            str(path.relative_to(self._directory)): path.read_bytes()
            for path in self._directory.rglob("*")
            if path.is_file()
        }
        there = {key: self._server.get(f"{self._prefix}/{key}") for key in self._server.keys(self._prefix)}
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                shown = [None if data is None else number_of(data) for data in (here.get(name), there.get(name))]
                self._problems.append(f"round {number}: {name} is {shown[0]} here and {shown[1]} at the origin")
        for name, data in here.items():
            if number_of(data) is None:
                self._problems.append(f"round {number}: {name} is no whole content")
        for journal in journals:
            self._check_journal(number, journal, here, killed=killed)

    def _check_journal(self, number: int, journal: Path, here: dict[str, bytes], *, killed: bool) -> None:
        """Of its own names: the last change that is sure to have come through, or one that was begun after it."""
        allowed: dict[str, set[int]] = {}
        sure: set[str] = set()
        for line in journal.read_text().splitlines():
            what, name, content, durable = json.loads(line)
            if not name.startswith("own/"):
                continue
            if what == "begin":
                allowed.setdefault(name, set()).add(content)
            elif what == "done" and (not killed or durable is True):
                allowed[name] = {content}
                sure.add(name)
        for name in sure:
            data = here.get(name)
            found = 0 if data is None else number_of(data)
            if found not in allowed[name]:
                self._problems.append(f"round {number}: {name} is {found}, and not one of {sorted(allowed[name])}")
