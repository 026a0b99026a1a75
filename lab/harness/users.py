"""The hcfs command as a user who may nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NOBODY = 65534

# This checkout and its Python may be root's alone: everything is loaded before the user is changed.
_PROGRAM = f"""
import importlib, os, sys
from hcfs.cli import commands, run
for name in {{*commands._MODULES.values(), "hcfs.daemon.daemon", "hcfs.daemon.options"}}:
    importlib.import_module(name)
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.chdir("/")
sys.exit(run.run(sys.argv[1:]))
"""


def hcfs_as_nobody(*args: str | Path) -> tuple[int, str]:
    """Run `hcfs ARGS` as nobody: its exit code, and what it said on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr
