"""Names that tenants and strangers choose, in everything that an administrator sees: no control byte, and nothing that
can't be seen, reaches his terminal or the log, and no line break makes a row. JSON stays exact."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mount.damage import flip

from hcfs.printable import printable
from lab.harness.actors import eventually, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.terminal import Terminal

TITLE = "\x1b]0;pwned\x07"
EVIL = f"{TITLE}\x1b[2J\nforged row\r\x9b31m\u202e\u2066\u200b\u3164\ufe0f\ufeff\u2028\x7f"
PATH = EVIL.replace("\r", "").replace("\u2028", "")
"""For what is mounted: see test_of_a_foreign_mount."""

NOT_UTF8 = os.fsdecode(b"\xff\x9b\x1b[2J\nforged row")
UNSEEN = {"\u3164", "\ufe0f", "\u115f", "\u034f", "\u2800"}


def assert_clean(text: str) -> None:
    """Nothing but lines of characters that are seen."""
    for character in text.replace("\n", ""):
        seen = character == " " or unicodedata.category(character)[0] in "LMNPS"
        assert seen, f"{character!r} in {text!r}"
    assert not UNSEEN & set(text)
    assert not re.search(r"^\s*forged", text, re.MULTILINE), text
    assert "pwned\n" not in text


def run(*words: str | Path, code: int | tuple[int, ...] = 0) -> str:
    """Its stdout; both streams are clean, byte for byte."""
    command = [sys.executable, "-m", "hcfs", *(os.fsencode(word) for word in words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    said, complaint = done.stdout.decode(), done.stderr.decode()
    assert done.returncode in (code if isinstance(code, tuple) else (code,)), complaint
    assert_clean(said)
    assert_clean(complaint)
    assert "bug" not in complaint
    if done.returncode:
        assert len(complaint.splitlines()) <= 1 or done.returncode == 1, complaint
    return said


class Place:
    """A store in a hostile image that is mounted at a hostile directory."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / f"image {PATH}"
        self.dir = directory / f"mnt {PATH}"
        self.log = directory / f"log {EVIL}"
        self.origin = directory / f"origin {EVIL}"
        self.kv = self.dir / EVIL


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.dir.mkdir()
    (place.dir / f"hidden {EVIL}").touch()
    run("mkfs", place.image, "--size", "64M", "--label", f"L{TITLE}\n")
    run("mount", place.image, place.dir, "--log", place.log, "-o", "lookup_grace=0")
    try:
        run("ns", "create", place.dir, EVIL)
        yield place
    finally:
        run("umount", place.dir)
        log = place.log.read_text(errors="surrogateescape")
        assert_clean(log)
        assert all(re.match(r"\d{4}-\d\d-\d\d |Traceback |  ", line) for line in log.splitlines()), log


def test_printable() -> None:
    """Escapes as Python's; what can be read stays; twice changes nothing."""
    assert printable("plain é 漢 'a\\b'") == "plain é 漢 'a\\b'"
    assert printable("a\x1b[2J\nb\x9b\u202e\u3164") == "a\\x1b[2J\\nb\\x9b\\u202e\\u3164"
    assert printable(NOT_UTF8) == "\\xff\\x9b\\x1b[2J\\nforged row"
    every = "".join(map(chr, range(0x110000)))
    assert_clean(printable(every))
    assert printable(printable(every)) == printable(every)


