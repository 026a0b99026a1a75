"""Transactions and checkpoint pages: both say what is, so a state that has a change already may get it again."""

from __future__ import annotations

import contextlib
import random
import stat
import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcfs.store import page, page_reader
from hcfs.store.attributes import MAX_SLOT, ROOT_ID, SLOT_MASK, Extra
from hcfs.store.errors import CorruptMetadata
from hcfs.store.extents import Extent
from hcfs.store.table import ROW_BYTES, Row
from hcfs.store.transactions import MetadataIndex, Transaction, apply
from hcfs.store.tree import ROOT_SLOT

GRANULE = 4096
DIRECTORY, FILE, LINK = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777


def row(oid: int, mode: int, rng: random.Random, *, most: int = 5 * GRANULE) -> Row:
    size = rng.choice((0, 1, GRANULE, GRANULE + 1, most)) if stat.S_ISREG(mode) else 0
    granules = -(-size // GRANULE)
    extents = tuple(Extent(2 * i, 1000 + 10 * oid + 2 * i, 1) for i in range(rng.choice((0, 1, 1, 3)) if size else 0))
    extra = Extra({b"user.k": rng.randbytes(3)} if rng.random() < 0.3 else {}, b"to" if mode == LINK else None)
    time = rng.randrange(1 << 60)
    return Row(
        *(oid, mode, 1000, 100, 0, size, time, time + 1, time - 5, oid * 3, time, extents),
        *(rng.randbytes(4 * granules), extra.encode()),
    )


@dataclass
class Scene:
    """A state that changes by transactions, as the store makes them."""

    rng: random.Random
    index: MetadataIndex = field(default_factory=lambda: MetadataIndex(GRANULE))
    log: list[bytes] = field(default_factory=list)
    clock: int = 1000

    def __post_init__(self) -> None:
        self.index.put(row(ROOT_ID, DIRECTORY, self.rng))
        self.serial = 1

    def begin(self) -> Transaction:
        self.clock += 1
        return Transaction(self.index, self.clock)

    def end(self, transaction: Transaction) -> None:
        self.log.append(bytes(transaction.payload))

    def slots(self, mode: int) -> list[int]:
        table = self.index.table
        return [slot for slot in table.slots() if stat.S_IFMT(table.mode[slot]) == stat.S_IFMT(mode)]

    def step(self) -> None:
        table, tree, rng = self.index.table, self.index.tree, self.rng
        directory = rng.choice([slot for slot in self.slots(DIRECTORY) if slot == ROOT_SLOT or tree.names(slot)])
        parent, name = table.id[directory], b"name%d" % rng.randrange(4)
        named = [slot for slot in table.slots() if slot != ROOT_SLOT and tree.names(slot)]
        kind = rng.choice(
            (
                "create",
                "create",
                "create",
                "rename",
                "link",
                "unlink",
                "attributes",
                "extra",
                "touch",
                "content",
                "hide",
            )
        )
        t = self.begin()
        if kind == "create":
            self._clear(t, directory, name)
            oid = self.serial << 32 | table.take_slot()
            t.serial(self.serial + 10)
            t.put(row(oid, rng.choice((DIRECTORY, FILE, FILE, FILE, LINK)), rng))
            t.name(parent, name, oid)
            self.serial += 1
        elif not named:
            return
        else:
            slot = rng.choice(named)
            oid, names = table.id[slot], tree.names(slot)
            a = (table.flags[slot], table.atime_ns[slot], table.mtime_ns[slot])
            if kind == "rename" and not tree.is_within(directory, slot):
                if tree.lookup(directory, name) == slot:
                    return
                old = rng.choice(names)
                self._clear(t, directory, name)
                if table.slot(oid) and table.id[old[0]]:
                    t.unname(table.id[old[0]], old[1])
                    t.name(parent, name, oid)
            elif kind == "link" and not stat.S_ISDIR(table.mode[slot]) and not tree.lookup(directory, name):
                t.name(parent, name, oid)
            elif kind == "unlink":
                self._clear(t, *names[0])
            elif kind == "attributes":
                t.attributes(oid, table.mode[slot] ^ 0o22, rng.randrange(9), 7, *a[:1], 5, -6, self.clock)
            elif kind == "extra" and stat.S_ISREG(table.mode[slot]):
                t.extra(oid, Extra({b"user.x": rng.randbytes(rng.randrange(9))} if rng.random() < 0.7 else {}))
            elif kind == "touch":
                t.touch({oid: self.clock << 40, 77 << 32 | 9999: 5})
            elif kind == "content" and stat.S_ISREG(table.mode[slot]):
                t.put(row(oid, table.mode[slot], rng))
            elif kind == "hide" and stat.S_ISREG(table.mode[slot]):
                for directory_slot, own in names:
                    t.unname(table.id[directory_slot], own)
                t.attributes(oid, table.mode[slot], 1, 2, 1, *a[1:], self.clock)
        self.end(t)

    def _clear(self, t: Transaction, directory: int, name: bytes) -> None:
        """Take a name away, and what only it led to."""
        tree, table = self.index.tree, self.index.table
        slot = tree.lookup(directory, name)
        if not slot:
            return
        for child in list(tree.children.get(slot, ())):
            self._clear(t, slot, child)
        t.unname(table.id[directory], name)
        if not tree.names(slot):
            t.drop(table.id[slot])
            table.give_slot(slot)


def state_of(index: MetadataIndex, medium: bytes = b"") -> dict[str, object]:
    """All that an index says, in a form that can be compared."""
    table, tree = index.table, index.tree
    rows = {}
    for slot in table.slots():
        granules = table.granules(slot)
        crcs = table.crc[slot].to_bytes(4, "little") if granules else b""
        if granules > 1:
            at = table.table_at[slot]
            crcs = table.tables.get(slot) or medium[at : at + 4 * granules]
        columns = (
            "id",
            "mode",
            "uid",
            "gid",
            "flags",
            "size",
            "atime_ns",
            "mtime_ns",
            "ctime_ns",
            "generation",
            "last_access_ns",
        )
        values = tuple(getattr(table, name)[slot] for name in columns)
        rows[slot] = (
            *values,
            table.extents(slot),
            crcs,
            table.extra.get(slot, b""),
            sorted(tree.names(slot)),
            tree.nlink(slot),
        )
    return {
        "rows": rows,
        "children": {slot: dict(entries) for slot, entries in tree.children.items() if entries},
        "counts": (table.objects, table.variable_bytes, tree.encoded_bytes, index.checkpoint_bytes),
        "recount": recount(index),
    }


def recount(index: MetadataIndex) -> bool:
    """Whether the running totals are what the rows amount to."""
    table, tree = index.table, index.tree
    variable = names = 0
    for slot in table.slots():
        granules = table.granules(slot)
        variable += (
            16 * len(table.extents(slot)) + (4 * granules if granules > 1 else 0) + len(table.extra.get(slot, b""))
        )
        own = tree.names(slot)
        names += len(own[0][1]) if own else 0
        names += sum(len(name) + 15 for _, name in own[1:])
    assert (table.variable_bytes, tree.encoded_bytes) == (variable, names)
    assert table.objects == len(list(table.slots()))
    assert index.checkpoint_bytes == table.objects * ROW_BYTES + variable + names
    return True


seeds = pytest.mark.parametrize("seed", range(25))


@seeds
def test_replay_gives_the_same_state(seed: int) -> None:
    scene, replayed = Scene(random.Random(seed)), MetadataIndex(GRANULE)
    replayed.put(row(ROOT_ID, DIRECTORY, random.Random(seed)))
    for _ in range(60):
        scene.step()
    for payload in scene.log:
        apply(memoryview(payload), replayed)
    assert state_of(replayed) == state_of(scene.index)
    assert replayed.next_serial >= scene.serial


@seeds
def test_every_transaction_twice_is_once(seed: int) -> None:
    scene, replayed = Scene(random.Random(seed)), MetadataIndex(GRANULE)
    replayed.put(row(ROOT_ID, DIRECTORY, random.Random(seed)))
    for _ in range(60):
        scene.step()
    for payload in scene.log:
        apply(memoryview(payload), replayed)
        once = state_of(replayed)
        apply(memoryview(payload), replayed)
        assert state_of(replayed) == once
    # Also all of them again, over the state that they led to.
    for payload in scene.log:
        apply(memoryview(payload), replayed)
    assert state_of(replayed) == state_of(scene.index)


def write_pages(scene: Scene, meanwhile: int, rows: int) -> tuple[list[tuple[int, int]], bytearray]:
    """Pages of few rows each, with steps between them; (offset, length) of each payload on the medium."""
    medium, places, slot = bytearray(b"before"), [], 1
    while slot < len(scene.index.table):
        draft = page.draft(scene.index, slot)
        for _ in range(scene.rng.randrange(meanwhile + 1)):
            scene.step()
        payload, placed = draft.finish(lambda *_: b"")
        for p in placed:
            assert p.oid & SLOT_MASK == p.slot
        places.append((len(medium), len(payload)))
        medium += payload
        slot = draft.next_slot
    return places, medium


@pytest.mark.parametrize("meanwhile", [0, 1, 4])
@seeds
def test_pages_made_while_the_state_changes_are_exact_after_the_log(
    seed: int, meanwhile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(random.Random(seed))
    monkeypatch.setattr(page, "PAGE_ROWS", scene.rng.choice((1, 2, 5, 1024)))
    monkeypatch.setattr(page, "PAGE_BYTES", scene.rng.choice((1, 300, 1 << 20)))
    for _ in range(50):
        scene.step()
    scene.log.clear()
    places, medium = write_pages(scene, meanwhile, 4)
    loaded = MetadataIndex(GRANULE)
    names = page_reader.NameLoader(loaded)
    for at, length in places:
        names.add(page_reader.load(memoryview(medium)[at : at + length], at, loaded))
    names.finish()
    for payload in scene.log:
        apply(memoryview(payload), loaded)
    assert state_of(loaded, bytes(medium)) == state_of(scene.index)


def test_a_row_longer_than_a_page_has_one_of_its_own() -> None:
    index = MetadataIndex(GRANULE)
    index.put(row(ROOT_ID, DIRECTORY, random.Random(0)))
    scattered = tuple(Extent(2 * i, 10_000 + 2 * i, 1) for i in range(100_000))
    for slot, extents in ((2, ()), (3, scattered), (4, ())):
        index.put(Row(1 << 32 | slot, FILE, 0, 0, 0, 0, 1, 1, 1, 1, 1, extents, b"", b""))
    drafts = [page.draft(index, 1)]
    while drafts[-1].next_slot < len(index.table):
        drafts.append(page.draft(index, drafts[-1].next_slot))
    assert [draft.next_slot for draft in drafts] == [3, 4, 5]


# --- payloads that make no sense -----------------------------------------------------------------------------------


def fresh() -> MetadataIndex:
    index = MetadataIndex(GRANULE)
    index.put(row(ROOT_ID, DIRECTORY, random.Random(0)))
    return index


def good_payload() -> bytes:
    t = Transaction(fresh(), 5)
    t.put(row(1 << 32 | 2, FILE, random.Random(3)))
    t.name(ROOT_ID, b"name", 1 << 32 | 2)
    t.extra(1 << 32 | 2, Extra({b"user.a": b"b"}))
    t.touch({1 << 32 | 2: 9})
    t.attributes(1 << 32 | 2, FILE, 1, 1, 0, 1, 1, 1)
    t.unname(ROOT_ID, b"name")
    t.drop(1 << 32 | 2)
    return bytes(t.payload)


def test_a_payload_cut_anywhere_is_refused_or_ends_between_items() -> None:
    payload = good_payload()
    ends = 0
    for length in range(len(payload)):
        try:
            apply(memoryview(payload[:length]), fresh())
            ends += 1
        except CorruptMetadata:
            pass
    assert ends == 7, "before the first of seven items, and behind all but the last"


@given(st.binary(max_size=120))
def test_any_bytes_are_a_transaction_or_refused(data: bytes) -> None:
    with contextlib.suppress(CorruptMetadata):
        apply(memoryview(data), fresh())


@pytest.mark.parametrize(
    "items",
    [
        b"\0",
        b"\x09",
        struct.pack("<BQIIIIQqqqQQIII", 1, MAX_SLOT + 1, FILE, *[0] * 12),
        struct.pack("<BQIIIIQqqqQQIII", 1, 5, FILE, *[0] * 9, 1 << 30, 0, 0),
        struct.pack("<BQIIIIQqqqQQIII", 1, 5, FILE, *[0] * 11, 3) + b"\x09\0\0",
        struct.pack("<BQI", 6, ROOT_ID, 7) + b"\x09" + bytes(6),
        struct.pack("<BQQH", 2, ROOT_ID, ROOT_ID, 3) + b"a/b",
        struct.pack("<BQQH", 2, ROOT_ID, ROOT_ID, 0),
        struct.pack("<BQ", 8, (1 << 62) + 1),
        struct.pack("<BQIIIIQqqqQQIII", 1, 5, FILE, 0, 0, 0, GRANULE + 1, *[0] * 6, 1, 0) + bytes(4),
    ],
)
def test_items_that_make_no_sense(items: bytes) -> None:
    with pytest.raises(CorruptMetadata):
        apply(memoryview(struct.pack("<Q", 1) + items), fresh())


def test_a_page_cut_anywhere_is_refused() -> None:
    scene = Scene(random.Random(1))
    for _ in range(30):
        scene.step()
    ((at, length),), medium = write_pages(scene, 0, 1024)
    payload = bytes(medium[at : at + length])
    page_reader.load(memoryview(payload), 0, MetadataIndex(GRANULE))
    for cut in range(length):
        with pytest.raises(CorruptMetadata, match="makes no sense"):
            page_reader.load(memoryview(payload[:cut]), 0, MetadataIndex(GRANULE))


@pytest.mark.parametrize(
    ("head", "ids"), [((1025, 0), []), ((2, 0), [5, 5]), ((2, 0), [6, 5]), ((1, 0), [0]), ((1, 0), [MAX_SLOT + 1])]
)
def test_pages_with_impossible_rows(head: tuple[int, int], ids: list[int]) -> None:
    payload = struct.pack("<II", *head) + b"".join(struct.pack("<Q", oid) for oid in ids) + bytes(2000)
    with pytest.raises(CorruptMetadata):
        page_reader.load(memoryview(payload), 0, MetadataIndex(GRANULE))


def test_a_page_whose_checksums_do_not_fit_the_size() -> None:
    index = fresh()
    index.put(Row(1 << 32 | 2, FILE, 0, 0, 0, 5 * GRANULE, 1, 1, 1, 1, 1, (), bytes(20), b""))
    payload, _ = page.draft(index, 1).finish(lambda *_: b"")
    with pytest.raises(CorruptMetadata, match="granules"):
        page_reader.load(memoryview(payload), 0, MetadataIndex(2 * GRANULE))


@pytest.mark.parametrize(("name", "links"), [(b"a/b", []), (b"..", []), (b"good", [(ROOT_ID, b"a\0b")])])
def test_pages_with_impossible_names(name: bytes, links: list[tuple[int, bytes]]) -> None:
    index = fresh()
    index.put(Row(1 << 32 | 2, FILE, 0, 0, 0, 0, 1, 1, 1, 1, 1, (), b"", Extra(links=links).encode()))
    index.tree.add(ROOT_SLOT, name, 2)
    payload, _ = page.draft(index, 1).finish(lambda *_: b"")
    with pytest.raises(CorruptMetadata, match="name"):
        page_reader.load(memoryview(payload), 0, MetadataIndex(GRANULE))


def test_a_directory_has_one_name() -> None:
    """Also when the record that took the former one away is lost."""
    index = fresh()
    for slot in (2, 3):
        index.put(row(1 << 32 | slot, DIRECTORY, random.Random(0)))
        index.name(ROOT_ID, b"%d" % slot, 1 << 32 | slot, 1)
    index.name(1 << 32 | 2, b"moved", 1 << 32 | 3, 2)
    assert index.tree.names(3) == [(2, b"moved")]
    assert index.tree.lookup(ROOT_SLOT, b"3") == 0
    assert (index.tree.nlink(ROOT_SLOT), index.tree.nlink(2)) == (3, 3)
    index.name(1 << 32 | 2, b"root", ROOT_ID, 2)
    assert index.tree.names(ROOT_SLOT) == []


@given(st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=9), max_size=4), st.binary(max_size=5))
def test_extras_come_back(xattrs: dict[bytes, bytes], target: bytes) -> None:
    extra = Extra(xattrs, target or None, [(5, b"a"), (1 << 40, b"bc")])
    assert Extra.decode(extra.encode()) == extra


@given(st.binary(max_size=60))
def test_any_bytes_are_an_extra_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        Extra.decode(data)
