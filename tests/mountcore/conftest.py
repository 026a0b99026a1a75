"""A filesystem without a mount, and clients of it: this process, another living one, and one that can't be seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mountcore.kernel import Process, Rig, other_process


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.fs.close()
    rig.usage_is_whole()


@pytest.fixture
def me(rig: Rig) -> Process:
    return rig.proc()


@pytest.fixture
def other(rig: Rig) -> Iterator[Process]:
    with other_process() as process:
        yield rig.proc(process.pid)


@pytest.fixture
def unseen(rig: Rig) -> Process:
    return rig.proc(0)
