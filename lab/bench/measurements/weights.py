"""Loading weights: hcfs's reader and other loaders, on hcfs and on ext4; one reader of a file and four processes that
share it; and first tokens from hcfs.

Makes two loop devices of the same backing, a Llama of random weights on both, and runs `hcfs weights bench` there, with
`--ttft` on hcfs. hcfs checks a CRC32C of every byte, ext4 checks nothing."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from hcfs.cli.weights_bench import print_comparison, print_first_tokens
from hcfs.weights.bench.loaders import LOADERS_DEFAULT
from hcfs.weights.bench.rounds import make_cold, spread
from lab.bench.backing import HCFS, MIB, Backing, size_in_bytes
from lab.bench.backing import run as command
from lab.bench.error import BenchError
from lab.bench.session import machine

MAKE = (
    "import sys; from hcfs.weights.bench.llama import shape_for, write; "
    "write(sys.argv[1], shape_for(int(sys.argv[2]) // 4), 'float32')"
)


# Reads every N-th piece of 4 MiB, beginning with the I-th, when it is told to.
READER = (
    "import os, sys\n"
    "fd, one, all = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2]), int(sys.argv[3])\n"
    "buffer, size = bytearray(4 << 20), os.fstat(fd).st_size\n"
    "print('ready', flush=True)\n"
    "sys.stdin.readline()\n"
    "for at in range(one * len(buffer), size, all * len(buffer)):\n"
    "    left = memoryview(buffer)[:size - at]\n"
    "    while left:\n"
    "        count = os.preadv(fd, [left], at)\n"
    "        assert count\n"
    "        left, at = left[count:], at + count\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backing", choices=["memory", "disk"], default="disk", help="where the devices' files are")
    parser.add_argument("--size", default="1400M", help="of the model, about (default 1400M)")
    parser.add_argument("--rounds", type=int, default=3, help="of all cases, in turn (default 3)")
    parser.add_argument("--tokens", default="5,512,2048", help="lengths of the prompts, with commas")
    parser.add_argument("--loaders", default=",".join(LOADERS_DEFAULT), help="as for `hcfs weights bench`")
    parser.add_argument("--part", choices=["loaders", "sharing", "ttft", "all"], default="all")


def run(args: argparse.Namespace) -> dict[str, Any]:
    size = size_in_bytes(args.size)
    result: dict[str, Any] = {"machine": machine(), "backing": args.backing}
    with ExitStack() as stack:
        room = size * 5 // 4 + 128 * MIB
        one, other = (Backing(stack, memory=args.backing == "memory", size=room) for _ in range(2))
        hcfs, ext4 = stack.enter_context(one.hcfs()).directory, stack.enter_context(other.ext4()).directory
        if args.part in ("loaders", "all"):
            command("mkdir", hcfs / "model")
            command(sys.executable, "-c", MAKE, hcfs / "model", size)
            command("cp", "-r", hcfs / "model", ext4 / "model")
            command("sync", "--file-system", ext4)
            words = ("--beside", ext4 / "model", "--rounds", args.rounds, "--loaders", args.loaders)
            result["loaders"] = bench(hcfs / "model", *words)
            shutil.rmtree(hcfs / "model")
        if args.part in ("sharing", "all"):
            result["sharing"] = sharing({"hcfs": hcfs / "shared", "ext4": ext4 / "shared"}, size // 2, args.rounds)
        if args.part in ("ttft", "all"):
            result["ttft"] = bench(hcfs, "--ttft", "--size", size, "--rounds", args.rounds, "--tokens", args.tokens)
    result["machine_after"] = machine()
    return result


def sharing(paths: dict[str, Path], size: int, rounds: int) -> dict[str, Any]:
    """MB/s of one reader of a cold file, and of four processes that each read every fourth piece of it."""
    for path in paths.values():
        with path.open("wb") as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
            os.fsync(file.fileno())
    rates: dict[str, dict[int, list[float]]] = {name: {1: [], 4: []} for name in paths}
    for number in range(rounds):
        for name, path in paths.items():
            for readers in (1, 4) if number % 2 == 0 else (4, 1):
                make_cold([str(path)])
                rates[name][readers].append(size / _shared(path, readers) / 1e6)
    for path in paths.values():
        path.unlink()
    return {
        name: {
            "one_mb_s": spread(found[1]),
            "four_mb_s": spread(found[4]),
            "ratio": spread([four / one for one, four in zip(found[1], found[4], strict=True)]),
        }
        for name, found in rates.items()
    }


def _shared(path: Path, readers: int) -> float:
    """Seconds until all are done."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", READER, path, str(each), str(readers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for each in range(readers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    began = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    codes = [process.wait() for process in processes]
    if any(codes):
        raise BenchError(f"a reader of {path} failed")
    return time.perf_counter() - began


def bench(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(*HCFS, "weights", "bench", *words, "--json"))
    return found


def text(result: Mapping[str, Any]) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        if "loaders" in result:
            print_comparison(result["loaders"])
        for name, found in result.get("sharing", {}).items():
            one, four, ratio = (found[key]["median"] for key in ("one_mb_s", "four_mb_s", "ratio"))
            print(f"{name}: one reader {one:.0f} MB/s, four processes that share the file {four:.0f} ({ratio:.2f} x)")
        if "ttft" in result:
            print_first_tokens(result["ttft"])
    return f"{result['machine']}, devices over {result['backing']} files\n{shown.getvalue()}"
