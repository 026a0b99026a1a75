"""Ratios as bars, in plain SVG: a text file that a repository can keep and a diff can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

ROW, LABEL, WIDTH, RIGHT = 20, 400, 420, 220
COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2"]


def draw(result: Mapping[str, Any]) -> str:
    """One bar for each candidate and judged measure: its median ratio, with the interval as a line; 1 is the base."""
    rows = [
        (f"{case['case']}: {what}", name, entry["ratio"], case["steady"])
        for case in result["cases"]
        for what in case["judged"]
        for name, entry in case["measures"].get(what, {}).items()
        if "ratio" in entry
    ]
    names = list(dict.fromkeys(name for _, name, _, _ in rows))
    longest = max((ratio["high"] for _, _, ratio, _ in rows), default=1.0)
    scale = WIDTH / max(1.1, longest)
    bases = " and ".join(dict.fromkeys(case["base"] for case in result["cases"]))
    parts = [
        _text(8, 20, f"{result['command']}: times {bases}; {result['backing']} backing, {result['date']}", "start", 14),
        _text(8, 36, result["machine"], "start"),
    ]
    top, last = 60, ""
    for title, name, ratio, steady in rows:
        if title != last:
            top += 6
            parts.append(_text(LABEL - 8, top + 13, title, "end"))
            last = title
        length, colour = ratio["median"] * scale, COLOURS[names.index(name) % len(COLOURS)]
        middle = top + ROW / 2 - 1
        parts += [
            f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{ROW - 3}" fill="{colour}"/>',
            (
                f'<line x1="{LABEL + ratio["low"] * scale:.1f}" x2="{LABEL + ratio["high"] * scale:.1f}" '
                f'y1="{middle}" y2="{middle}" stroke="black"/>'
            ),
            _text(LABEL + max(length, ratio["high"] * scale) + 4, top + 13, _label(name, ratio, steady), "start"),
        ]
        top += ROW
    one = LABEL + scale
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="52" y2="{top}" stroke="black" stroke-dasharray="3 3"/>')
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + RIGHT}" height="{top + 12}" '
                'font-family="sans-serif" font-size="11">'
            ),
            '<rect width="100%" height="100%" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _label(name: str, ratio: Mapping[str, Any], steady: bool) -> str:
    return f"{name} {ratio['median']:.2f}" + ("" if steady else " (not steady)")


def _text(x: float, y: float, words: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'
