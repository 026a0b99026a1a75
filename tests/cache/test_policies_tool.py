"""tools/lab eviction-policies: small traces, whose outcome can be told."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from lab.harness import programs


def results(*words: str) -> list[dict[str, Any]]:
    command = programs.lab("eviction-policies", "--json", *words)
    done = subprocess.run(command, env=programs.environment(), check=True, capture_output=True, timeout=120)
    return json.loads(done.stdout)


def test_nobody_beats_the_one_that_knows_the_future_and_seeds_repeat() -> None:
    words = ("--seeds", "1", "--cache", "0.3", "--only", "models")
    found = {result["policy"]: result["ratio"] for result in results(*words)}
    assert max(found, key=found.__getitem__) == "belady"
    assert found["hcfs"] > found["lru"] > found["fifo"]
    assert found == {result["policy"]: result["ratio"] for result in results(*words)}


def test_a_published_trace_counts_chunks_up_to_the_first_that_is_absent(tmp_path: Path) -> None:
    """Ten chunks of 28 MiB in all, room for five; by hand, for the least recently used."""
    prompts = [[0, 1, 2], [0, 1, 2], [3, 4, 5], [0, 1], [6, 7, 8, 9], [4, 9]]
    lines = [json.dumps({"timestamp": 1000 * at, "hash_ids": prompt}) for at, prompt in enumerate(prompts)]
    (tmp_path / "small.jsonl").write_text("\n".join(lines))
    words = [
        "--seeds",
        "1",
        "--cache",
        "0.5",
        "--only",
        "small",
        "--policy",
        "lru",
        "--trace",
        str(tmp_path / "small.jsonl"),
    ]
    (result,) = results(*words)
    # Three at the second; 0 and 1 are gone at the fourth; 4 is gone at the last, and 9, which is there, doesn't count.
    assert result["ratio"] == 3 / 17
