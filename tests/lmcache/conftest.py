"""LMCache's own clients for the tests here. Only test_keys.py and test_config.py do without them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from lab.harness.lmcache.driver import Worker

HERE = Path(__file__).parent

OLD_VERSION = "0.5.5"
WITHOUT_LMCACHE = {"test_keys.py", "test_config.py"}


def _missing() -> str:
    """Why LMCache's clients can't be driven here; empty when they can."""
    for distribution in ("lmcache", "torch"):
        try:
            metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return f"{distribution} is not installed (tools/test installs it; so does pip install 'hcfs[lmcache]')"
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without LMCache one item is skipped for all of them, so that the reason is said once."""
    reason = _missing()
    cannot = [item for item in items if item.path.parent == HERE and item.path.name not in WITHOUT_LMCACHE]
    if not reason or not cannot:
        return
    cannot[0].add_marker(pytest.mark.skip(reason=f"this test and {len(cannot) - 1} others beside it: {reason}"))
    config.hook.pytest_deselected(items=cannot[1:])
    items[:] = [item for item in items if item not in cannot[1:]]


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """A process with the installed LMCache."""
    process = Worker()
    yield process
    process.close()


@pytest.fixture
def make_worker() -> Iterator[Callable[[], Worker]]:
    """`make_worker()`: one more process with the installed LMCache; one that the test killed is left alone."""
    made: list[Worker] = []

    def make() -> Worker:
        made.append(Worker())
        return made[-1]

    yield make
    for process in made:
        process.close()


@pytest.fixture(scope="session")
def old_worker(pytestconfig: pytest.Config) -> Iterator[Worker]:
    """A process with LMCache 0.5.5, kept in pytest's cache directory and put before the installed version."""
    process = Worker(_old_packages(pytestconfig.cache.mkdir("lmcache")))
    yield process
    process.close()


def _old_packages(directory: Path) -> Path:
    packages = directory / OLD_VERSION
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several pytest processes may want to install it
        if not packages.exists():
            unfinished = packages.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1"]
            command = [*pip, f"lmcache=={OLD_VERSION}", "--target", str(unfinished)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=150)
            if result.returncode != 0:
                last = (result.stderr.strip() or "pip said nothing").splitlines()[-1]
                pytest.skip(f"LMCache {OLD_VERSION} can't be installed beside the other version here: {last}")
            os.rename(unfinished, packages)
    return packages


@pytest.fixture(params=["plain", "hcfs"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory for chunks: on the file system under tmp_path, where LMCache surely works, and on hcfs."""
    if request.param == "hcfs":
        return request.getfixturevalue("kv")
    directory = tmp_path / "kv"
    directory.mkdir()
    return directory
