"""`hcfs weights bench`: loaders beside each other, and first tokens with and without pipelining."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from hcfs.cli.arguments import SIZE, json_option
from hcfs.cli.output import human_size, print_json, print_table, say
from hcfs.errors import UsageError
from hcfs.weights.bench.compare import compare
from hcfs.weights.bench.first_token import DTYPES, TOKENS, first_tokens
from hcfs.weights.bench.loaders import LOADERS, LOADERS_DEFAULT

_COMPARING = {"beside": "--beside", "loaders": "--loaders"}
_FIRST_TOKEN = {"size": "--size", "dtype": "--dtype", "tokens": "--tokens", "device": "--device", "budget": "--budget"}


@click.command("bench", short_help="Time loaders, or a first token.")
@click.argument("path", type=str)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of all cases, in turn.")
@click.option("--beside", multiple=True, metavar="PATH", help="The same model elsewhere; may be given again.")
@click.option(
    "--loaders",
    default=",".join(LOADERS_DEFAULT),
    show_default=True,
    metavar="NAMES",
    help=f"Which to compare, of {', '.join(LOADERS)}.",
)
@click.option("--ttft", is_flag=True, help="Time first tokens of a model that is made under PATH, a directory.")
@click.option("--size", type=SIZE, default="1400M", show_default=True, help="With --ttft: bytes of that model, about.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="float32", show_default=True, help="With --ttft.")
@click.option(
    "--tokens",
    default=",".join(map(str, TOKENS)),
    show_default=True,
    metavar="COUNTS",
    help="With --ttft: lengths of prompts.",
)
@click.option("--device", default="cpu", show_default=True, help="With --ttft: where torch computes.")
@click.option("--budget", type=SIZE, help="With --ttft: most bytes read ahead, as for load.")
@json_option
@click.pass_context
def bench_command(context: click.Context, /, path: str, rounds: int, ttft: bool, as_json: bool, **options: Any) -> None:
    """Load the model at PATH with hcfs's reader, safetensors' load_file, run:ai's model streamer and fastsafetensors,
    cold and warm, in turn, each time in a process of its own; other loaders need the extra hcfs[weights-bench].

    Cold: the kernel has dropped the files' pages, and none of them is left. hcfs-dropped is hcfs's reader with a budget
    of 64 MiB, or of the largest tensor, and a consumer that keeps nothing; the others keep all tensors. hcfs-direct and
    hcfs-buffered are its reader with that --io. Ratios are to safetensors' rate in the same round. Only ratios of one
    run mean anything.

    With --ttft, make a Llama of random weights under PATH, and time its first token from cold, eager (load, then
    compute) and pipelined (each layer as it comes). At best the smaller of reading and computing is saved.
    """
    _refuse(context, _COMPARING if ttft else _FIRST_TOKEN, "without" if ttft else "with")

    def progress(line: str) -> None:
        say(line, err=True)

    if ttft:
        result = first_tokens(
            path,
            nbytes=options["size"],
            dtype=options["dtype"],
            tokens=_numbers(options["tokens"]),
            rounds=rounds,
            device=options["device"],
            budget=options["budget"],
            progress=progress,
        )
    else:
        loaders = [name.strip() for name in options["loaders"].split(",")]
        result = compare([path, *options["beside"]], loaders=loaders, rounds=rounds, progress=progress)
    if as_json:
        print_json(result)
    elif ttft:
        print_first_tokens(result)
    else:
        print_comparison(result)


def _refuse(context: click.Context, names: dict[str, str], how: str) -> None:
    given = [word for name, word in names.items() if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        raise UsageError(f"{given[0]} means something only {how} --ttft; leave it out")


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--tokens takes numbers with commas between, such as 5,512, and not {text!r}") from None


def print_comparison(result: dict[str, Any]) -> None:
    """What hcfs.weights.bench.compare returns, for people."""
    say(f"{human_size(result['tensor_bytes'])} of tensors, {result['rounds']} rounds, all bytes equal")
    rows = [
        (
            case["path"],
            case["cache"],
            case["loader"],
            _range(case["mb_s"], 0),
            _range(case["ratio"], 2) if "ratio" in case else "-",
            human_size(case["peak_bytes"]),
            f"{case['cpu_seconds']:.2f}",
        )
        for case in sorted(result["cases"], key=lambda case: (case["path"], case["cache"]))
    ]
    print_table(("path", "cache", "loader", "MB/s", "x safetensors", "peak memory", "CPU s"), rows)
    for name, reason in result["left_out"].items():
        say(f"left out: {name} ({reason})")


def print_first_tokens(result: dict[str, Any]) -> None:
    """What hcfs.weights.bench.first_token returns, for people."""
    model = result["model"]
    say(
        f"Llama of {human_size(model['tensor_bytes'])} ({model['layers']} layers, {model['dtype']}), "
        f"{result['rounds']} rounds, {result['device']}; seconds, median (lowest to highest)"
    )
    rows = [
        (
            each["tokens"],
            _range(each["t_io"], 2),
            _range(each["t_compute"], 2),
            f"{each['bound']:.2f}",
            _range(each["eager"], 2),
            _range(each["pipelined"], 2),
            _range(each["gained"], 2),
            "yes" if each["identical"] else "NO",
        )
        for each in result["prompts"]
    ]
    print_table(("tokens", "T_io", "T_compute", "bound", "eager", "pipelined", "gained", "identical"), rows)
    for each in result["prompts"]:
        say(
            f"{each['tokens']} tokens: reading hidden behind computing {each['hidden']['median']:+.2f} s, computing "
            f"slowed by reading {each['slowed']['median']:+.2f} s, CPU {each['cpu_eager']:.2f} s eager and "
            f"{each['cpu_pipelined']:.2f} s pipelined"
        )


def _range(found: dict[str, float], digits: int) -> str:
    return f"{found['median']:.{digits}f} ({found['min']:.{digits}f} to {found['max']:.{digits}f})"
