"""What the pictures of measurements have in common: figures of matplotlib, saved as SVG that a diff can show."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#97bbf5")
STYLE: Any = {  # which keys there are differs between versions of matplotlib
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "figure.facecolor": "white",
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "hcfs",  # names of parts are the same each time
}


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of so many inches, whose parts are laid out so that no text is cut or covers another."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def save(drawn: Figure, path: Path) -> None:
    """Write the SVG: the same bytes for the same figures and version of matplotlib. Inside of `figure`."""
    drawn.draw_without_rendering()
    drawn.set_layout_engine("none")
    for axes in drawn.axes:
        # The layout's last digits differ from run to run, and names of parts are made from them.
        left, bottom, width, height = (round(part, 4) for part in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))
    text = io.StringIO()
    drawn.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")
