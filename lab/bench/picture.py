"""Ratios as bars: one panel for each case and judged measure, one bar for each candidate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from lab import drawing

BAR, PANEL, HEAD = 0.22, 0.55, 0.6
"""Inches of height: of a bar, of a panel beside its bars, of the two lines above."""


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Write the SVG of a result: median ratios, with the interval as a line; the base is 1."""
    panels = [
        (case, measure, {name: entry["ratio"] for name, entry in found.items() if "ratio" in entry})
        for case in result["cases"]
        for measure in case["judged"]
        if (found := case["measures"].get(measure))
    ]
    names = list(dict.fromkeys(name for _, _, ratios in panels for name in ratios))
    colours = {name: drawing.COLOURS[at % len(drawing.COLOURS)] for at, name in enumerate(names)}
    longest = max((ratio["high"] for _, _, ratios in panels for ratio in ratios.values()), default=1.0)
    heights = [BAR * len(ratios) + PANEL for _, _, ratios in panels] or [PANEL]
    bases = " and ".join(dict.fromkeys(case["base"] for case in result["cases"]))
    with drawing.figure(8, sum(heights) + HEAD) as figure:
        head = f"{result['command']}: times {bases}; {result['backing']} backing, {result['date']}"
        figure.suptitle(f"{head}\n{result['machine']}", x=0.01, ha="left", fontsize=10)
        grid = figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)
        for number, ((case, measure, ratios), axes) in enumerate(zip(panels, grid[:, 0], strict=False)):
            title = f"{case['case']}: {measure}" + ("" if case["steady"] else "  (not steady)")
            _panel(axes, number, title, ratios, colours)
            axes.set_xlim(0, max(1.1, longest) * 1.02)
        drawing.save(figure, path)


def _panel(
    axes: Axes, number: int, title: str, ratios: Mapping[str, Mapping[str, float]], colours: Mapping[str, str]
) -> None:
    """The figures stand in a column at the right, where neither a bar nor the line of the base comes."""
    axes.set_title(title)
    for at, (name, ratio) in enumerate(ratios.items()):
        axes.barh(at, ratio["median"], height=0.8, color=colours[name], gid=f"bar-{number}-{at}")
        axes.plot([ratio["low"], ratio["high"]], [at, at], color="black", linewidth=1)
    axes.axvline(1, color="black", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    figures = axes.secondary_yaxis("right")
    shown = [f"{each['median']:.2f}  ({each['low']:.2f} to {each['high']:.2f})" for each in ratios.values()]
    figures.set_yticks(range(len(ratios)), shown)
    figures.tick_params(length=0)
    figures.spines["right"].set_visible(False)
