"""Runs of openers: in each, processes and threads open one file of an S3 origin at once, and it is counted how often it
is fetched."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from harness.cli import hcfs  # noqa: E402  # found through the line above
from harness.mounts import Mount  # noqa: E402
from harness.s3 import S3, Fault, environment  # noqa: E402
from origin.clients import evict_all, namespace, openers  # noqa: E402


def main() -> int:
    """Exit code 1 when a run fetched other than once, or an opener got anything but the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--openers", type=int, default=64)
    parser.add_argument("--size", type=int, default=4_000_001, help="bytes of the file")
    parser.add_argument("--load", type=int, default=2 * (os.cpu_count() or 1), help="processes that keep the CPUs busy")
    parser.add_argument("--cuts", type=float, default=0.3, help="part of the runs whose connection is cut once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-plane", default="on", choices=("on", "off"))
    options = parser.parse_args()
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
    server = S3()
    try:
        os.environ.update(environment(server.endpoint))
        with tempfile.TemporaryDirectory() as place:
            return _runs(Path(place), server, options)
    finally:
        server.close()
        for process in load:
            process.kill()
            process.wait()


def _runs(place: Path, server: S3, options: argparse.Namespace) -> int:
    chance = random.Random(options.seed)
    content = chance.randbytes(options.size)
    hcfs("mkfs", place / "image", "--size", "128M")
    mount = Mount(place / "image", place / "mnt", options=f"lookup_grace=0,data_plane={options.data_plane}")
    bad = 0
    try:
        mount.mount()
        directory, prefix = namespace(mount, server, {"model": content})
        for run in range(options.runs):
            server.fresh()
            cut = chance.randrange(options.size) if chance.random() < options.cuts else None
            if cut is not None:
                server.faults = lambda asked, number, at=cut: (
                    Fault(cut_after=at) if not asked.lists and number == 0 else None
                )
            answers = openers(directory / "model", options.openers).join()
            fetches = len(server.gets(f"{prefix}/model"))
            right = sum(answer == content for answer in answers)
            expected = 1 if cut is None else 2
            good = right == options.openers and fetches == expected
            bad += not good
            print(f"run {run}: {right}/{options.openers} right, {fetches} requests, cut at {cut}", flush=True)
            evict_all(mount, directory)
    finally:
        mount.close()
    print(f"{options.runs - bad} of {options.runs} runs good")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
