"""Draw the picture of a result once more: of what `tools/lab bench --json` or `tools/lab scale --json` wrote.

The pictures in docs/ are drawn so from the figures in lab/recorded/."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from lab.bench import picture as bench
from lab.scale import picture as scale
from lab.scale.main import read


def main(words: Sequence[str]) -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="tools/lab redraw", description=__doc__)
    parser.add_argument("result", type=Path, help="file with the result, in JSON")
    parser.add_argument("picture", type=Path, help="SVG file to write")
    options = parser.parse_args(words)
    result = json.loads(options.result.read_text())
    if "cases" in result:
        bench.draw(result, options.picture)
    elif "rows" in result:
        scale.draw(read(options.result), options.picture)
    else:
        parser.error(f"{options.result} has neither the cases of tools/lab bench nor the rows of tools/lab scale")
    return 0
