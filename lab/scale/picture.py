"""The picture of `tools/lab scale`: figures over the number of objects, both axes logarithmic, as plain SVG.

Four curves don't need a plotting library: this is a page of code, and matplotlib would be 60 MB for it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 360, 220, 56, 34, 34
COLUMNS = 2

PANELS: list[tuple[str, Callable[[Any], float]]] = [
    ("mount from a checkpoint, s", lambda row: statistics.median(row.mount_s)),
    ("cold listing, s", lambda row: statistics.median(row.listing_s)),
    ("lookup, median us", lambda row: row.lookup_median_us),
    ("creations a second", lambda row: row.create_per_s),
]


def picture(rows: Sequence[Any]) -> str:
    """The SVG's text. rows: of lab.scale.main."""
    height = HEIGHT * -(-len(PANELS) // COLUMNS)
    size = f'width="{WIDTH * COLUMNS}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect {size} fill="white"/>',
    ]
    for number, (title, value) in enumerate(PANELS):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        points = [(float(row.objects), value(row)) for row in rows]
        parts.append(f'<g transform="translate({x},{y})">{_panel(title, points)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(title: str, points: Sequence[tuple[float, float]]) -> str:
    across = _decades([x for x, _ in points])
    up = _decades([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (math.log10(x) - across[0]) / (across[-1] - across[0]) * (WIDTH - LEFT - 20)
        down = HEIGHT - BOTTOM - (math.log10(y) - up[0]) / (up[-1] - up[0]) * (HEIGHT - TOP - BOTTOM)
        return right, down

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    for decade in across:
        x, y = place(10.0**decade, 10.0 ** up[0])
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle">{_label(decade)}</text>')
    for decade in up:
        x, y = place(10.0 ** across[0], 10.0**decade)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 5:.1f}" y="{y + 4:.1f}" text-anchor="end">{_label(decade)}</text>')
    placed = [place(x, y) for x, y in points]
    parts.append(
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}" '
        'fill="none" stroke="#1f6fb4" stroke-width="2"/>'
    )
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f6fb4"/>' for x, y in placed]
    return "".join(parts)


def _decades(values: Sequence[float]) -> range:
    """Powers of ten around the values, two at least."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return range(first, max(last, first + 1) + 1)


def _label(decade: int) -> str:
    return f"{10**decade:,}" if decade >= 0 else f"{10.0**decade:g}"
