"""LMCache's own benchmark as an acceptance test: 14 MiB objects, 8 keys a submit, 4 in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcfs.lmcache.config import adapter_json
from lab.harness.lmcache.bench import check, run_bench
from lab.harness.mounts import Mount


@pytest.mark.parametrize(("direct", "size_kib"), [(True, 14336), (False, 1024)], ids=["direct", "buffered"])
def test_every_key_is_stored_found_and_loaded(make_mount, tmp_path: Path, direct: bool, size_kib: int) -> None:
    # Two rounds of 448 MiB; their checks hold store's and load's buffers at once, 896 MiB.
    mount: Mount = make_mount(size="1280M", loop=True)
    mount.ns("kv")
    spec = adapter_json(mount.dir, "kv", use_odirect=direct)
    run_bench(spec, tmp_path / "report.json", size_kib=size_kib, keys=8, in_flight=4, rounds=1)
    status = mount.status()
    assert status["namespaces"]["kv"]["used_bytes"] == 2 * 32 * size_kib * 1024
    assert status["counters"]["checksum_errors"] == 0
    assert (status["staged_objects"], status["quarantined_objects"]) == (0, 0)


def test_the_bench_on_a_plain_directory(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    run_bench(adapter_json(tmp_path, "kv"), tmp_path / "report.json", size_kib=64, keys=2, in_flight=2, rounds=2)


@pytest.mark.parametrize(
    "change", [{"total_success": 31}, {"rounds_timed_out": 1}, {"rounds": 0}, {"total_keys": 0, "total_success": 0}]
)
def test_a_failed_key_or_round_fails_the_check(change: dict[str, int]) -> None:
    good = {"rounds": 1, "rounds_timed_out": 0, "total_keys": 32, "total_success": 32}
    figures = {"Store": good, "Lookup": good, "Load": good}
    check(figures, 32, 1)
    for operation in figures:
        with pytest.raises(AssertionError, match=operation):
            check({**figures, operation: {**good, **change}}, 32, 1)
    with pytest.raises(AssertionError):
        check({"Store": good}, 32, 1)