def test_of_a_mount(place: Place) -> None:
    salt = EVIL.replace("/", "")[:20]
    chunk = f"model{EVIL}@0x00000001@{'ab' * 16}@{salt}.data"
    put(place.kv / chunk, b"x" * 5000)
    (place.kv / f"dir {EVIL}").mkdir()
    content = os.urandom(8000)
    put(place.kv / f"dir {EVIL}" / f"file {EVIL}", content)
    os.setxattr(place.kv / chunk, f"user.{EVIL[:60]}", EVIL.encode())
    os.symlink(EVIL, place.kv / f"link {EVIL}")
    run("ns", "create", place.dir, NOT_UTF8)
    run("ns", "set", place.dir, EVIL, "--quota", "40M", "--salt-quota", "20M", "--staging-patterns", "*.tmp,*\x1b\n*")
    run("ns", "list", place.dir)
    for name in (EVIL, NOT_UTF8):
        run("ns", "show", place.dir, name)
    run("status", place.dir)
    run("top", place.dir, "--once", "--interval", "0.1")
    run("keys", place.dir, EVIL)
    run("lmcache-config", place.dir, EVIL)
    run("doctor", place.dir, code=(0, 1))
    (key,) = json.loads(run("keys", place.dir, EVIL, "--json"))
    assert (key["salt"], key["file"]) == (salt, chunk)
    assert EVIL in json.loads(run("status", place.dir, "--json"))["namespaces"]
    assert json.loads(run("ns", "show", place.dir, EVIL, "--json"))["name"] == EVIL
    with open(place.kv / f"open {EVIL}.tmp", "wb") as staged:
        staged.write(b"x")
        staged.flush()
        assert_clean((place.dir / ".hcfs" / "staged").read_text().replace("\t", " "))
        run("evict", place.dir, EVIL, "--bytes", "4K")
    flip(place.image, content, 5)
    said = run("scrub", place.dir, code=1)
    assert said.startswith("damaged: ")
    run("status", place.dir)
    for words in (
        ("status", place.dir / EVIL),
        ("status", place.dir.parent / f"absent{EVIL}"),
        ("ns", "show", place.dir, f"absent{EVIL}"),
        ("ns", "create", place.dir, EVIL),
        ("ns", "set", place.dir, EVIL, "--verify", EVIL),
        ("ns", "set", place.dir, EVIL, f"--{EVIL}"),
        ("keys", place.dir, f"absent{EVIL}"),
        ("evict", place.dir, f"absent{EVIL}", "--all"),
        ("evict", place.dir, EVIL, "--bytes", EVIL),
        ("sync", place.dir, EVIL),
        ("scrub", place.dir / f"absent{EVIL}"),
        ("umount", place.dir / f"absent{EVIL}"),
        ("mount", place.image, place.dir / f"absent{EVIL}"),
        ("mount", place.image, place.dir, "-o", EVIL),
        ("mount", place.image, place.dir.parent, "--log", place.dir / EVIL / "x" / EVIL),
        ("mkfs", place.image, "--force"),
        (EVIL,),
    ):
        run(*words, code=(1, 2))
    run("ns", "rm", place.dir, EVIL, code=1)
    run("ns", "rm", place.dir, EVIL, "--force")
    run("ns", "rm", place.dir, NOT_UTF8, "--force", "--wipe")


def test_of_a_log(tmp_path: Path) -> None:
    """Messages, their arguments, and tracebacks whose exceptions have names in them."""
    script = """
import logging, sys
from hcfs.daemon.logs import log_to, open_log
log_to(open_log(sys.argv[1]))
log = logging.getLogger("test")
log.warning("of %s and %r", sys.argv[2], sys.argv[2])
try:
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError(sys.argv[2])
except ValueError:
    log.exception("failed: %s", sys.argv[2])
"""
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", script, log, f"{EVIL}\n2026-01-01 forged"], check=True)
    first, second, head, *lines = log.read_text().rstrip("\n").split("\n")
    assert_clean(f"{first}\n{second}\n{head}")
    assert (" of \\x1b]0;" in first, "failed: \\x1b]0;" in second) == (True, True)
    assert head.startswith("Traceback ")
    assert all(line.startswith("  ") for line in lines)  # an exception's own lines are no rows of the log
    assert_clean("".join(lines))
    assert any(line.startswith("  ValueError: \\x1b]0;") for line in lines)


def test_of_a_foreign_mount(tmp_path: Path, make_mount: Callable[..., Mount]) -> None:
    """The kernel's table of mounts, which everybody's mounts are in, escapes line feeds alone: a carriage return or a
    separator of lines makes no row of it, which might be a mount of hcfs or no row at all."""
    mount = make_mount(size="64M")
    directory = tmp_path / "a\r1 2 0:99 / /forged rw - fuse.hcfs \u2028 \x85 \x1c"
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", directory], check=True)
    try:
        said = (run("status", mount.dir), run("doctor", mount.dir, code=(0, 1)))
    finally:
        subprocess.run(["umount", directory], check=True)
    assert all("/forged rw" not in each for each in said)


