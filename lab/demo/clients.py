"""The demo's two clients: LMCache's real adapter, and the same system calls for where LMCache isn't installed."""

from __future__ import annotations

import json
import mmap
import os
import select
from pathlib import Path
from typing import Any

MODEL, RANK, GROUP = "meta-llama/Llama-3.1-8B", 0x01000100, 0


class SystemCalls:
    """What `fs_native` does, call for call: stat; open, write, close, rename; open and read with O_DIRECT; unlink."""

    name = "the system calls that LMCache's fs_native adapter makes"

    def __init__(self, spec: str) -> None:
        self.directory = Path(json.loads(spec)["base_path"])

    def _path(self, chunk_hash: bytes) -> Path:
        model = MODEL.replace("/", "-SEP-")
        return self.directory / f"{model}@{RANK:#010x}@{GROUP:x}@{chunk_hash.hex()}.data"

    def store(self, chunks: dict[bytes, bytes]) -> None:
        """Store every chunk under its hash."""
        for chunk_hash, content in chunks.items():
            path = self._path(chunk_hash)
            if path.exists():
                continue
            temporary = path.with_suffix(".tmp")
            with _buffer(len(content)) as buffer:
                buffer[:] = content
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o644)
                try:
                    written = os.write(handle, buffer)
                finally:
                    os.close(handle)
            assert written == len(content)
            temporary.rename(path)

    def exists(self, hashes: list[bytes]) -> list[bool]:
        """Which chunks a lookup finds."""
        return [self._path(chunk_hash).exists() for chunk_hash in hashes]

    def load(self, hashes: list[bytes], length: int) -> list[bytes | None]:
        """Their contents; None for what can't be loaded."""
        return [self._load(self._path(chunk_hash), length) for chunk_hash in hashes]

    def _load(self, path: Path, length: int) -> bytes | None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            return None
        try:
            with _buffer(length) as buffer:
                return bytes(buffer) if os.readv(handle, [buffer]) == length else None
        except OSError:
            return None
        finally:
            os.close(handle)

    def close(self) -> None:
        """Nothing is held between calls."""


class Adapter:
    """LMCache's own `fs_native` adapter, made by LMCache from the JSON that `hcfs lmcache-config` prints."""

    def __init__(self, spec: str) -> None:
        import lmcache
        from lmcache.v1.distributed.l2_adapters import create_l2_adapter
        from lmcache.v1.distributed.l2_adapters.fs_native_l2_adapter import FSNativeL2AdapterConfig

        self.name = f"the fs_native adapter of LMCache {lmcache.__version__}"
        self.adapter = create_l2_adapter(FSNativeL2AdapterConfig.from_dict(json.loads(spec)))

    def store(self, chunks: dict[bytes, bytes]) -> None:
        """Store every chunk under its hash."""
        objects = [self._object(len(content), content) for content in chunks.values()]
        self.adapter.submit_store_task(self._keys(list(chunks)), objects)
        _wait(self.adapter.get_store_event_fd())
        (result,) = self.adapter.pop_completed_store_tasks().values()
        assert result.is_successful()

    def exists(self, hashes: list[bytes]) -> list[bool]:
        """Which chunks a lookup finds."""
        from lmcache.v1.distributed.api import MemoryLayoutDesc

        keys = self._keys(hashes)
        task = self.adapter.submit_lookup_and_lock_task(keys, {0: MemoryLayoutDesc(shapes=[], dtypes=[])})
        _wait(self.adapter.get_lookup_and_lock_event_fd())
        found = self.adapter.query_lookup_and_lock_result(task)
        self.adapter.submit_unlock(keys)
        return [found.test(index) for index in range(len(hashes))]

    def load(self, hashes: list[bytes], length: int) -> list[bytes | None]:
        """Their contents; None for what can't be loaded."""
        objects = [self._object(length) for _ in hashes]
        task = self.adapter.submit_load_task(self._keys(hashes), objects)
        _wait(self.adapter.get_load_event_fd())
        loaded = self.adapter.query_load_result(task)
        return [bytes(item.byte_array) if loaded.test(index) else None for index, item in enumerate(objects)]

    def close(self) -> None:
        """End the adapter's threads."""
        self.adapter.close()

    def _keys(self, hashes: list[bytes]) -> list[Any]:
        from lmcache.v1.distributed.api import ObjectKey

        return [ObjectKey(chunk_hash, MODEL, RANK, GROUP) for chunk_hash in hashes]

    def _object(self, length: int, content: bytes | None = None) -> Any:
        """A memory object as LMCache's L1 cache hands it to the adapter: page-aligned, for O_DIRECT."""
        import torch
        from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

        buffer = _buffer(length)
        if content is not None:
            buffer[:] = content
        metadata = MemoryObjMetadata(
            shape=torch.Size([length]),
            dtype=torch.uint8,
            address=0,
            phy_size=length,
            fmt=MemoryFormat.KV_2LTD,
            ref_count=1,
        )
        return TensorMemoryObj(
            raw_data=torch.frombuffer(buffer, dtype=torch.uint8), metadata=metadata, parent_allocator=None
        )


def _buffer(length: int) -> mmap.mmap:
    return mmap.mmap(-1, length)


def _wait(event: int) -> None:
    poller = select.poll()
    poller.register(event, select.POLLIN)
    if not poller.poll(30_000):
        raise TimeoutError("LMCache's adapter gave no answer within 30 s")
    os.read(event, 8)
