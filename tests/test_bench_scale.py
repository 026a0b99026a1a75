"""`tools/lab scale` measures what it says, at sizes that say nothing, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

from lab.harness import programs

PHASES = {"nothing", "creating", "listing", "checkpoint"}


def test_scale(tmp_path: Path) -> None:
    figures, drawing = tmp_path / "scale.json", tmp_path / "scale.svg"
    words = ["--sizes", "300", "--count", "30", "--repeats", "1", "--idle", "0.1", "--scratch", tmp_path]
    done = subprocess.run(
        programs.lab("scale", *words, "--json", figures, "--picture", drawing),
        env=programs.environment(),
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
    assert len([part for part in ET.parse(drawing).iter() if part.get("id", "").startswith("curve-")]) == 4
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    again = subprocess.run(
        programs.lab("scale", "--from-json", figures),
        env=programs.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.stdout.strip() == done.stdout.strip()[-len(again.stdout.strip()) :]
