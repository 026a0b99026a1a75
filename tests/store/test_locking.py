"""The convention for what is called with the store's lock held."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from store.rig import namespace, new_store

from hcfs.store.locking import CHECK_LOCKS


def test_a_call_without_the_lock_is_refused() -> None:
    store = new_store()
    kv = namespace(store)
    assert CHECK_LOCKS
    with pytest.raises(AssertionError, match="isn't held"):
        store.names.directory(kv)
    with store.atomically():
        assert store.names.directory(kv)


def test_it_costs_nothing_elsewhere() -> None:
    """The decorator leaves the method as it is."""
    program = "from hcfs.store.locking import lock_held; method = lambda self: 1; assert lock_held(method) is method"
    environment = {name: value for name, value in os.environ.items() if name != "HCFS_CHECK_LOCKS"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)


def test_what_is_done_atomically_is_seen_at_once() -> None:
    store = new_store()
    kv = namespace(store)
    with store.atomically(), store.atomically():
        oid = store.create_empty(kv, b"a", 0o644, 0, 0)
        assert store.lookup(kv, b"a") == oid
