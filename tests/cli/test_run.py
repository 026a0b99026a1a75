"""Exit codes and the one sentence on stderr, whatever ends a command."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hcfs import __version__
from hcfs.cli import commands, run
from hcfs.errors import HcfsError, UsageError
from lab.harness.cli import hcfs


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """`hcfs status` raises what the test puts in here."""
    raised: dict[str, BaseException] = {}

    @click.command()
    def command() -> None:
        raise raised["error"]

    monkeypatch.setattr(commands.Commands, "get_command", lambda self, ctx, name: command)
    return raised


def test_version() -> None:
    assert hcfs("--version").stdout == f"hcfs {__version__}\n"


def test_the_installed_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("hcfs")
    assert subprocess.run([script, "--version"], check=True, capture_output=True, text=True).stdout.startswith("hcfs ")


def test_help_names_every_command() -> None:
    text = hcfs("--help").stdout
    names = ["mkfs", "mount", "umount", "info", "status", "ns", "fsck", "inspect", "keys", "lmcache-config"]
    assert all(f"\n  {name} " in text for name in names)


@pytest.mark.parametrize("words", [["nonsense"], ["mkfs"], ["mkfs", "x", "--nonsense"], ["mkfs", "x", "--size", "12Q"]])
def test_wrong_usage_is_one_sentence_and_2(words: list[str]) -> None:
    result = hcfs(*words, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("hcfs")
    assert line.endswith("--help.")


@pytest.mark.parametrize("size", ["12Q", "-1", "1.5G", "", "K", "1KB", "0x10"])
def test_what_is_no_size(size: str) -> None:
    result = hcfs("mkfs", "x.img", f"--size={size}", check=False)
    assert result.returncode == 2
    assert "it isn't a size; give one such as 64M or 1G" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (HcfsError("/dev/x is gone; plug it in"), 1, "hcfs: /dev/x is gone; plug it in.\n"),
        (UsageError("a is not b: give c"), 2, "hcfs: a is not b: give c.\n"),
        (OSError(errno.EACCES, "?", "/x/y"), 1, "hcfs: /x/y: Permission denied.\n"),
        (KeyboardInterrupt(), 130, "\nhcfs: interrupted.\n"),  # the terminal shows ^C before it
    ],
)
def test_errors_that_are_not_bugs(
    failing: dict[str, BaseException], capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    failing["error"] = error
    assert run.run(["status"]) == code
    assert capsys.readouterr().err == said


def test_a_bug_is_a_sentence_and_a_file(
    failing: dict[str, BaseException],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing["error"] = KeyError("granule")
    assert run.run(["status"]) == 1
    (log,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "KeyError: 'granule'" in said
    assert str(log) in said
    assert "Traceback" in log.read_text()


def test_debugging_shows_the_traceback(
    failing: dict[str, BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCFS_DEBUG", "1")
    failing["error"] = KeyError("granule")
    assert run.run(["status"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_is_not_a_bug() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stdout:
        result = subprocess.run(
            [sys.executable, "-m", "hcfs", "--help"], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/dev/x", "/mnt", "-o", "ro"], "mount"),
        (["UUID=1", "/mnt"], "mount"),
        (["LABEL=a", "/mnt", "-o", "rw,dev,suid"], "mount"),
        (["statsu", "/mnt"], None),
        (["status", "/mnt"], "status"),
    ],
)
def test_a_source_without_a_command_mounts(
    monkeypatch: pytest.MonkeyPatch, words: list[str], command: str | None
) -> None:
    called = []

    def get_command(self: click.Group, ctx: click.Context, name: str) -> click.Command | None:
        if name not in ("mount", "status"):
            return None
        return click.Command(
            name,
            {"ignore_unknown_options": True},
            callback=lambda words: called.append(name),
            params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        )

    monkeypatch.setattr(commands.Commands, "get_command", get_command)
    assert run.run(words) == (0 if command else 2)
    assert called == ([command] if command else [])
