"""Guided fuzzing: atheris, libFuzzer's engine for Python, looks for inputs that reach new code of one parser."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["hcfs.store"]) if atheris else nullcontext():
    from lab.reliability import fuzzing

from lab.harness.places import Place

DEEP = 50
"""one input in so many is also mounted, checked and repaired; the others take the parser alone, which is the fast
part"""


def main(words: Sequence[str]) -> int:
    """Ends the process when the time is over, as libFuzzer does."""
    options = argparse.ArgumentParser(prog="tools/lab guided-fuzzing", description=__doc__)
    options.add_argument("--parser", choices=list(fuzzing.PARSERS), default="transaction")
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args(words)
    if atheris is None:
        sys.exit("tools/lab guided-fuzzing needs the package atheris: .venv/bin/pip install atheris")
    logging.disable(logging.CRITICAL)
    corpus = Place.make("hcfs-fuzz-").path
    for number, sample in enumerate(fuzzing.samples(given.parser)):
        Path(corpus, f"{number}").write_bytes(sample)
    turn = itertools.count()
    limits = [f"-max_total_time={given.seconds}", "-timeout=20", "-rss_limit_mb=1024", "-max_len=4096"]
    atheris.Setup(
        [
            sys.argv[0],
            *limits,
            f"-seed={given.seed}",
            "-print_final_stats=1",
            f"-artifact_prefix={corpus}/",
            str(corpus),
        ],
        lambda data: fuzzing.feed(given.parser, data, deep=next(turn) % DEEP == 0),
    )
    atheris.Fuzz()
    return 0
