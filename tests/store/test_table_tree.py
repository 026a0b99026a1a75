from __future__ import annotations

import stat

from hypothesis import given
from hypothesis import strategies as st

from hcfs.store.extents import EXTENT_BYTES, Extent
from hcfs.store.table import Row, Table
from hcfs.store.tree import ROOT_SLOT, Tree

GRANULE = 4096
DIRECTORY, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
SLOTS = st.integers(1, 12)
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    slot, size = draw(SLOTS), draw(st.integers(0, 3 * GRANULE))
    starts = draw(st.lists(st.integers(0, 2), max_size=3))
    extents = tuple(Extent(10 * i + gap, 100 * slot + 10 * i, 2) for i, gap in enumerate(starts))
    granules = -(-size // GRANULE)
    return Row(
        draw(st.integers(0, 1 << 30)) << 32 | slot,
        *(draw(st.sampled_from((DIRECTORY, FILE))), draw(st.integers(0, 2**32 - 1)), 5, draw(st.integers(0, 1)), size),
        *(draw(TIMES), draw(TIMES), draw(TIMES), draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**64 - 1))),
        *(extents, draw(st.binary(min_size=4 * granules, max_size=4 * granules)), draw(st.binary(max_size=5))),
    )


def row_of(table: Table, slot: int) -> Row:
    granules = table.granules(slot)
    one = table.crc[slot].to_bytes(4, "little")
    return Row(
        *(table.id[slot], table.mode[slot], table.uid[slot], table.gid[slot], table.flags[slot], table.size[slot]),
        *(table.atime_ns[slot], table.mtime_ns[slot], table.ctime_ns[slot], table.generation[slot]),
        *(table.last_access_ns[slot], table.extents(slot)),
        *(table.tables[slot] if granules > 1 else one[: 4 * granules], table.extra.get(slot, b"")),
    )


@given(st.lists(st.one_of(rows(), SLOTS, st.tuples(SLOTS, st.binary(max_size=9))), max_size=25))
def test_the_table_is_a_dict_of_rows(steps: list[Row | int | tuple[int, bytes]]) -> None:
    table, model = Table(GRANULE), dict[int, Row]()
    for step in steps:
        if isinstance(step, Row):
            table.put(step)
            model[step.id & 0xFFFFFFFF] = step
        elif isinstance(step, int):
            if step in model:
                table.clear(step)
                del model[step]
        elif step[0] in model:
            table.set_extra(*step)
            old = model[step[0]]
            model[step[0]] = Row(*[getattr(old, name) for name in Row.__slots__[:-1]], extra=step[1])
        assert {slot: row_of(table, slot) for slot in table.slots()} == model
        assert table.objects == len(model)
        variable = [
            EXTENT_BYTES * len(row.extents) + (len(row.checksums) if len(row.checksums) > 4 else 0) + len(row.extra)
            for row in model.values()
        ]
        assert table.variable_bytes == sum(variable)
        for slot, row in model.items():
            assert table.slot(row.id) == slot
            assert table.slot(row.id ^ 1 << 40) == 0
            assert table.blocks(slot) == sum(e.count for e in row.extents)
    table.rebuild_free_slots()
    assert sorted(table.free_slots) == [slot for slot in range(1, len(table)) if slot not in model]
    free = len(table.free_slots)
    taken = [table.take_slot() for _ in range(free + 2)]
    assert len(set(taken)) == len(taken)
    assert not set(taken) & set(model)
    table.give_slot(taken[0])
    assert table.take_slot() == taken[0]
    for slot in list(model):
        table.strip(slot)
        assert (table.extents(slot), table.blocks(slot)) == ((), 0)


ENTRY = st.tuples(SLOTS, st.sampled_from((b"a", b"b", b"longer")), SLOTS)


@given(
    st.sets(SLOTS).map(lambda slots: slots | {ROOT_SLOT}),
    st.lists(st.tuples(st.sampled_from(("add", "add", "remove", "forget")), ENTRY), max_size=40),
)
def test_the_tree_is_a_dict_of_entries(directories: set[int], steps: list[tuple[str, tuple[int, bytes, int]]]) -> None:
    table = Table(GRANULE)
    for slot in range(1, 13):
        mode = DIRECTORY if slot in directories else FILE
        table.put(Row(slot, mode, 0, 0, 0, 0, 0, 0, 0, 0, 0, (), b"", b""))
    tree, model = Tree(table), dict[tuple[int, bytes], int]()
    for kind, (parent, name, slot) in steps:
        if kind == "add":
            second = slot in directories and any(held == slot for held in model.values())
            if parent not in directories or slot == ROOT_SLOT or second or tree.is_within(parent, slot):
                continue
            tree.add(parent, name, slot)
            if model.get((parent, name)) != slot:
                model.pop((parent, name), None)
                model[parent, name] = slot
        elif kind == "remove":
            assert tree.remove(parent, name) == model.pop((parent, name), 0)
        elif slot != ROOT_SLOT:
            tree.forget(slot)
            model = {entry: held for entry, held in model.items() if held != slot and entry[0] != slot}
        check(tree, model, directories)


def check(tree: Tree, model: dict[tuple[int, bytes], int], directories: set[int]) -> None:
    first_names: dict[int, list[tuple[int, bytes]]] = {}
    for entry, slot in model.items():
        first_names.setdefault(slot, []).append(entry)
    encoded = 0
    for slot in range(1, 13):
        own = first_names.get(slot, [])
        assert sorted(tree.names(slot)) == sorted(own)
        assert {(slot, name): child for name, child in tree.children.get(slot, {}).items()} == {
            entry: child for entry, child in model.items() if entry[0] == slot
        }
        below = sum(1 for entry, child in model.items() if entry[0] == slot and child in directories)
        assert tree.nlink(slot) == (2 + below if slot in directories else len(own))
        names = tree.names(slot)
        encoded += len(names[0][1]) if names else 0
        encoded += sum(7 + len(name) + 8 for _, name in names[1:])
        path, namespace, at = [], 0, slot
        while at != ROOT_SLOT and tree.names(at):
            parent, name = tree.names(at)[0]
            path.append(name)
            namespace = at if parent == ROOT_SLOT else 0
            at = parent
        assert tree.path(slot) == b"/".join(reversed(path))
        assert tree.namespace(slot) == namespace
        assert tree.is_within(slot, slot)
        assert tree.is_within(slot, at)
    for (parent, name), slot in model.items():
        assert tree.lookup(parent, name) == slot
    assert tree.lookup(ROOT_SLOT, b"absent") == 0
    assert tree.encoded_bytes == encoded
