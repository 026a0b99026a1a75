"""The state machine: the same calls on the model and on what is tested, and the whole tree compared after each."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model.tree import Node, Seen, Tree

EXAMPLES = int(os.environ.get("HCFS_MODEL_EXAMPLES", "0"))
"""Runs of the machine; 0: the small number of the default suite."""
STEPS = int(os.environ.get("HCFS_MODEL_STEPS", "40"))

WRITTEN = ("kv/w1", "kv/w2")
"""Names that writers, which take their time, work on; no directory ever gets one of them."""
FILES = (*WRITTEN, "kv/a", "kv/d1/a", "kv/d1/b", "kv/d2/a", "hub/a")
DIRECTORIES = ("kv/d1", "kv/d2", "kv/d1/d2", "hub/d1")
ALL = (*FILES, *DIRECTORIES, "kv/absent/a", "kv/l")
WRITERS, READERS = 3, 3
LENGTHS = (0, 1, 4095, 4096, 65_536, 65_537, 150_000)

files = st.sampled_from(FILES)
picks = st.integers(0, 999)
"""See TreeMachine.some."""
numbers = st.integers(0, 1 << 32)
lengths = st.sampled_from(LENGTHS)
whose = st.integers(0, WRITERS - 1)


class Target(Protocol):
    """What is tested. Calls raise an exception with an errno where they are refused."""

    def tree(self) -> dict[str, Seen]: ...
    def put(self, path: str, data: bytes) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def link(self, old: str, new: str) -> None: ...
    def symlink(self, target: bytes, path: str) -> None: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def set_xattr(self, path: str, name: str, value: bytes) -> None: ...
    def remove_xattr(self, path: str, name: str) -> None: ...
    def begin(self, who: int, path: str, truncate: bool) -> None: ...
    def write(self, who: int, offset: int, data: bytes) -> None: ...
    def truncate(self, who: int, size: int) -> None: ...
    def finish(self, who: int, modified: bool) -> None: ...
    def abandon(self, who: int) -> None: ...
    def hold(self, number: int, path: str) -> None: ...
    def read_held(self, number: int) -> bytes: ...
    def release(self, number: int) -> None: ...
    def sync(self) -> None: ...
    def crash(self) -> None: ...
    def remount(self) -> None: ...
    def check(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class Writer:
    """A version that somebody works on."""

    path: str
    data: bytearray
    mode: int
    xattrs: dict[str, bytes]
    modified: bool
    base: Node | None
    """what it goes on from"""


def content(number: int, length: int) -> bytes:
    return random.Random(number).randbytes(length)


class TreeMachine(RuleBasedStateMachine):
    """Rules that the store and the mount share."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Tree()
        self.writers: dict[int, Writer] = {}
        self.held: dict[int, Node] = {}
        self.target = self.make_target()
        self.target.sync()
        self.states = [self.model.seen()]
        """what a crash may leave: the tree at the last sync, and after each step since"""

    def make_target(self) -> Target:
        raise NotImplementedError

    @initialize()
    def begin_with_some(self) -> None:
        """Two directories and files in them, so that most calls have something to work on."""
        for path in ("kv/d1", "kv/d2"):
            self.mkdir(path)
        for number, path in enumerate(("kv/a", "kv/d1/a", "kv/d2/a", "kv/w1")):
            self.put(path, number, LENGTHS[3 + number % 3])

    def new_mode(self, path: str) -> int:
        """Of a directory that is made there."""
        del path
        return 0o755

    def some(self, pick: int, kinds: str) -> str:
        """A path: mostly one that is there, of these kinds, else any that may be."""
        present = sorted(path for path, node in self.model.nodes.items() if node.kind in kinds and "/" in path)
        known = present if pick % 5 and present else ALL
        return known[pick // 5 % len(known)]

    def teardown(self) -> None:
        self.target.close()

    # --- after each step ----------------------------------------------------------------------------------------------

    @invariant()
    def same_tree(self) -> None:
        expected, found = self.model.seen(), self.target.tree()
        assert_same(found, expected)
        if expected != self.states[-1]:
            self.states.append(expected)
        self.target.check()

    def call(self, allowed: set[int], call: Callable[..., Any], *words: Any) -> bool:
        """Make a call that must succeed, or fail with one of the errnos. Whether it succeeded."""
        try:
            call(*words)
        except Exception as error:
            code = getattr(error, "errno", None)
            if code is None or code not in allowed:
                shown = {os.strerror(each) for each in allowed}
                raise AssertionError(f"{call.__name__}{words[:1]} failed: {error!r}; allowed: {shown}") from error
            return False
        assert not allowed, f"{call.__name__}{words[:1]} succeeded; expected: {[os.strerror(each) for each in allowed]}"
        return True

    # --- rules --------------------------------------------------------------------------------------------------------

    @rule(path=st.one_of(files, st.sampled_from(("top", "kv/absent/a", "kv/d1"))), number=numbers, length=lengths)
    def put(self, path: str, number: int, length: int) -> None:
        data = content(number, length)
        if self.call(self.model.put_errors(path), self.target.put, path, data):
            self.model.nodes[path] = Node("f", 0o644, data)

    @rule(path=st.sampled_from((*DIRECTORIES, "kv/a", "kv/absent/d")))
    def mkdir(self, path: str) -> None:
        if self.call(self.model.absent(path), self.target.mkdir, path):
            self.model.nodes[path] = Node("d", self.new_mode(path))

    @rule(pick=picks)
    def rmdir(self, pick: int) -> None:
        path = self.some(pick, "d")
        if self.call(self.model.rmdir_errors(path), self.target.rmdir, path):
            del self.model.nodes[path]

    @rule(pick=picks)
    def unlink(self, pick: int) -> None:
        path = self.some(pick, "fl")
        if self.call(self.model.unlink_errors(path), self.target.unlink, path):
            del self.model.nodes[path]

    @rule(pick=picks, new=files)
    def rename_file(self, pick: int, new: str) -> None:
        old = self.some(pick, "f")
        if old in self.model.nodes and self.model.nodes[old].kind == "d":
            return
        if self.call(self.model.rename_errors(old, new), self.target.rename, old, new):
            self.model.rename(old, new)

    @rule(pick=picks, new=st.sampled_from((*DIRECTORIES, "kv/a", "kv/l", "hub/a")))
    def rename(self, pick: int, new: str) -> None:
        old = self.some(pick, "ddfl")
        if self.call(self.model.rename_errors(old, new), self.target.rename, old, new):
            self.model.rename(old, new)

    @rule(pick=picks, new=files)
    def link(self, pick: int, new: str) -> None:
        old = self.some(pick, "fl")
        if self.call(self.model.link_errors(old, new), self.target.link, old, new):
            self.model.nodes[new] = self.model.nodes[old]

    @rule(path=st.sampled_from(("kv/l", "kv/d1/b")), number=st.integers(0, 9))
    def symlink(self, path: str, number: int) -> None:
        if self.call(self.model.absent(path), self.target.symlink, b"to %d" % number, path):
            self.model.nodes[path] = Node("l", 0o777, b"to %d" % number)

    @rule(pick=picks, mode=st.sampled_from((0o600, 0o644, 0o755, 0o7777)))
    def chmod(self, pick: int, mode: int) -> None:
        path = self.some(pick, "fd")
        node = self.model.nodes.get(path)
        if node is not None and node.kind == "l":
            return
        if self.call(self.model.present(path), self.target.chmod, path, mode):
            self.model.nodes[path].mode = mode

    @rule(pick=picks, name=st.sampled_from(("user.a", "user.b")), value=st.binary(max_size=8))
    def set_xattr(self, pick: int, name: str, value: bytes) -> None:
        path = self.some(pick, "fd")
        node = self.model.nodes.get(path)
        if node is not None and node.kind == "l":
            return
        if self.call(self.model.present(path), self.target.set_xattr, path, name, value):
            self.model.nodes[path].xattrs[name] = value

    @rule(pick=picks)
    def remove_xattr(self, pick: int) -> None:
        path = self.some(pick, "f")
        node = self.model.nodes.get(path)
        if node is not None and node.kind == "f" and node.xattrs:
            name = sorted(node.xattrs)[0]
            self.target.remove_xattr(path, name)
            del node.xattrs[name]

    # --- writers that take their time, and readers that hold what they opened -----------------------------------------

    @rule(who=whose, path=st.sampled_from(WRITTEN), truncate=st.booleans())
    def begin(self, who: int, path: str, truncate: bool) -> None:
        node = self.model.nodes.get(path)
        if who in self.writers or (node is not None and node.kind != "f"):
            return
        self.target.begin(who, path, truncate)
        if node is None:
            self.writers[who] = Writer(path, bytearray(), 0o644, {}, True, None)
        else:
            data = bytearray() if truncate else bytearray(node.data)
            self.writers[who] = Writer(path, data, node.mode, dict(node.xattrs), truncate and bool(node.data), node)

    @rule(who=whose, offset=st.sampled_from((0, 1, 4096, 70_000)), number=numbers, length=lengths)
    def write(self, who: int, offset: int, number: int, length: int) -> None:
        writer = self.writers.get(who)
        if writer is not None and length:
            data = content(number, length)
            self.target.write(who, offset, data)
            writer.data.extend(bytes(max(0, offset - len(writer.data))))
            writer.data[offset : offset + length] = data
            writer.modified = True

    @rule(who=whose, size=lengths)
    def truncate(self, who: int, size: int) -> None:
        writer = self.writers.get(who)
        if writer is not None:
            self.target.truncate(who, size)
            del writer.data[size:]
            writer.data.extend(bytes(size - len(writer.data)))
            writer.modified = True

    @rule(who=whose)
    def finish(self, who: int) -> None:
        """The later one wins; of one that changed nothing, nothing comes."""
        writer = self.writers.pop(who, None)
        if writer is None:
            return
        self.target.finish(who, writer.modified)
        if writer.modified:
            self.model.nodes[writer.path] = Node("f", writer.mode, bytes(writer.data), writer.xattrs)

    @rule(who=whose)
    def abandon(self, who: int) -> None:
        if self.writers.pop(who, None) is not None:
            self.target.abandon(who)

    @rule(number=st.integers(0, READERS - 1), pick=picks)
    def hold(self, number: int, pick: int) -> None:
        path = self.some(pick, "f")
        node = self.model.nodes.get(path)
        if number not in self.held and node is not None and node.kind == "f":
            self.target.hold(number, path)
            self.held[number] = node

    @rule(number=st.integers(0, READERS - 1), release=st.booleans())
    def read_held(self, number: int, release: bool) -> None:
        """Whatever became of the name meanwhile."""
        if number in self.held:
            assert self.target.read_held(number) == self.held[number].data
            if release:
                self.target.release(number)
                del self.held[number]

    # --- durability ---------------------------------------------------------------------------------------------------

    @rule()
    def sync(self) -> None:
        self.target.sync()
        self.states = [self.model.seen()]

    @rule()
    def crash(self) -> None:
        """One of the moments since the last sync is there, whole; and stays."""
        self.writers.clear()
        self.held.clear()
        self.target.crash()
        found = self.target.tree()
        if found not in self.states:
            assert_same(found, self.states[-1])
        self.model = Tree.of(found)
        self.states = [found]

    @rule()
    def remount(self) -> None:
        """Nothing is lost in order."""
        self.writers.clear()
        self.held.clear()
        self.target.remount()
        self.states = [self.model.seen()]


def assert_same(found: dict[str, Seen], expected: dict[str, Seen]) -> None:
    """Fails with what differs, contents by their length only."""
    wrong = {
        path: (_short(found.get(path)), _short(expected.get(path)))
        for path in sorted(found.keys() | expected.keys())
        if found.get(path) != expected.get(path)
    }
    assert not wrong, f"(found, expected): {wrong}"


def _short(seen: Seen | None) -> object:
    if seen is None:
        return None
    kind, mode, data, xattrs, group, links = seen
    return (
        kind,
        oct(mode),
        data if len(data) < 20 else f"{len(data)} bytes {hash(data):x}",
        xattrs,
        sorted(group),
        links,
    )
