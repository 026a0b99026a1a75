"""The picture of `tools/lab scale`: figures over the number of objects, both axes logarithmic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from lab import drawing

PANELS: list[tuple[str, Callable[[Any], float]]] = [
    ("mount from a checkpoint, s", lambda row: statistics.median(row.mount_s)),
    ("cold listing, s", lambda row: statistics.median(row.listing_s)),
    ("lookup, median us", lambda row: row.lookup_median_us),
    ("creations a second", lambda row: row.create_per_s),
]
COLUMNS = 2


def draw(rows: Sequence[Any], path: Path) -> None:
    """Write the SVG. rows: of lab.scale.main."""
    with drawing.figure(8, 4.6) as figure:
        grid = figure.subplots(-(-len(PANELS) // COLUMNS), COLUMNS, sharex=True)
        for number, ((title, value), axes) in enumerate(zip(PANELS, grid.flat, strict=True)):
            axes.set_title(title)
            axes.plot(
                [row.objects for row in rows],
                [value(row) for row in rows],
                marker="o",
                color=drawing.COLOURS[0],
                gid=f"curve-{number}",
            )
            _decades(axes, [value(row) for row in rows])
        for axes in grid[-1]:
            axes.set_xlabel("objects")
        drawing.save(figure, path)


def _decades(axes: Axes, values: Sequence[float]) -> None:
    """Both axes in powers of ten, written out; the upright one from and to a power of ten."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(10.0**first, 10.0 ** max(last, first + 1))
    axes.grid(color="#dddddd")
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
