"""The hcfs command as users call it: a process, its exit code, its two streams."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def hcfs(
    *args: str | Path,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m hcfs ARGS` with no terminal and return it with stdout and stderr as text.

    `env` is added to the caller's environment. With `check` an exit code other than 0 fails the test, which then shows
    both streams.
    """
    command = [sys.executable, "-m", "hcfs", *(str(arg) for arg in args)]
    process = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **env} if env else None,
        timeout=timeout,
    )
    if check and process.returncode != 0:
        said = f"stdout: {process.stdout}\nstderr: {process.stderr}"
        raise AssertionError(f"hcfs {' '.join(command[3:])} exited with {process.returncode}\n{said}")
    return process
