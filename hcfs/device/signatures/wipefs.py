"""Signatures that util-linux's wipefs knows."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess

from hcfs.device.signatures.signature import Signature

log = logging.getLogger(__name__)

TIMEOUT_S = 60
"""Longer than a drive takes to give up on a bad sector."""

# A user's PATH often lacks the administrator's directories.
_SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def ask_wipefs(path: str) -> list[Signature]:
    """What `wipefs --json PATH` lists; nothing where it is absent, too old for --json, or fails."""
    program = shutil.which("wipefs", path=_SEARCH_PATH)
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, "--json", "--", path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=True,
        ).stdout
        # It prints nothing at all for a medium without signatures.
        listed = json.loads(answer)["signatures"] if answer.strip() else []
        return [Signature(int(entry["offset"], 16), entry["type"], entry.get("label") or None) for entry in listed]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        log.debug("%s %s: %s", program, path, error)
        return []
