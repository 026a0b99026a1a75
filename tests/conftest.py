"""Fixtures: images, loop devices, mounts. What they hand out is taken back at teardown, also when the test failed."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import lab.harness.checked_locks  # noqa: F401  # hcfs.store reads what it sets
from lab.harness.cli import hcfs
from lab.harness.images import LoopDevice, create_image
from lab.harness.mounts import Mount
from lab.harness.places import Place, begin

_names = itertools.count()
_place = pytest.StashKey[Place]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Whatever this process makes is in its temporary directory or beside it in memory: taken down also when Ctrl-C or
    a kill ends it, as is what an earlier run has left."""
    begin()
    # There is no public way to it outside of a test; xdist takes this one too.
    base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    session.config.stash[_place] = Place(base)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """The files of a run that came to its end are for whoever looks at a failure; pytest removes those of old runs."""
    try:
        result = yield
    except Exception:  # as with -x; an interruption is none
        session.config.stash[_place].keep()
        raise
    session.config.stash[_place].keep()
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the fixtures of the session."""
    place = session.config.stash.get(_place, None)
    if place is not None:
        place.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, default=1, metavar="N", help="run one test in N, always the same ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """--sample: by name, so that what is added or taken away changes nothing for the others."""
    every = config.getoption("--sample")
    if every > 1:
        kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % every == 0]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


@pytest.fixture
def make_image(tmp_path: Path) -> Callable[..., Path]:
    """`make_image(size="256M")`: a sparse file of zeros."""

    def make(size: str | int = "256M") -> Path:
        return create_image(tmp_path / f"image{next(_names)}.img", size)

    return make


@pytest.fixture
def make_loop(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`make_loop(size="256M", sector=512, backing="memory")`: a /dev/loopN, detached at teardown."""
    with ExitStack() as stack:

        def make(size: str | int = "256M", sector: int = 512, backing: str = "memory") -> Path:
            loop = LoopDevice(tmp_path, size, sector, backing)
            stack.callback(loop.detach)
            return loop.path

        yield make


@pytest.fixture
def make_mount(
    tmp_path: Path, make_image: Callable[..., Path], make_loop: Callable[..., Path]
) -> Iterator[Callable[..., Mount]]:
    """`make_mount(source=None, *, size, options, mkfs, loop, allow_warnings)`: a Mount that serves.

    Without `source` it makes and formats one; a given source is mounted as it is. `mkfs` are further words for
    `hcfs mkfs`; `loop` takes a loop device instead of an image; `allow_warnings` are regular expressions for the lines
    of WARNING and above that the test expects in the daemon's log: any other such line fails the test at teardown.
    """
    with ExitStack() as stack:

        def make(
            source: Path | None = None,
            *,
            size: str | int = "256M",
            options: str = "",
            mkfs: Sequence[str] = (),
            loop: bool = False,
            allow_warnings: Sequence[str] = (),
        ) -> Mount:
            if source is None:
                source = (make_loop if loop else make_image)(size)
                hcfs("mkfs", source, *mkfs)
            mount = Mount(source, tmp_path / f"mnt{next(_names)}", options=options, allow_warnings=allow_warnings)
            stack.callback(mount.close)
            return mount.mount()

        yield make


@pytest.fixture(scope="session")
def shared_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """One mount for all tests of this worker that don't need their own; lookups protect nothing from eviction."""
    directory = tmp_path_factory.mktemp("shared")
    source = create_image(directory / "shared.img", "1G")
    hcfs("mkfs", source)
    mount = Mount(source, directory / "mnt", options="lookup_grace=0")
    try:
        yield mount.mount()
    finally:
        mount.close()


@pytest.fixture
def kv(shared_mount: Mount) -> Path:
    """A fresh namespace on the shared mount."""
    return shared_mount.ns(f"kv{next(_names)}")
