"""LMCache's clients in a process of their own: requests come as JSON lines on stdin, answers go to stdout.

Run by driver.py, under any PYTHONPATH that can import lmcache. Only LMCache, torch, the standard library and the module
beside this one are imported, so that what is tested is what an engine loads. Chunks are made and checked here, not sent
through the pipe.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import sys
import time
import traceback
from argparse import Namespace
from dataclasses import asdict
from typing import Any

import torch
from lmcache.lmcache_fs import LMCacheFSClient
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import _filename_to_object_key, _object_key_to_filename
from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import _object_key_to_string
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

from lab.harness.lmcache.content import content

ALIGNMENT = 4096
PATIENCE_S = 120
NOTHING = 0xEE


def object_key(fields: dict[str, Any]) -> ObjectKey:
    return ObjectKey(
        chunk_hash=bytes.fromhex(fields["hash"]),
        model_name=fields["model"],
        kv_rank=fields["rank"],
        object_group_id=fields["group"] or 0,
        cache_salt=fields["salt"],
    )


def wire_key(fields: dict[str, Any]) -> str:
    """What the native client takes; without a group it is what versions before object groups made of a key."""
    if fields["group"] is not None:
        return str(_object_key_to_string(object_key(fields)))
    salt = "@" + fields["salt"] if fields["salt"] else ""
    return f"{fields['model']}@{fields['rank']:08x}@{fields['hash']}{salt}"


class Slots:
    """One page-aligned piece of memory a chunk, `skew` bytes into it, as an engine's L1 memory would have it."""

    def __init__(self, chunks: list[dict[str, Any]], skew: int) -> None:
        self.skew = skew
        self.sizes = [-(-chunk["length"] // ALIGNMENT) * ALIGNMENT for chunk in chunks]
        self.lengths = [chunk["length"] for chunk in chunks]
        self.memory = mmap.mmap(-1, sum(self.sizes) + ALIGNMENT)
        self.tensor = torch.frombuffer(self.memory, dtype=torch.uint8)
        self.starts = [skew + sum(self.sizes[:index]) for index in range(len(chunks))]

    def views(self) -> list[memoryview]:
        whole = memoryview(self.memory)
        return [whole[start : start + length] for start, length in zip(self.starts, self.lengths, strict=True)]

    def objects(self) -> list[TensorMemoryObj]:
        return [
            TensorMemoryObj(
                raw_data=self.tensor[start : start + size],
                metadata=MemoryObjMetadata(
                    shape=torch.Size([length]),
                    dtype=torch.uint8,
                    address=start,
                    phy_size=size,
                    ref_count=1,
                    fmt=MemoryFormat.KV_2LTD,
                ),
                parent_allocator=None,
            )
            for start, length, size in zip(self.starts, self.lengths, self.sizes, strict=True)
        ]


class NativeClient:
    """`LMCacheFSClient` called directly."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.client = LMCacheFSClient(
            spec["base_path"],
            spec.get("num_workers", 4),
            spec.get("relative_tmp_dir", ""),
            spec.get("use_odirect", False),
            spec.get("read_ahead_size", 0),
        )
        self.poller = select.poll()
        self.poller.register(self.client.event_fd(), select.POLLIN)

    def _result(self, future: int) -> tuple[bool, str, list[bool] | None]:
        if not self.poller.poll(PATIENCE_S * 1000):
            raise TimeoutError(f"LMCacheFSClient did not answer within {PATIENCE_S} s")
        ((answered, ok, error, results),) = self.client.drain_completions()
        assert answered == future
        return ok, error, results

    def store(self, keys: list[dict[str, Any]], slots: Slots) -> tuple[bool, str]:
        ok, error, _ = self._result(self.client.submit_batch_set([wire_key(key) for key in keys], slots.views()))
        return ok, error

    def exists(self, keys: list[dict[str, Any]]) -> list[bool]:
        ok, error, found = self._result(self.client.submit_batch_exists([wire_key(key) for key in keys]))
        if not ok:
            raise OSError(error)
        return found or []

    def load(self, keys: list[dict[str, Any]], slots: Slots) -> list[bool]:
        _, error, loaded = self._result(self.client.submit_batch_get([wire_key(key) for key in keys], slots.views()))
        if loaded is None:
            raise OSError(error)
        return loaded

    def delete(self, keys: list[dict[str, Any]]) -> list[bool] | None:
        ok, error, deleted = self._result(self.client.submit_batch_delete([wire_key(key) for key in keys]))
        if not ok:
            raise OSError(error)
        return deleted

    def close(self) -> None:
        self.client.close()


class Adapter:
    """`NativeConnectorL2Adapter` as LMCache makes it from the JSON of `--l2-adapter`."""

    def __init__(self, spec: dict[str, Any]) -> None:
        (config,) = parse_args_to_l2_adapters_config(Namespace(l2_adapter=[json.dumps(spec)])).adapters
        self.adapter = create_l2_adapter(config)

    def _result(self, take: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while (result := take()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the adapter did not answer within {PATIENCE_S} s")
            time.sleep(0.001)
        return result

    def store(self, keys: list[dict[str, Any]], slots: Slots) -> tuple[bool, str]:
        task = self.adapter.submit_store_task([object_key(key) for key in keys], slots.objects())
        result = self._result(lambda: self.adapter.pop_completed_store_tasks().get(task))
        return result.is_successful(), "" if result.is_successful() else "the adapter gives no reason"

    def exists(self, keys: list[dict[str, Any]]) -> list[bool]:
        wanted = [object_key(key) for key in keys]
        layouts = {key.object_group_id: MemoryLayoutDesc(shapes=[], dtypes=[]) for key in wanted}
        task = self.adapter.submit_lookup_and_lock_task(wanted, layouts)
        bitmap = self._result(lambda: self.adapter.query_lookup_and_lock_result(task))
        self.adapter.submit_unlock(wanted)
        return [bitmap.test(index) for index in range(len(keys))]

    def load(self, keys: list[dict[str, Any]], slots: Slots) -> list[bool]:
        task = self.adapter.submit_load_task([object_key(key) for key in keys], slots.objects())
        bitmap = self._result(lambda: self.adapter.query_load_result(task))
        return [bitmap.test(index) for index in range(len(keys))]

    def delete(self, keys: list[dict[str, Any]]) -> None:
        self.adapter.delete([object_key(key) for key in keys])

    def close(self) -> None:
        self.adapter.close()


clients: list[NativeClient | Adapter | None] = []


def store(request: dict[str, Any]) -> dict[str, Any]:
    chunks = request["chunks"]
    slots = Slots(chunks, request["skew"])
    for chunk, view in zip(chunks, slots.views(), strict=True):
        view[:] = content(chunk["name"], chunk["version"], chunk["length"])
    ok, error = clients[request["client"]].store([chunk["key"] for chunk in chunks], slots)
    return {"ok": ok, "error": error}


def load(request: dict[str, Any]) -> list[Any]:
    """For each chunk the version whose bytes came, None for a miss, "wrong" for a hit with any other bytes."""
    chunks = request["chunks"]
    slots = Slots(chunks, request["skew"])
    for view in slots.views():
        view[:] = bytes([NOTHING]) * len(view)
    loaded = clients[request["client"]].load([chunk["key"] for chunk in chunks], slots)
    answer: list[Any] = []
    for chunk, view, hit in zip(chunks, slots.views(), loaded, strict=True):
        got = bytes(view)
        right = (version for version in request["versions"] if got == beginning(chunk, version))
        answer.append(next(right, "wrong") if hit else None)
    return answer


def beginning(chunk: dict[str, Any], version: int) -> bytes:
    """As many bytes as are wanted, of the chunk as it was stored."""
    return content(chunk["name"], version, chunk["stored_length"])[: chunk["length"]]


KINDS: dict[str, type[NativeClient] | type[Adapter]] = {"client": NativeClient, "adapter": Adapter}


def serve(request: dict[str, Any]) -> Any:
    match request["op"]:
        case "open":
            clients.append(KINDS[request["kind"]](request["spec"]))
            return len(clients) - 1
        case "close":
            client, clients[request["client"]] = clients[request["client"]], None
            return client.close()
        case "store":
            return store(request)
        case "load":
            return load(request)
        case "exists":
            return clients[request["client"]].exists(request["keys"])
        case "delete":
            return clients[request["client"]].delete(request["keys"])
        case "status":
            return clients[request["client"]].adapter.report_status()
        case "file-name":
            return _object_key_to_filename(object_key(request["key"]))
        case "parse-file-name":
            key = _filename_to_object_key(request["name"])
            return None if key is None else {**asdict(key), "chunk_hash": key.chunk_hash.hex()}
        case "parse-spec":
            (config,) = parse_args_to_l2_adapters_config(Namespace(l2_adapter=[request["json"]])).adapters
            return vars(config) | {"eviction_config": config.eviction_config}
        case unknown:
            raise ValueError(f"unknown request {unknown!r}")


def main() -> None:
    # LMCache writes to stdout where it likes; answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"result": "ready"}), file=answers)
    for line in sys.stdin:
        try:
            answer = {"result": serve(json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        print(json.dumps(answer, default=repr), file=answers)
    for client in clients:
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()


main()
