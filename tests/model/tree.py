"""The model: a tree of files, directories and symlinks as it should be, and what each call may answer."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

Seen = tuple[str, int, bytes, tuple[tuple[str, bytes], ...], frozenset[str], int]
"""Kind (`f`, `d`, `l`), permissions, content or target, extended attributes, all paths of the object, link count."""

NAMESPACES = ("kv", "hub")


@dataclass(eq=False)
class Node:
    """An object; hard links share one."""

    kind: str
    mode: int = 0o644
    data: bytes = b""
    xattrs: dict[str, bytes] = field(default_factory=dict)


class Tree:
    """Paths and their objects. Calls that may fail have a twin that says with which errnos, before anything changes: a
    call must succeed when there are none, and fail with one of them otherwise."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {name: Node("d", 0o755) for name in NAMESPACES}

    @classmethod
    def of(cls, seen: dict[str, Seen]) -> Tree:
        """The tree that looks so."""
        tree = cls()
        tree.nodes = {}
        for path, (kind, mode, data, xattrs, group, _) in seen.items():
            known = next((tree.nodes[other] for other in group if other in tree.nodes), None)
            tree.nodes[path] = known or Node(kind, mode, data, dict(xattrs))
        return tree

    def seen(self) -> dict[str, Seen]:
        """How it looks from outside."""
        paths: dict[int, set[str]] = {}
        for path, node in self.nodes.items():
            paths.setdefault(id(node), set()).add(path)
        return {path: self._seen(path, node, frozenset(paths[id(node)])) for path, node in self.nodes.items()}

    def _seen(self, path: str, node: Node, group: frozenset[str]) -> Seen:
        links = len(group)
        if node.kind == "d":
            links = 2 + sum(self.nodes[inside].kind == "d" for inside in self.inside(path, direct=True))
        return node.kind, node.mode, node.data, tuple(sorted(node.xattrs.items())), group, links

    def inside(self, path: str, *, direct: bool = False) -> list[str]:
        """Paths below a directory."""
        below = [other for other in self.nodes if other.startswith(path + "/")]
        return [other for other in below if "/" not in other[len(path) + 1 :]] if direct else below

    def names_of(self, node: Node) -> list[str]:
        """Every path of an object."""
        return [path for path, other in self.nodes.items() if other is node]

    # --- what calls may answer ----------------------------------------------------------------------------------------

    def walk(self, path: str) -> set[int]:
        """On the way to a path's directory."""
        parent = path.rpartition("/")[0]
        if not parent:
            return set()
        if parent not in self.nodes:
            return self.walk(parent) or {errno.ENOENT}
        return set() if self.nodes[parent].kind == "d" else {errno.ENOTDIR}

    def present(self, path: str) -> set[int]:
        """For a call that needs the path to be there."""
        return self.walk(path) or (set() if path in self.nodes else {errno.ENOENT})

    def absent(self, path: str) -> set[int]:
        """For a call that makes it."""
        return self.walk(path) or ({errno.EEXIST} if path in self.nodes else set())

    def put_errors(self, path: str) -> set[int]:
        """Publish a file, over whatever file or symlink is there."""
        found = self.walk(path)
        if "/" not in path:
            found = found | {errno.EPERM}
        elif path in self.nodes and self.nodes[path].kind == "d":
            found = found | {errno.EISDIR}
        return found

    def unlink_errors(self, path: str) -> set[int]:
        return self.present(path) or ({errno.EISDIR} if self.nodes[path].kind == "d" else set())

    def rmdir_errors(self, path: str) -> set[int]:
        if found := self.present(path):
            return found
        if self.nodes[path].kind != "d":
            return {errno.ENOTDIR}
        return {errno.ENOTEMPTY} if self.inside(path) else set()

    def link_errors(self, old: str, new: str) -> set[int]:
        found = self.present(old) | self.absent(new)
        if old in self.nodes and self.nodes[old].kind == "d":
            found |= {errno.EPERM}
        if not _same_namespace(old, new):
            found |= {errno.EXDEV}
        return found

    def rename_errors(self, old: str, new: str) -> set[int]:
        found = self.present(old) | self.walk(new)
        if not _same_namespace(old, new):
            found |= {errno.EXDEV}
        if found - {errno.EXDEV}:
            return found
        source, target = self.nodes[old], self.nodes.get(new)
        if source is target:
            return set()
        if new.startswith(old + "/"):
            found |= {errno.EINVAL}
        if old.startswith(new + "/"):
            found |= {errno.ENOTEMPTY}
        if target is not None:
            if source.kind == "d" and target.kind != "d":
                found |= {errno.ENOTDIR}
            elif source.kind != "d" and target.kind == "d":
                found |= {errno.EISDIR}
            elif target.kind == "d" and self.inside(new):
                found |= {errno.ENOTEMPTY}
        return found

    # --- changes, of calls that may be made ---------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        """Move a path, and all that is below it."""
        if self.nodes[old] is self.nodes.get(new):
            return
        moved = {new + path[len(old) :]: self.nodes[path] for path in [old, *self.inside(old)]}
        for path in [old, *self.inside(old)]:
            del self.nodes[path]
        self.nodes.pop(new, None)
        self.nodes |= moved

    def drop(self, node: Node) -> None:
        """An object goes with all its names."""
        for path in self.names_of(node):
            del self.nodes[path]


def _same_namespace(first: str, second: str) -> bool:
    return first.partition("/")[0] == second.partition("/")[0]
