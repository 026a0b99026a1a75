"""The hcfs command as a user who may nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hcfs.mountpoint import control_client

NOBODY = 65534

# This checkout and its Python may be root's alone: everything is loaded before the user is changed, and the script that
# talks to a control file is a copy, run by the system's Python.
_PROGRAM = f"""
import importlib, os, shutil, sys
from hcfs.cli import commands, run
for name in {{*commands._MODULES.values(), "hcfs.daemon.daemon", "hcfs.options.mount_options"}}:
    importlib.import_module(name)
from hcfs.mountpoint import control_client
control_client.__file__ = sys.argv.pop(1)
sys.executable = shutil.which("python3", path=os.defpath) or sys.executable
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.chdir("/")
sys.exit(run.run(sys.argv[1:]))
"""


def hcfs_as_nobody(*args: str | Path) -> tuple[int, str]:
    """Run `hcfs ARGS` as nobody: its exit code, and what it said on stderr."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        script = shutil.copy(control_client.__file__, place)
        os.chmod(script, 0o644)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, script, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    return done.returncode, done.stderr
