"""Imports LMCache once, then forks for every line of words on stdin and runs `lmcache` with them in the child."""

from __future__ import annotations

import io
import json
import os
import sys
import traceback

import lmcache.v1.distributed.l2_adapters
import lmcache.v1.distributed.l2_adapters.raw_block_l2_adapter  # noqa: F401 - imported before the fork, for its time
from lmcache.cli.main import main


def run(words: list[str]) -> int:
    """In the child: the exit code."""
    try:
        main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    # The other end looks at the daemon's accounts when a line says that an operation begins.
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = run(json.loads(line))
            sys.stdout.flush()
            os._exit(code)
        print(f"ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
