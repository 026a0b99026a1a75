"""What administrators and damage do to a tree: rules of the machines that have a whole filesystem."""

from __future__ import annotations

import stat
import time
from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import rule
from model.machine import Target, TreeMachine, picks
from model.tree import NAMESPACES, Node


class AdministeredTarget(Target, Protocol):
    def evict(self, namespace: str) -> int:
        """All that can go; how many went."""
        ...

    def damage(self, path: str, scrub: bool) -> None:
        """Flip the file's first byte on the medium, and have it found."""
        ...


class AdministeredMachine(TreeMachine):
    """The shared rules, eviction by an administrator, and damage that is met."""

    target: AdministeredTarget

    def new_mode(self, path: str) -> int:
        """A whole filesystem has setgid inherited."""
        above = self.model.nodes.get(path.rpartition("/")[0])
        return super().new_mode(path) | (stat.S_ISGID & above.mode if above is not None else 0)

    def in_use(self) -> list[Node]:
        return [*self.held.values(), *(writer.base for writer in self.writers.values() if writer.base is not None)]

    @rule(namespace=st.sampled_from(NAMESPACES))
    def evict(self, namespace: str) -> None:
        """All files but those that somebody has open, or goes on from: each whole, with all its names, and for good."""
        files = {
            id(node): node
            for path, node in self.model.nodes.items()
            if node.kind == "f" and path.startswith(namespace + "/")
        }
        stay = {id(node) for node in self.in_use()}
        deadline = time.monotonic() + 20
        while True:
            gone = self.target.evict(namespace)
            found = self.target.tree()
            went = [node for node in files.values() if not any(path in found for path in self.model.names_of(node))]
            assert gone == len(went)
            for node in went:
                assert id(node) not in {id(held) for held in self.held.values()}
                del files[id(node)]
                self.model.drop(node)
            # RELEASE comes after close: what was just looked at may be pinned for a moment.
            if files.keys() <= stay:
                break
            assert time.monotonic() < deadline, "files that nobody uses stay"
        # Where nothing could go, nothing was made durable.
        self.target.sync()
        self.states = [self.model.seen()]

    @rule(pick=picks, scrub=st.booleans())
    def quarantine(self, pick: int, scrub: bool) -> None:
        """A flipped byte, met by a reader or by a scrub: a miss for everybody, by every name."""
        node = self.model.nodes.get(path := self.some(pick, "f"))
        if node is None or node.kind != "f" or not node.data or any(node is used for used in self.in_use()):
            return
        self.target.damage(path, scrub)
        self.model.drop(node)
        self.target.sync()
        self.states = [self.model.seen()]
