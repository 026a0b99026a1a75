"""Staged objects against a bytearray: whatever is done to one, the bytes are the model's."""

from __future__ import annotations

import random

import pytest
from store.rig import GRANULE, again, check_space, content, get, named, namespace, new_store, stage

from hcfs.store import BLOCK, Staged

TOP = 5 * GRANULE + 1234
EDGES = (0, 1, 511, BLOCK - 1, BLOCK, BLOCK + 1, GRANULE - 1, GRANULE, GRANULE + 1, 2 * GRANULE, TOP)


def some_offset(rng: random.Random) -> int:
    return max(0, rng.choice(EDGES) + rng.choice((0, 0, 0, -1, 1, rng.randrange(TOP)))) % (TOP + 1)


def random_step(staged: Staged, model: bytearray, rng: random.Random) -> None:
    """One operation on the object and on its model; reads are compared."""
    kind = rng.choices(("write", "append", "truncate", "read", "seal"), (10, 4, 2, 4, 1))[0]
    if kind == "write":
        at, data = some_offset(rng), rng.randbytes(rng.choice((1, 3, 100, BLOCK, 5000, GRANULE, 3 * BLOCK, 70_000)))
        staged.write(at, data)
        model.extend(bytes(max(0, at + len(data) - len(model))))
        model[at : at + len(data)] = data
    elif kind == "append":
        data = rng.randbytes(rng.choice((1, 4096, 10_000, GRANULE)))
        staged.write(len(model), data)
        model += data
    elif kind == "truncate":
        size = some_offset(rng)
        staged.truncate(size)
        del model[size:]
        model.extend(bytes(size - len(model)))
    elif kind == "read":
        at, length = some_offset(rng), rng.randrange(2 * GRANULE)
        assert staged.read(at, length) == model[at : at + length]
    else:
        staged.seal()
        assert staged.sealed
    assert staged.size == len(model)


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_leave_what_the_model_has(seed: int) -> None:
    rng = random.Random(seed)
    store = new_store()
    model = bytearray()
    staged = stage(store)
    for _ in range(40):
        random_step(staged, model, rng)
        check_space(store, staged)
    staged.seal()
    check_space(store, staged)
    oid = store.publish(staged, namespace(store), b"object")
    assert oid == staged.id
    assert get(store, oid, step=rng.choice((4096, 10_001, GRANULE, 1 << 20))) == model
    store.commit()
    store = again(store)
    assert get(store, oid) == model
    check_space(store)


@pytest.mark.parametrize("seed", range(12))
def test_a_view_of_a_base_is_copied_on_write(seed: int) -> None:
    rng = random.Random(seed)
    store = new_store()
    base_model = bytearray(content(seed, rng.choice((1, BLOCK, GRANULE, 3 * GRANULE + 77))))
    holes = stage(store)
    if rng.random() < 0.5:
        holes.write(0, base_model[: len(base_model) // 3])
        holes.truncate(len(base_model))
        base_model[len(base_model) // 3 :] = bytes(len(base_model) - len(base_model) // 3)
    else:
        holes.write(0, base_model)
    holes.seal()
    base = store.publish(holes, namespace(store), b"object")
    staged, model = stage(store, base), bytearray(base_model)
    assert (staged.base, staged.size, staged.modified) == (base, len(model), False)
    for _ in range(rng.choice((1, 2, 20))):
        random_step(staged, model, rng)
        check_space(store, staged)
        assert get(store, base) == base_model
    if staged.modified:
        staged.seal()
        check_space(store, staged)
        oid = store.publish(staged, namespace(store), b"object")
        assert get(store, oid) == model
        store.commit()
        assert named(again(store), b"object") == model
    else:
        staged.abandon()
    check_space(store)
