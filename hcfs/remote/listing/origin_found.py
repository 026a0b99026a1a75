"""What a listing of an origin amounts to: files, directories, and what is refused, by their paths."""

from __future__ import annotations

from hcfs.origin import Access, Listed
from hcfs.remote.listing.remote import split_key

Path = tuple[bytes, ...]


SIZE_END = 1 << 63
"""Of sizes that the kernel knows."""


def _problem_of_size(size: int) -> str:
    return "" if 0 <= size < SIZE_END else f"no file can have the {size} bytes that it is listed with"


class Found:
    """Filled by `add`, page by page; it counts once it is settled."""

    def __init__(self) -> None:
        self.files: dict[Path, Listed] = {}
        self.directories: dict[Path, Access] = {}
        """Who may do what in directories of an origin that has such rights."""
        self.marks: set[Path] = set()
        """Empty folders, which are directories though nothing is in them."""
        self.refused: dict[Path, str] = {}
        """Where something is of which nothing can be had, and why."""
        self.unfit = 0
        """Keys that no path stands for."""

    def __len__(self) -> int:
        return len(self.files) + len(self.marks) + len(self.refused)

    def add(self, listed: Listed) -> None:
        """An entry of the listing. What comes last of a path counts."""
        parts = split_key(listed.key.removesuffix("/"))
        if parts is None:
            self.unfit += 1
            return
        path = tuple(parts)
        self.files.pop(path, None)
        refused = listed.refused or _problem_of_size(listed.size)
        if refused:
            self.refused[path] = refused
        elif not listed.is_directory:
            self.files[path] = listed
        elif listed.access is None:
            self.marks.add(path)
        else:
            self.directories[path] = listed.access

    def settle(self) -> None:
        """A key that others go on below is a directory, and not a file: of the two, it is the one that more depend
        on."""
        for path in [*self.files, *self.marks, *self.refused]:
            for depth in range(1, len(path)):
                self.refused.pop(path[:depth], None)
                if self.files.pop(path[:depth], None) is not None:
                    self.unfit += 1
