"""Loading weights: hcfs's reader and other loaders, on hcfs and on ext4, and first tokens from hcfs.

Makes two loop devices of the same backing, a Llama of random weights on both, and runs `hcfs weights bench` there, with
`--ttft` on hcfs. hcfs checks a CRC32C of every byte, ext4 checks nothing."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout
from typing import Any

import bench_backing
from bench_backing import HCFS, MIB, Backing, size_in_bytes
from bench_session import machine

from hcfs.cli.weights_bench import print_comparison, print_first_tokens

MAKE = (
    "import sys; from hcfs.weights.bench.llama import shape_for, write; "
    "write(sys.argv[1], shape_for(int(sys.argv[2]) // 4), 'float32')"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backing", choices=["memory", "disk"], default="disk", help="where the devices' files are")
    parser.add_argument("--size", default="1400M", help="of the model, about (default 1400M)")
    parser.add_argument("--rounds", type=int, default=3, help="of all cases, in turn (default 3)")
    parser.add_argument("--tokens", default="5,512,2048", help="lengths of the prompts, with commas")
    parser.add_argument("--part", choices=["loaders", "ttft", "both"], default="both")


def run(args: argparse.Namespace) -> dict[str, Any]:
    size = size_in_bytes(args.size)
    result: dict[str, Any] = {"machine": machine(), "backing": args.backing}
    with ExitStack() as stack:
        room = size * 5 // 4 + 128 * MIB
        one, other = (Backing(stack, memory=args.backing == "memory", size=room) for _ in range(2))
        hcfs, ext4 = stack.enter_context(one.hcfs()).directory, stack.enter_context(other.ext4()).directory
        if args.part != "ttft":
            bench_backing.run("mkdir", hcfs / "model")
            bench_backing.run(sys.executable, "-c", MAKE, hcfs / "model", size)
            bench_backing.run("cp", "-r", hcfs / "model", ext4 / "model")
            bench_backing.run("sync", "--file-system", ext4)
            words = ("--beside", ext4 / "model", "--rounds", args.rounds)
            result["loaders"] = bench(hcfs / "model", *words)
            shutil.rmtree(hcfs / "model")
        if args.part != "loaders":
            result["ttft"] = bench(hcfs, "--ttft", "--size", size, "--rounds", args.rounds, "--tokens", args.tokens)
    result["machine_after"] = machine()
    return result


def bench(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench_backing.run(*HCFS, "weights", "bench", *words, "--json"))
    return found


def text(result: Mapping[str, Any]) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        if "loaders" in result:
            print_comparison(result["loaders"])
        if "ttft" in result:
            print_first_tokens(result["ttft"])
    return f"{result['machine']}, devices over {result['backing']} files\n{shown.getvalue()}"
