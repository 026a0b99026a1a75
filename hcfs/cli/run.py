"""From a command's end to an exit code and, when it failed, to one sentence on stderr."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import click

from hcfs.cli.commands import group
from hcfs.errors import HcfsError

FAILED, INTERRUPTED = 1, 130
FSCK_COULD_NOT_RUN = 8


def run(args: Sequence[str]) -> int:
    """Run one command line. Returns the exit code: 0 done, 1 failed, 2 wrong usage; fsck has its own."""
    code, ended = _run(args)
    # Of fsck's codes, 1 says that errors were repaired.
    return FSCK_COULD_NOT_RUN if not ended and list(args[:1]) == ["fsck"] else code


def _run(args: Sequence[str]) -> tuple[int, bool]:
    """The exit code, and whether the command came to its own end."""
    try:
        result = group.main(args=list(args), prog_name="hcfs", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code, False
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "hcfs"
        _say(f"{path}: {_sentence(error.format_message())} See {path} --help.")
        return error.exit_code, False
    except (click.Abort, KeyboardInterrupt):
        _say("hcfs: interrupted.")
        return INTERRUPTED, False
    except click.ClickException as error:
        _say(f"hcfs: {_sentence(error.format_message())}")
        return error.exit_code, False
    except HcfsError as error:
        if _debugging():
            traceback.print_exc()
        _say(f"hcfs: {_sentence(str(error))}")
        return error.exit_code, False
    except BrokenPipeError:
        # The reader of our output has left (`hcfs keys ... | head`). Nothing more can be said there, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED, False
    except OSError as error:
        if error.errno is None or error.filename is None:
            return _bug(error), False
        if _debugging():
            traceback.print_exc()
        _say(f"hcfs: {os.fsdecode(error.filename)}: {_sentence(os.strerror(error.errno))}")
        return FAILED, False
    except Exception as error:
        return _bug(error), False
    return (result if isinstance(result, int) else 0), True


def _bug(error: Exception) -> int:
    if _debugging():
        traceback.print_exc()
        return FAILED
    with tempfile.NamedTemporaryFile("w", prefix="hcfs-error-", suffix=".log", delete=False) as log:
        print("hcfs", *sys.argv[1:], file=log)
        traceback.print_exception(error, file=log)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    _say(f"hcfs: a bug in hcfs ended this command ({what}); please report it with {log.name}, which has the details.")
    return FAILED


def _debugging() -> bool:
    return os.environ.get("HCFS_DEBUG") == "1"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "?", "!")) else text + "."


def _say(text: str) -> None:
    print(text, file=sys.stderr)
