"""A writer of the torture tool: changes its own tree and shared names, and notes each step before it takes it.

Run as python -m lab.torture.worker DIRECTORY JOURNAL TREE SEED BEFORE EVICTING, where BEFORE is a file with what the
tree holds (JSON, see lab.torture.journal) and EVICTING is 1 where files may go by themselves. It ends with 0 when told
to (SIGUSR1), 3 when the mount is gone, and 1, saying why, when a call fails that mustn't. It also kills itself now and
then, between two system calls of an operation.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from lab.torture.calls import Refused, gone, read_file
from lab.torture.files import Files
from lab.torture.journal import Journal, Tree
from lab.torture.objects import body, header

NAMES = [f"n{number}" for number in range(8)]
DIRECTORIES = ["d0", "d1", "d0/e"]
SHARED = [f"shared/s{number}" for number in range(6)]
SUICIDE = 0.004
"""Chance of each place where a writer may end itself."""


class Entry:
    """A file of the tree; hard links share one."""

    def __init__(self, number: int, mode: int, tag: str) -> None:
        self.number = number
        self.mode = mode
        self.tag = tag

    def __str__(self) -> str:
        return f"f{self.number}:{self.mode:o}:{self.tag}"


class Writer(Files):
    """One process's work. `tree` is what it knows to be there: a file's Entry, or `d`, or `l` and a target."""

    def __init__(self, directory: Path, journal: Path, number: int, seed: str, before: Tree, evicting: bool) -> None:
        super().__init__(directory, random.Random(seed))
        self.journal = Journal(journal)
        self.number = number
        self.own = f"w{number}"
        self.evicting = evicting
        self.stopping = False
        self.tree: dict[str, Entry | str] = {}
        self.serial = self.chance.randrange(1, 1 << 40) << 16
        by_inode: dict[int, Entry] = {}
        for path, value in before.items():
            if value is None:
                continue
            if not value.startswith("f"):
                self.tree[path] = value
                continue
            identity, mode, tag = value[1:].split(":")
            try:
                inode = os.lstat(self.directory / path).st_ino
            except FileNotFoundError:
                if not evicting:
                    raise
                continue
            self.tree[path] = by_inode.setdefault(inode, Entry(int(identity), int(mode, 8), tag))

    # --- the bookkeeping of an operation ------------------------------------------------------------------------------

    def maybe_die(self) -> None:
        """As a crash of the program would."""
        if self.chance.random() < SUICIDE:
            os.kill(os.getpid(), signal.SIGKILL)

    def publishing(self) -> None:
        """The next call may make the change visible."""
        self.maybe_die()
        self.journal.note("publish")

    def perform(self, outcome: dict[str, Entry | str | None], way: str, work: Callable[[], None]) -> None:
        """Note an operation, do it, and remember its outcome. Refused, and noted, when it failed as it may."""
        self.journal.intend({path: None if value is None else str(value) for path, value in outcome.items()}, way)
        try:
            work()
        except Refused:
            self.journal.note("failed")
            raise
        except OSError as error:
            if self.evicting and error.errno in (errno.ENOENT, errno.ENOSPC, errno.EEXIST) and not gone(self.directory):
                self.journal.note("failed")
                raise Refused from error
            raise
        self.journal.note("done")
        for path, value in outcome.items():
            if value is None:
                self.tree.pop(path, None)
            else:
                self.tree[path] = value

    def fresh(self) -> tuple[int, bytes]:
        """A new object, header and all."""
        self.serial += 1
        length = self.chance.choice([0, 1, 3584, 50_000, 262_144, 300_001, 1_200_000])
        content = body(self.serial, length)
        return self.serial, header(self.number, self.serial, content) + content

    # --- choices ------------------------------------------------------------------------------------------------------

    def paths(self, kind: str) -> list[str]:
        """Known paths of the own tree: files, links or directories."""
        return sorted(
            path
            for path, value in self.tree.items()
            if path.startswith(self.own + "/") and (kind == "file") == isinstance(value, Entry)
            if kind == "file" or str(value)[:1] == kind[:1]
        )

    def target(self) -> str | None:
        """A path for a file in a directory that is there; None where something else is in the way."""
        directories = [self.own, *self.paths("directory")]
        path = f"{self.chance.choice(directories)}/{self.chance.choice(NAMES)}"
        return None if isinstance(self.tree.get(path), str) else path

    def entry(self, path: str, number: int, *, kept: bool) -> Entry:
        """The file that a path will name. kept: its attributes stay, since the name is written and not replaced."""
        old = self.tree.get(path)
        if kept and isinstance(old, Entry) and not self.evicting:
            return Entry(number, old.mode, old.tag)
        return Entry(number, 0o644, "")

    # --- operations ---------------------------------------------------------------------------------------------------

    def store(self) -> None:
        """A whole new content, by a temporary name or by close, new or over what is there."""
        path = self.target()
        if path is None:
            return
        number, data = self.fresh()
        if self.chance.random() < 0.6:
            entry = self.entry(path, number, kept=False)
            if not self.evicting and self.chance.random() < 0.3:
                entry.tag, entry.mode = f"t{number}", self.chance.choice([0o600, 0o640, 0o644])
            self.perform({path: entry}, "rename", lambda: self.by_rename(path, data, entry.mode, entry.tag))
        else:
            entry = self.entry(path, number, kept=True)
            self.perform({path: entry}, "close", lambda: self.by_close(path, data))

    def store_new(self) -> None:
        """A new content that replaces nothing: by link, or with O_EXCL."""
        path = self.target()
        if path is None or path in self.tree:
            return
        number, data = self.fresh()
        entry = Entry(number, 0o644, "")
        if self.chance.random() < 0.5:
            temporary = f"{path}.tmp"
            self.perform({path: entry, temporary: entry}, "link", lambda: self.by_link(path, data))
            self.maybe_die()
            self.perform({temporary: None}, "unlink", lambda: self.call(os.unlink, temporary))
        else:
            self.perform({path: entry}, "close", lambda: self.by_close(path, data, os.O_EXCL))

    def store_shared(self) -> None:
        """As LMCache does: all writers use the same temporary name, and the last rename wins."""
        path = self.chance.choice(SHARED)
        number, data = self.fresh()
        self.perform({path: Entry(number, 0o644, "")}, "rename", lambda: self.by_rename(path, data, 0o644, ""))

    def remove_shared(self) -> None:
        """Whoever comes first."""
        path = self.chance.choice(SHARED)

        def work() -> None:
            self.publishing()
            try:
                os.unlink(self.directory / path)
            except FileNotFoundError:
                raise Refused from None

        self.perform({path: None}, "unlink", work)

    def change(self) -> None:
        """A part of a file is overwritten, cut or extended, and then its header, in one version."""
        files = self.paths("file")
        if not files:
            return
        path = self.chance.choice(files)
        self.serial += 1
        number = self.serial
        entry = self.entry(path, number, kept=True)
        self.perform({path: entry}, "close", lambda: self.in_version(path, self.number, number))

    def unlink(self) -> None:
        """A file's or symlink's name goes."""
        paths = self.paths("file") + self.paths("link")
        if paths:
            path = self.chance.choice(paths)
            self.perform({path: None}, "unlink", lambda: self.call(os.unlink, path))

    def move(self) -> None:
        """A committed file gets another name, over what is there."""
        files, target = self.paths("file"), self.target()
        if not files or target is None:
            return
        source = self.chance.choice(files)
        entry = self.tree[source]
        if source != target and self.tree.get(target) is not entry:
            self.perform({source: None, target: entry}, "rename", lambda: self.call(os.rename, source, target))

    def link(self) -> None:
        """A second name."""
        files, target = self.paths("file"), self.target()
        if files and target is not None and target not in self.tree:
            source = self.chance.choice(files)
            self.perform({target: self.tree[source]}, "link", lambda: self.call(os.link, source, target))

    def symlink(self) -> None:
        """A symlink that leads somewhere or nowhere."""
        target = self.target()
        if target is not None and target not in self.tree:
            text = self.chance.choice(NAMES)
            self.perform({target: f"l{text}"}, "symlink", lambda: self.call(os.symlink, text, target, raw=True))

    def attributes(self) -> None:
        """chmod and an extended attribute: of all names of the object."""
        files = [] if self.evicting else self.paths("file")
        if not files:
            return
        path = self.chance.choice(files)
        old = self.tree[path]
        assert isinstance(old, Entry)
        new = Entry(old.number, self.chance.choice([0o600, 0o640, 0o644]), old.tag)
        names = [name for name, value in self.tree.items() if value is old]
        self.perform(dict.fromkeys(names, new), "chmod", lambda: self.call(os.chmod, path, new.mode))
        tagged = Entry(new.number, new.mode, f"t{self.chance.randrange(1000)}")
        value = tagged.tag.encode()
        self.perform(dict.fromkeys(names, tagged), "setxattr", lambda: self.call(os.setxattr, path, "user.tag", value))

    def directories(self) -> None:
        """mkdir, rmdir, or a directory with all that is in it gets another name."""
        path = f"{self.own}/{self.chance.choice(DIRECTORIES)}"
        parent = os.path.dirname(path)
        if path not in self.tree:
            if parent == self.own or self.tree.get(parent) == "d":
                self.perform({path: "d"}, "mkdir", lambda: self.call(os.mkdir, path))
            return
        inside = [name for name in self.tree if name.startswith(path + "/")]
        other = f"{self.own}/{self.chance.choice(DIRECTORIES)}"
        if not inside and self.chance.random() < 0.5:
            self.perform({path: None}, "rmdir", lambda: self.call(os.rmdir, path))
        elif other not in self.tree and not other.startswith(path) and os.path.dirname(other) in (*self.tree, self.own):
            outcome: dict[str, Entry | str | None] = dict.fromkeys([path, *inside])
            outcome |= {other + name[len(path) :]: self.tree[name] for name in [path, *inside]}
            self.perform(outcome, "rename", lambda: self.call(os.rename, path, other))

    def sync(self) -> None:
        """Everything done so far is durable."""
        self.journal.note("sync")
        fd = os.open(self.directory / self.chance.choice([self.own, "shared", "."]), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self.journal.note("synced")

    def look(self) -> None:
        """A file of one's own reads as it was written, or is missing where files may go. Nothing is noted: it is no
        operation, and the one before it is over."""
        files = self.paths("file")
        if not files:
            return
        path = self.chance.choice(files)
        entry = self.tree[path]
        assert isinstance(entry, Entry)
        try:
            _, found = read_file(self.directory / path, self.chance)
        except FileNotFoundError:
            # Evicted, or the mount was detached: then the next operation says so.
            if self.evicting:
                return
            raise
        if found != entry.number:
            raise AssertionError(f"{path} holds object {found}, its only writer wrote {entry.number}")

    def run(self) -> None:
        """Until told to stop."""
        steps = [
            *[(self.store, 30), (self.store_new, 6), (self.store_shared, 10), (self.remove_shared, 2)],
            *[(self.change, 14), (self.unlink, 7), (self.move, 7), (self.link, 4), (self.symlink, 3)],
            *[(self.attributes, 4), (self.directories, 6), (self.sync, 5), (self.look, 10)],
        ]
        for left in [path for path in self.tree if path.endswith(".tmp")]:
            # Linked by a writer that was killed before it could remove it.
            with contextlib.suppress(Refused):  # Evicted meanwhile.
                self.perform({left: None}, "unlink", functools.partial(self.call, os.unlink, left))
        while not self.stopping:
            step = self.chance.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
            try:
                step()
            except Refused:
                self.clear_temporaries()

    def stop(self, *_: object) -> None:
        """After the operation under way."""
        self.stopping = True


def main(directory: str, journal: str, number: str, seed: str, before: str, evicting: str) -> int:
    """Work until told to stop, the mount goes, or the process is killed."""
    known: Tree = json.loads(Path(before).read_text())
    try:
        writer = Writer(Path(directory), Path(journal), int(number), seed, known, evicting == "1")
        signal.signal(signal.SIGUSR1, writer.stop)
        writer.run()
        return 0
    except OSError as error:
        if gone(Path(directory)):
            return 3
        print(f"writer {number}: {type(error).__name__}: {error}", file=sys.stderr)
    except (ValueError, AssertionError) as error:
        print(f"writer {number}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(*sys.argv[1:]))
