"""One store under torture: its image, its mount and what is known to be on it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount
from lab.harness.places import Place
from lab.torture.journal import Tree
from lab.torture.verify import Finding

NAMESPACE = "kv"
TREES = 6


class StoreUnderTest:
    """`known` is what every path of the namespace holds, durably, when no round is under way."""

    def __init__(self, directory: Path, name: str, size: str, *, evicting: bool, chance: random.Random) -> None:
        self.name = name
        self.evicting = evicting
        self.chance = chance
        self.image = create_image(directory / f"{name}.img", size)
        self.granule = chance.choice(["64K", "256K", "1M"])
        hcfs("mkfs", self.image, "--granule", self.granule)
        allowed = ["is read-only: mounted read-only$"]
        # The directory may be the user's: of what is in it only this is taken down.
        self.place = Place(directory / f"{name}.mnt", keep=True)
        self.mount = Mount(self.image, self.place.path, allow_warnings=allowed)
        self.known: Tree = {}
        self.options = ""
        self.commit_interval = 1.0
        self.staging_ttl = 0.0
        self.copy = directory / f"{name}.before.img"

    @property
    def root(self) -> Path:
        """The namespace, as the workers see it."""
        return self.mount.dir / NAMESPACE

    def mount_anew(self, *, read_only: bool = False) -> None:
        """Mount with other options than before."""
        chance = self.chance
        self.commit_interval = chance.choice([0.02, 0.1, 0.5, 1.0, 3.0])
        self.staging_ttl = chance.choice([0.5, 2.0, 600.0])
        high = chance.uniform(0.6, 0.98)
        words = {
            "commit_interval": f"{self.commit_interval:g}",
            "staging_ttl": f"{self.staging_ttl:g}",
            "lookup_grace": f"{chance.choice([0, 0, 0.2, 2, 30] if not self.evicting else [0, 0, 0.1, 1]):g}",
            "low_watermark": f"{high * chance.uniform(0.5, 0.97):.2f},high_watermark={high:.2f}",
            "memory": chance.choice(["16M", "32M", "256M"]),
        }
        given = chance.sample(sorted(words), chance.randrange(3, len(words) + 1))
        if "commit_interval" not in given:
            self.commit_interval = 1.0
        if "staging_ttl" not in given:
            self.staging_ttl = 600.0
        self.options = ",".join([*(f"{name}={words[name]}" for name in given), *["ro"] * read_only])
        result = hcfs("mount", self.image, self.mount.dir, "--log", self.mount.log, "-o", self.options, check=False)
        if result.returncode:
            raise Finding(f"mount -o {self.options} failed: {result.stderr.strip()}")

    def umount(self) -> None:
        """In order; nobody uses it any more."""
        result = hcfs("umount", self.mount.dir, check=False, timeout=330)
        if result.returncode:
            raise Finding(f"umount failed: {result.stderr.strip()}")

    def fsck(self) -> None:
        """The image isn't mounted; every byte is looked at."""
        result = hcfs("fsck", self.image, "--data", "--json", check=False, timeout=600)
        if result.returncode:
            problems = json.loads(result.stdout)["problems"][:8] if result.stdout else result.stderr
            raise Finding(f"fsck exits with {result.returncode}: {problems}")

    def keep_copy(self) -> None:
        """As the killed daemon left it: what the next mount makes of it can be tried again."""
        shutil.rmtree(self.copy, ignore_errors=True)
        subprocess.run(["cp", "--sparse=always", str(self.image), str(self.copy)], check=True)

    def loud_lines(self) -> list[str]:
        """What the daemon's log says at WARNING and above and mustn't."""
        return self.mount.unexpected_lines()

    def take_away(self) -> None:
        """Whatever is mounted goes, by force: who waits for an answer gets an error."""
        while self.mount.mounted:
            subprocess.run(["umount", "-f", "-l", str(self.mount.dir)], check=True)