def test_of_a_device(place: Place, tmp_path: Path) -> None:
    put(place.kv / f"file {EVIL}", b"x" * 5000)
    os.setxattr(place.kv / f"file {EVIL}", f"user.{EVIL[:60]}", EVIL.encode())
    os.symlink(EVIL, place.kv / f"link {EVIL}")
    hcfs("umount", place.dir)
    try:
        run("info", place.image)
        run("fsck", place.image)
        run("fsck", place.image, "--data", "--repair")
        for what in ("superblock", "log", "objects", "extents"):
            run("inspect", place.image, what)
            json.loads(run("inspect", place.image, what, "--json"))
        run("inspect", place.image, "object", f"/{EVIL}/file {EVIL}")
        run("inspect", place.image, "object", f"/{EVIL}/link {EVIL}")
        run("inspect", place.image, "object", f"/absent{EVIL}", code=1)
        run("mkfs", place.image, code=1)
        foreign = tmp_path / f"foreign{EVIL}"
        subprocess.run(["mkfs.ext4", "-q", "-L", "\x1b[2J\nforged", foreign, "16M"], check=True)
        run("mkfs", foreign, code=1)
        run("info", foreign, code=1)
        run("fsck", foreign, code=8)
        run("mount", foreign, place.dir, code=1)
        run("info", f"LABEL=absent{EVIL}", code=(1, 2))
        run("mkfs", tmp_path / f"new{EVIL}", code=2)
    finally:
        run("mount", place.image, place.dir, "--log", place.log)


def test_of_an_origin(place: Place) -> None:
    place.origin.mkdir()
    (place.origin / f"remote {EVIL}").write_bytes(b"x" * 100)
    url = str(place.origin)
    run("ns", "create", place.dir, f"o{EVIL}", "--origin", url, "--write-policy", "write-back", code=(0, 1, 2))
    if (place.dir / f"o{EVIL}").exists():
        run("ns", "show", place.dir, f"o{EVIL}")
        run("ns", "list", place.dir)
        (place.dir / f"o{EVIL}" / f"new {EVIL[:60]}").write_bytes(b"y")
        run("sync", place.dir, f"o{EVIL}", code=(0, 1))
        run("sync", place.dir, f"o{EVIL}", "--discard", EVIL, code=(1, 2))
        run("status", place.dir)
        run("top", place.dir, "--once", "--interval", "0.1")
        run("doctor", place.dir, code=(0, 1))
    run("ns", "create", place.dir, f"s{EVIL}", "--origin", f"s3://bucket/{EVIL}", code=(0, 1, 2))
    run("ns", "create", place.dir, f"n{EVIL}", "--origin", EVIL, code=(1, 2))


def test_of_weights(tmp_path: Path) -> None:
    path = tmp_path / f"{EVIL}.safetensors"
    head = json.dumps({f"t{EVIL}": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
    run("weights", "plan", path)
    run("weights", "load", path)
    head = json.dumps({f"t{EVIL}": {"dtype": EVIL, "shape": [8], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
    run("weights", "plan", path, code=1)
    run("weights", "plan", tmp_path / f"absent{EVIL}", code=(1, 2))


def test_of_top_on_a_terminal(place: Place) -> None:
    """What top draws is its own; what it shows isn't."""
    put(place.kv / "f", b"x" * 5000)
    terminal = Terminal("top", place.dir, "--interval", "0.2")
    try:
        terminal.until("forged row")
        eventually(lambda: terminal.process.poll() is None, "it goes on")
        terminal.press("q")
        assert terminal.end() == 0
        assert TITLE not in terminal.drawn
        assert "\x9b" not in terminal.drawn
        assert "\u202e" not in terminal.drawn
    finally:
        terminal.close()
