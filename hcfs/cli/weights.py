"""`hcfs weights`: weight files looked at, read and timed through ordinary paths, on any mount."""

from __future__ import annotations

import time
from typing import Any, get_args

import click

from hcfs.cli.arguments import SIZE, json_option
from hcfs.cli.output import human_size, print_fields, print_json, print_table, say
from hcfs.cli.weights_bench import bench_command
from hcfs.weights.plan import plan
from hcfs.weights.stream import THREADS_DEFAULT, stream
from hcfs.weights.tensors import Framework
from hcfs.weights.weight_file import IO

# Not click.Path, as for the other commands' DIR: whoever asks a hung mount waits in the command itself, with its name.
path_argument = click.argument("path", type=str)
budget_option = click.option(
    "--budget", type=SIZE, help="Most bytes read ahead. [default: 512M, or the largest tensor if that is more]"
)
threads_option = click.option("--threads", type=int, default=THREADS_DEFAULT, show_default=True, help="That read.")


@click.group(short_help="Look at, read and time safetensors files.")
def command() -> None:
    """Read safetensors files on a mount as weight loaders do.

    PATH is a file, an index of shards or a model's directory. Needs the extra: pip install 'hcfs[weights]'.
    """


@command.command("plan", short_help="What would be read, and in which order.")
@path_argument
@json_option
def plan_command(path: str, as_json: bool) -> None:
    """Print the tensors of PATH in the order in which they would be read: embeddings, layers by number, the rest.

    Reads headers only, checks them in full, and needs neither torch nor numpy.
    """
    found = plan(path)
    document: Any = found.document()
    if as_json:
        print_json(document)
        return
    heads = ("stage", "name", "dtype", "shape", "bytes", "file", "offset")
    rows = ({**each, "shape": "x".join(map(str, each["shape"])) or "-"} for each in document["tensors"])
    print_table(heads, ([row[head] for head in heads] for row in rows))
    say(f"{len(found.tensors)} tensors, {human_size(found.nbytes)} in {len(found.files)} files")


@command.command("load", short_help="Read every tensor once, and say how fast.")
@path_argument
@click.option("--framework", type=click.Choice(get_args(Framework)), default="numpy", show_default=True)
@click.option("--device", default="cpu", show_default=True, help="torch's name of where tensors go, such as cuda:0.")
@budget_option
@threads_option
@click.option(
    "--io",
    type=click.Choice(get_args(IO)),
    default="auto",
    show_default=True,
    help="Around the page cache, through it, or around it except for what it has.",
)
@json_option
def load_command(
    path: str, framework: Framework, device: str, budget: int | None, threads: int, io: IO, as_json: bool
) -> None:
    """Read every tensor of PATH once, in order, and let go of each: does it load, how fast, in how much memory.

    Bytes are those of the tensors; peak is the most that was read ahead at once, and at most the budget.
    """
    began = time.perf_counter()
    found = plan(path)
    with stream(found, framework=framework, device=device, budget=budget, threads=threads, io=io) as tensors:
        for _ in tensors:
            pass
        statistics = tensors.statistics()
    seconds = time.perf_counter() - began
    report = {
        "path": path,
        "tensors": len(found.tensors),
        "tensor_bytes": found.nbytes,
        "seconds": round(seconds, 6),
        "mb_s": round(found.nbytes / seconds / 1e6, 1),
        "framework": framework,
        "device": device,
        "io": io,
        "threads": threads,
        "budget_bytes": statistics.budget,
        "peak_bytes": statistics.peak,
        "direct_bytes": statistics.direct_bytes,
        "buffered_bytes": statistics.buffered_bytes,
        "waited_seconds": round(statistics.waited_seconds, 6),
    }
    if as_json:
        print_json(report)
    else:
        print_fields(report)


command.add_command(bench_command)
