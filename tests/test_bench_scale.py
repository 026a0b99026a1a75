"""`tools/bench scale` measures what it says, at sizes that say nothing, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

TOOLS = Path(__file__).resolve().parent.parent / "tools"
PHASES = {"nothing", "creating", "listing", "checkpoint"}


def test_scale(tmp_path: Path) -> None:
    figures, drawing = tmp_path / "scale.json", tmp_path / "scale.svg"
    words = ["--sizes", "300", "--count", "30", "--repeats", "1", "--idle", "0.1", "--scratch", tmp_path]
    done = subprocess.run(
        [sys.executable, TOOLS / "bench_scale.py", *words, "--json", figures, "--svg", drawing],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert [row["objects"] for row in rows] == [300]
    for row in rows:
        assert set(row["stalls"]) == PHASES
        assert all(stall["requests"] >= 3 for stall in row["stalls"].values())
        assert min(row["mount_s"] + row["listing_s"]) > 0
        assert all(row[name] > 0 for name in ("create_per_s", "lookup_median_us", "removal_s"))
        assert len(row["holds_ms"]) == 7
    assert "| mount, s (daemon's CPU s) |" in done.stdout
    assert len(ET.parse(drawing).getroot().findall(".//{*}polyline")) == 4
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    again = subprocess.run(
        [sys.executable, TOOLS / "bench_scale.py", "--from-json", figures], capture_output=True, text=True, timeout=60
    )
    assert again.stdout.strip() == done.stdout.strip()[-len(again.stdout.strip()) :]
