"""From a command's end to an exit code and, when it failed, to one sentence on stderr."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import click

from hcfs.cli.commands import group
from hcfs.cli.output import say
from hcfs.cli.streams import OutputLost, Streams
from hcfs.errors import HcfsError
from hcfs.printable import printable

FAILED, INTERRUPTED = 1, 130
FSCK_COULD_NOT_RUN, FSCK_INTERRUPTED = 8, 32
"""The codes of `hcfs fsck` are those of fsck(8): of them, 1 says that errors were repaired."""


def run(args: Sequence[str], streams: Streams | None = None) -> int:
    """Run one command line. Returns the exit code: 0 done, 1 failed, 2 wrong usage, 3 ended by others before its end,
    130 interrupted; fsck has its own. streams: those of this process, where they were taken over."""
    code, ended = _run(args)
    lost = None if streams is None else streams.lost()
    if ended and lost is not None:
        code, ended = _after_lost_output(lost, code)
    if ended or list(args[:1]) != ["fsck"]:
        return code
    return FSCK_INTERRUPTED if code == INTERRUPTED else FSCK_COULD_NOT_RUN


def _after_lost_output(lost: OutputLost, code: int) -> tuple[int, bool]:
    """The exit code of a command that came to its end unheard, and whether that was its own."""
    if not lost.gone:
        _say(f"hcfs: {_sentence(str(lost))}")
    return (FAILED, False) if lost.raised else (code, True)


def _run(args: Sequence[str]) -> tuple[int, bool]:
    """The exit code, and whether the command came to its own end."""
    try:
        result = group.main(args=list(args), prog_name="hcfs", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code, False
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "hcfs"
        _say(f"{path}: {_sentence(_joined(error.format_message()))} See {path} --help.")
        return error.exit_code, False
    except (click.Abort, KeyboardInterrupt):
        _say("hcfs: interrupted.")
        return INTERRUPTED, False
    except click.ClickException as error:
        _say(f"hcfs: {_sentence(_joined(error.format_message()))}")
        return error.exit_code, False
    except OutputLost as error:
        return _after_lost_output(error, FAILED)
    except HcfsError as error:
        if _debugging():
            _show(error)
        _say(f"hcfs: {_sentence(str(error))}")
        return error.exit_code, False
    except OSError as error:
        if error.errno is None or error.filename is None:
            return _bug(error), False
        if _debugging():
            _show(error)
        _say(f"hcfs: {os.fsdecode(error.filename)}: {_sentence(os.strerror(error.errno))}")
        return FAILED, False
    except SystemExit:
        raise
    except BaseException as error:  # a panic in a library isn't an Exception
        return _bug(error), False
    return (result if isinstance(result, int) else 0), True


def _bug(error: BaseException) -> int:
    if _debugging():
        _show(error)
        return FAILED
    with tempfile.NamedTemporaryFile("w", prefix="hcfs-error-", suffix=".log", delete=False) as log:
        print(printable(" ".join(["hcfs", *sys.argv[1:]])), file=log)
        traceback.print_exception(error, file=log)
    what = f"{type(error).__name__}: {error}"
    _say(f"hcfs: a bug in hcfs ended this command ({what}); please report it with {log.name}, which has the details.")
    return FAILED


def _show(error: BaseException) -> None:
    for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n"):
        _say(line)


def _debugging() -> bool:
    return os.environ.get("HCFS_DEBUG") == "1"


def _joined(text: str) -> str:
    """Without the line breaks that click puts into some of its sentences."""
    return " ".join(text.split())


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def _say(text: str) -> None:
    say(text, err=True)
