"""Which of a bucket's keys are files, where the library can't tell: it drops a slash at a key's end.

So an empty folder's mark `e/` is listed as an empty object `e`, and `g/` beside `g` as a second `g`. What is listed so
is asked for by its name: only a key without that slash answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from hcfs.origin.client import Listed
from hcfs.origin.errors import NotAtOrigin, OriginRefused

ASKED_AT_ONCE = 16

Head = Callable[[str], Listed]
"""What an origin has under just this key. NotAtOrigin, OriginError."""

TWICE = "the origin lists it twice, and can't say which of the two it is; rename one of them there"


class Marks:
    """What was found is kept, so that a later listing asks only for what is new."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._known: dict[tuple[Listed, ...], Listed] = {}

    def begin(self) -> Sorting:
        """For a listing."""
        return Sorting(self)

    def resolved(self, groups: list[tuple[Listed, ...]]) -> list[Listed]:
        """What each of these entries, which have one key, stands for: a file, a mark with its slash, or what is
        refused. Blocks. OriginError when the origin doesn't answer."""
        known = {group: self._known[group] for group in groups if group in self._known}
        unknown = [group for group in groups if group not in known]
        if unknown:
            with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(unknown)), "hcfs-origin-marks") as threads:
                known |= zip(unknown, threads.map(self._one, unknown), strict=True)
        self._known = {group: found for group, found in known.items() if not found.refused}
        return [known[group] for group in groups]

    def _one(self, group: tuple[Listed, ...]) -> Listed:
        first = group[0]
        try:
            found = self._head(first.key)
        except NotAtOrigin:
            if len(group) == 1:
                return Listed(f"{first.key}/", 0, first.mtime_ns, "")
        except OriginRefused as error:
            return Listed(first.key, 0, 0, "", refused=str(error))
        else:
            same = [each for each in group if (each.size, each.etag) == (found.size, found.etag)]
            if same:
                return next((each for each in same if each.mtime_ns // 10**9 == found.mtime_ns // 10**9), same[0])
            if len(group) == 1:
                return found
        return Listed(first.key, 0, 0, "", refused=TWICE)


class Sorting:
    """One listing, on its way."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._files: dict[str, Listed] = {}
        self._doubtful: dict[str, list[Listed]] = {}

    def certain(self, page: Iterable[Listed]) -> list[Listed]:
        """Those of a page that are files, unless one of them comes again: then `rest` has it, and that counts."""
        found = []
        for each in page:
            key = each.key
            former = self._files.get(key)
            if key in self._doubtful:
                self._doubtful[key].append(each)
            elif former is not None:
                self._doubtful[key] = [former, each]
            elif not each.size:
                self._doubtful[key] = [each]
            else:
                self._files[key] = each
                found.append(each)
        return found

    def rest(self) -> list[Listed]:
        """All others. Blocks. OriginError when the origin doesn't answer."""
        return self._marks.resolved([tuple(group) for group in self._doubtful.values()])
