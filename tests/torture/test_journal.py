"""The oracle of the torture tool: what a journal allows, and that it would notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.torture import worker
from lab.torture.calls import Refused
from lab.torture.journal import History, read_history
from lab.torture.objects import NotWhole, body, header, identify
from lab.torture.verify import Finding, compare


def history(tmp_path: Path, **journals: list[list[object]]) -> History:
    """From journals, by writer, of [kind, time, ...] lines."""
    paths = []
    for writer, lines in journals.items():
        path = tmp_path / writer
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        paths.append(path)
    return read_history(paths)


def operation(begun: int, published: int, done: int, path: str, value: str | None, way: str = "rename") -> list[list]:
    """An operation that came to its end; a time of 0: to there it didn't come."""
    lines: list[list[object]] = [["intent", begun, {path: value}, way], ["publish", published], ["done", done]]
    return [line for line in lines if line[1]]


def test_what_is_done_replaces_what_was_done_before(tmp_path: Path) -> None:
    told = history(tmp_path, a=operation(1, 2, 3, "n", "f1::") + operation(4, 5, 6, "n", "f2::"))
    assert told.allowed({"n": "f0::"}, None, False) == {"n": {"f2::"}}


def test_after_a_kill_everything_since_the_last_sync_may_be_lost_but_nothing_before_it(tmp_path: Path) -> None:
    one, two = operation(1, 2, 3, "n", "f1::"), operation(10, 11, 12, "n", "f2::")
    assert history(tmp_path, a=one + two).allowed({"n": "f0::"}, 0, False) == {"n": {"f0::", "f1::", "f2::"}}
    synced = history(tmp_path, a=[*one, ["sync", 5], ["synced", 6], *two])
    assert synced.allowed({"n": "f0::"}, 0, False) == {"n": {"f1::", "f2::"}}
    assert history(tmp_path, a=one + two).allowed({"n": "f0::"}, 5, False) == {"n": {"f1::", "f2::"}}


def test_a_sync_that_failed_makes_nothing_durable(tmp_path: Path) -> None:
    told = history(tmp_path, a=[*operation(1, 2, 3, "n", "f1::"), ["sync", 5]])
    assert told.allowed({}, 0, False) == {"n": {None, "f1::"}}


def test_what_was_interrupted_is_old_or_new_and_before_its_publishing_call_only_old(tmp_path: Path) -> None:
    assert history(tmp_path, a=operation(1, 2, 0, "n", "f1::")).allowed({}, None, False) == {"n": {None, "f1::"}}
    assert history(tmp_path, a=operation(1, 0, 0, "n", "f1::")).allowed({}, None, False) == {}


def test_of_two_writers_at_once_either_may_have_won(tmp_path: Path) -> None:
    told = history(tmp_path, a=operation(1, 2, 9, "n", "f1::"), b=operation(3, 4, 5, "n", "f2::"))
    assert told.allowed({"n": "f0::"}, None, False) == {"n": {"f1::", "f2::"}}
    told = history(tmp_path, a=operation(1, 2, 3, "n", "f1::"), b=operation(4, 5, 6, "n", "f2::"))
    assert told.allowed({"n": "f0::"}, None, False) == {"n": {"f2::"}}


def test_a_file_may_be_evicted_and_a_directory_may_not(tmp_path: Path) -> None:
    told = history(tmp_path, a=operation(1, 2, 3, "n", "f1::") + operation(4, 5, 6, "d", "d"))
    assert told.allowed({}, None, True) == {"n": {"f1::", None}, "d": {"d"}}


def test_a_read_of_what_was_replaced_before_it_began_is_wrong(tmp_path: Path) -> None:
    writer = operation(1, 2, 3, "n", "f1::") + operation(10, 11, 12, "n", "f2::")
    reads = [["read", 9, "n", 1, 5], ["read", 11, "n", 1, 9], ["read", 20, "n", 2, 15], ["read", 21, "n", 1, 16]]
    told = history(tmp_path, writer=writer, reader=reads)
    assert [(look.began, look.number) for look in told.wrong_looks({}, False)] == [(16, 1)]


@pytest.mark.parametrize("stray", ["publish", "done", "failed"])
def test_a_step_outside_of_an_operation_is_not_taken_for_one_of_the_operation_before(
    tmp_path: Path, stray: str
) -> None:
    """Else what was published would be allowed to be there no more."""
    with pytest.raises(ValueError, match=f"{stray} at 4 belongs to no operation"):
        history(tmp_path, a=[*operation(1, 2, 3, "n", "f1::"), [stray, 4]])
    failed = [["intent", 1, {"n": "f1::"}, "close"], ["publish", 2], ["failed", 3]]
    assert history(tmp_path, a=failed).allowed({}, None, False) == {}
    with pytest.raises(ValueError, match=f"{stray} at 4 belongs to no operation"):
        history(tmp_path, a=[*failed, [stray, 4]])


def test_a_writer_that_misses_an_evicted_file_says_nothing_about_what_it_wrote_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SUICIDE", 0.0)
    (tmp_path / "w0").mkdir()
    journal = tmp_path / "journal"
    writer = worker.Writer(tmp_path, journal, 0, "seed", {}, evicting=True)
    content = body(7, 5000)
    data = header(0, 7, content) + content
    entry = worker.Entry(7, 0o644, "")
    writer.perform({"w0/n0": entry}, "close", lambda: writer.by_close("w0/n0", data))
    writer.look()
    (tmp_path / "w0" / "n0").unlink()
    writer.look()
    assert read_history([journal]).allowed({}, None, True) == {"w0/n0": {"f7:644:", None}}
    with pytest.raises(Refused):
        writer.unlink()
    told = read_history([journal])
    assert [one.failed for one in told.operations] == [False, True]
    assert told.allowed({}, None, False) == {"w0/n0": {"f7:644:"}}


def test_names_that_are_wrong_lost_or_made_by_nobody_are_findings() -> None:
    compare({"a": "f1::"}, {"a": {"f1::", None}, "b": {None}})
    for found in ({"a": "f2::"}, {}, {"a": "f1::", "c": "d"}):
        with pytest.raises(Finding):
            compare(found, {"a": {"f1::"}})


def test_an_object_is_known_by_its_bytes_and_any_other_bytes_are_not_whole() -> None:
    content = body(7, 5000)
    data = header(3, 7, content) + content
    assert identify(data) == (3, 7)
    mixed = bytearray(data)
    mixed[1024:1536] = body(8, 5000)[:512]
    for wrong in (b"", data[:-1], data + b"\0", bytes(mixed), data[:100], bytes(len(data))):
        with pytest.raises(NotWhole):
            identify(wrong)
