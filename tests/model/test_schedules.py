"""Calls of several processes beside each other, over schedules that a seed gives: the search, that the same seed is the
same schedule, and that the search sees a rule that is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from model.seeded import Finding, live
from model.together import KINDS

from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.handles.object_handle import ObjectHandle
from hcfs.filesystem.versions.estale_retries import EstaleRetries
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.store import Pin, Staged

SEED = int(os.environ.get("HCFS_MODEL_SEED", "1"))
LIVES = int(os.environ.get("HCFS_MODEL_LIVES", "0"))
"""Stores that the search makes; 0: the small number of the default suite."""


@pytest.mark.timeout(180 + 2 * LIVES)
def test_some_order_explains_what_calls_beside_each_other_answer(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + (LIVES or 25)):
        counts += live(seed).counts
    assert counts["crash"]
    assert counts["unmount"]
    if LIVES:
        with capsys.disabled():
            print(f"\nseeds from {SEED}, {LIVES} stores: {dict(counts)}")


def test_a_seed_is_a_schedule() -> None:
    """Also for another process, with other hashes and ids."""
    lives = [live(seed).digests for seed in (5, 5, 6)]
    assert lives[0] == lives[1]
    assert not set(lives[0]) & set(lives[2])
    again = subprocess.run(
        [sys.executable, "-c", "from model.seeded import live; print(*live(5).digests)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.split() == lives[0]


# --- the search sees what it looks for: each test breaks a rule on purpose --------------------------------------------


@contextmanager
def found() -> Iterator[None]:
    with pytest.raises(Finding):
        yield


def search(*kinds: str, first: int = 0) -> None:
    """first: the seed to begin with, one that finds what this test is about, as long as nothing changes what is drawn:
    then the search takes longer."""
    for seed in range(first, first + 300):
        live(seed, kinds or KINDS)


def test_it_sees_a_handle_that_does_not_pin_what_it_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ObjectHandle.__init__

    def unpinned(handle: ObjectHandle, pin: Pin, *more: Any) -> None:
        opened(handle, pin, *more)
        pin.release()

    monkeypatch.setattr(ObjectHandle, "__init__", unpinned)
    with found():
        search(first=125)


def test_it_sees_a_publishing_that_removes_the_former_file_first(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Publisher._publish

    def in_two_steps(publisher: Any, version: Any, parent: int, name: bytes, **more: Any) -> None:
        if publisher._store.lookup(parent, name) is not None:
            publisher._store.unlink(parent, name)
            publisher._store.commit()
        publish(publisher, version, parent, name, **more)

    monkeypatch.setattr(Publisher, "_publish", in_two_steps)
    with found():
        search("load", "replace", "rewrite")


def test_it_sees_a_version_that_processes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        VersionNames, "own", lambda names, parent, name, who: next(iter(names._versions.of_name(parent, name)), None)
    )
    with found():
        search()


def test_it_sees_a_killed_writer_that_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "abandon_if_killed", lambda publisher, version: None)
    with found():
        search()


def test_it_sees_an_fsync_that_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's own commits stay, those of a checkpoint, say."""
    fsync = Filesystem.fsync

    def lazily(fs: Filesystem, number: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fs.volume.store, "commit", lambda: None)
            fsync(fs, number)

    monkeypatch.setattr(Filesystem, "fsync", lazily)
    with found():
        search("replace", "sync", "load")


def test_it_sees_writes_that_are_not_held_off_while_their_file_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def beside(staged: Staged) -> Iterator[None]:
        yield

    monkeypatch.setattr(Staged, "_alone", beside)
    with found():
        search("rewrite", "edit", "truncate", first=333)


def test_it_sees_checksums_of_two_writes_in_one_granule(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def alone(staged: Staged, start: int, end: int) -> Iterator[None]:
        with staged.lock:
            staged._note_change()
        yield

    monkeypatch.setattr(Staged, "_change", alone)
    with found():
        search("replace", "rewrite", "edit", first=252)


def test_it_sees_a_version_that_nobody_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before this search: what an open was promised could be seen by other calls of its process."""
    monkeypatch.setattr(EstaleRetries, "wants_version", lambda retries, caller: True)
    with found():
        search(first=386)
