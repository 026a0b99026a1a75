"""Buckets: listing and fetching through obstore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hcfs.origin.client import Listed
from hcfs.origin.connection import OriginConnection, said_of
from hcfs.origin.errors import OriginChanged, OriginRefused
from hcfs.origin.marks import Marks, Sorting

if TYPE_CHECKING:
    from obstore import GetOptions

SILENCE_S = 10
"""Seconds without a byte after which a request has failed."""
REQUEST_S = 60
"""Seconds for one request, which fetches a piece of an object."""

CHUNK = 256 << 10
"""Least bytes handed on at once; obstore's threads hold about as many more."""


class ObjectStoreClient:
    """OriginClient by obstore."""

    def __init__(self, url: str) -> None:
        """As OriginConnection's. Nothing is asked yet."""
        self._connection = OriginConnection(url, silence_s=SILENCE_S, request_s=REQUEST_S)
        self._marks = Marks(self._head)

    @property
    def problem(self) -> str | None:
        """Why nothing can be asked, where that is known already; None where it can be tried."""
        return self._connection.problem

    def list(self) -> Iterator[list[Listed]]:
        sorting = self._marks.begin()
        with self._connection.told(""):
            store = self._connection.store()
            from obstore.exceptions import InvalidPathError

            try:
                for page in store.list(chunk_size=1000):
                    yield sorting.certain(_listed(meta) for meta in page)
            except InvalidPathError:
                sorting = self._marks.begin()
                yield from _by_levels(self._connection, sorting)
        yield sorting.rest()

    def fetch(self, listed: Listed, start: int, end: int) -> Iterator[memoryview]:
        connection = self._connection
        if not listed.etag.isprintable():
            # It would go into a header, and the library panics at it there.
            raise OriginRefused(
                f"{connection.where(listed.key)} can't be asked for: its ETag {listed.etag!r} has a control character"
            )
        options: GetOptions = {"range": (start, end)} if start < end else {}
        if listed.etag:
            options["if_match"] = listed.etag
        with connection.told(listed.key):
            import obstore

            result = obstore.get(connection.store(), listed.key, options=options)
            meta = result.meta
            if meta["size"] != listed.size or (listed.etag and meta["e_tag"] not in (None, listed.etag)):
                raise OriginChanged(f"{connection.where(listed.key)} has changed since it was listed")
            yield memoryview(b"")
            for chunk in result.stream(min_chunk_size=CHUNK):
                yield memoryview(chunk).cast("B")

    def _head(self, key: str) -> Listed:
        import obstore

        with self._connection.told(key):
            return _listed(obstore.head(self._connection.store(), key))


def _by_levels(connection: OriginConnection, sorting: Sorting) -> Iterator[list[Listed]]:
    """A listing with a request for each directory: the library refuses a whole answer for one key in it that it
    can't name, as `x//y`, and so only the directory with that key is refused."""
    import obstore
    from obstore.exceptions import InvalidPathError

    todo = [""]
    files: set[str] = set()
    while todo:
        directory = todo.pop()
        try:
            level = obstore.list_with_delimiter(connection.store(), directory or None)
        except InvalidPathError as error:
            if not directory:
                raise
            yield [Listed(directory, 0, 0, "", refused=said_of(error))]
            continue
        page = [_listed(meta) for meta in level["objects"]]
        files.update(each.key for each in page)
        todo.extend(level["common_prefixes"])
        empty = directory and directory not in files and not page and not level["common_prefixes"]
        yield [Listed(f"{directory}/", 0, 0, "")] if empty else sorting.certain(page)


def _listed(meta: Any) -> Listed:
    """An ETag is in quotes, as in the header of a fetch's answer, to be compared with that: some servers list it
    without them."""
    mtime_ns = int(meta["last_modified"].timestamp() * 1_000_000) * 1000
    etag = meta["e_tag"] or ""
    if etag and not etag.endswith('"'):
        etag = f'"{etag}"'
    return Listed(meta["path"], meta["size"], mtime_ns, etag)
