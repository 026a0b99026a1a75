"""What can be uploaded: nothing that is stored in a local-only namespace, whoever asks."""

from __future__ import annotations

import os

import pytest

from hcfs.cache import DOUBT, ETAG, SYNC, SyncRecord
from hcfs.origin import OriginRefused
from hcfs.remote.allowed_origins import AllowedOrigins
from hcfs.remote.kinds import add_origins
from hcfs.remote.uploading.sync_marks import mark
from hcfs.remote.uploading.upload_source import outgoing_object

from .kernel import Process, Rig


def nothing(_: int) -> None:
    pass


def test_what_is_local_only_makes_no_outgoing(rig: Rig, me: Process) -> None:
    """An uploader takes an Outgoing alone, that needs an uploader, and whose the bytes are the store says."""
    store = rig.store
    store.mkdir(1, b"weights", 0o755, 0, 0)
    weights = store.lookup(1, b"weights")
    assert weights is not None
    options = rig.cache.namespaces
    options.set_option(weights, "origin", "s3://bucket/x")
    origins = add_origins(rig.fs, upload_attempts=1, allowed=AllowedOrigins(["s3://bucket"]))
    origin = origins.of(weights)
    assert origin is not None
    assert origin.uploader is None  # read-only
    assert origins.of(rig.kv) is None  # local-only: there is nothing to make one from
    options.set_option(weights, "write_policy", "write-back")
    origins.update(weights)
    origin = origins.of(weights)
    assert origin is not None
    assert origin.uploader is not None
    handle = me.open(b"chunk", os.O_WRONLY | os.O_CREAT)
    me.close(handle)
    chunk = store.lookup(rig.kv, b"chunk")
    assert chunk is not None
    pin = store.pin(chunk)
    with pytest.raises(OriginRefused, match="isn't in the namespace"):
        outgoing_object(origin.uploader, store, pin, "chunk", nothing)
    pin.release()
    origins.close()


def test_what_is_doubted_of_a_content_is_not_said_of_the_next(rig: Rig, me: Process) -> None:
    """A writer may begin with a view of what is just being replaced at the origin."""
    store = rig.store
    me.close(me.open(b"f", os.O_WRONLY | os.O_CREAT))
    former = store.lookup(rig.kv, b"f")
    assert former is not None
    store.replace_xattrs(former, {ETAG: b"one", DOUBT: b""})
    view = store.stage(former, namespace=rig.kv, mode=0, uid=0, gid=0)
    mark(view, SyncRecord("one"))
    assert view.list_xattrs() == [SYNC]
    view.abandon()
