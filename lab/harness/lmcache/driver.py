"""Drives LMCache's own clients, each process of them one Worker, on any directory.

The clients live in processes of their own (worker.py): several versions of LMCache, several storing processes and
killed ones need that, and nothing that LMCache imports, warns or prints touches the tests.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hcfs.lmcache.keys import Key, file_name
from lab.harness import programs

MIB = 1 << 20
PATIENCE_S = 150
# LMCache reports usage to its makers over the network unless told not to.
QUIET = {"LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "LMCACHE_DISABLE_BANNER": "1"}


class WorkerError(Exception):
    """What the client raised in its process."""


@dataclass(frozen=True)
class Chunk:
    """A key with a content (content.py) of `length` bytes in `version`."""

    key: Key
    length: int
    version: int = 0

    @property
    def name(self) -> str:
        return file_name(self.key)

    def fields(self, length: int | None = None) -> dict[str, Any]:
        wanted = self.length if length is None else length
        return {
            "key": asdict(self.key),
            "name": self.name,
            "version": self.version,
            "length": wanted,
            "stored_length": self.length,
        }


def make_key(number: int, *, model: str = "meta-llama/Llama-3.1-8B", salt: str = "", group: int | None = 0) -> Key:
    """A key as engines make them: one rank of one, 32 bytes of hash."""
    return Key(model, 0x01000100, group, f"{number:064x}", salt)


def make_chunks(count: int, length: int, *, first: int = 0, version: int = 0, **key: Any) -> list[Chunk]:
    return [Chunk(make_key(number, **key), length, version) for number in range(first, first + count)]


class Worker:
    """A process with LMCache in it. `packages` goes in front of its import path."""

    def __init__(self, packages: Path | None = None) -> None:
        environment = {**programs.environment(), **QUIET}
        if packages is not None:
            environment["PYTHONPATH"] = os.pathsep.join([str(packages), str(programs.ROOT)])
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "lab.harness.lmcache.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.output,
            env=environment,
            text=True,
        )
        assert self.receive() == "ready"

    def send(self, **request: Any) -> None:
        """Ask without waiting; `receive` gives the answers in order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        # Answers are single lines, asked for one by one, so nothing waits unseen in the stream's buffer.
        if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
            raise TimeoutError(f"LMCache's process gave no answer within {PATIENCE_S} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise WorkerError(f"LMCache's process ended with exit code {code}: {self.said()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{answer['error']}\n{answer['traceback']}")
        return answer["result"]

    def ask(self, **request: Any) -> Any:
        self.send(**request)
        return self.receive()

    def said(self) -> str:
        """What LMCache printed and logged so far; the native client gives its reasons for a failed load only here."""
        return os.pread(self.output.fileno(), 1 << 30, 0).decode(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.process.stdout.close()
            self.output.close()


class Client:
    """One `LMCacheFSClient` ("client") or `NativeConnectorL2Adapter` ("adapter") of a Worker."""

    def __init__(
        self,
        worker: Worker,
        kind: Literal["client", "adapter"],
        base: Path,
        *,
        direct: bool = False,
        tmp: str = "",
        num_workers: int = 4,
        read_ahead: int = 0,
    ) -> None:
        spec: dict[str, Any] = {
            "type": "fs_native",
            "base_path": str(base),
            "num_workers": num_workers,
            "use_odirect": direct,
        }
        if tmp:
            spec["relative_tmp_dir"] = tmp
        if read_ahead:
            spec["read_ahead_size"] = read_ahead
        self.worker = worker
        self.kind = kind
        self.base = base
        self.direct = direct
        self.handle = worker.ask(op="open", kind=kind, spec=spec)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.worker.process.poll() is None:
            self.worker.ask(op="close", client=self.handle)

    def send_store(self, chunks: Iterable[Chunk], *, skew: int = 0) -> None:
        """Begin to store without waiting: the answer is `self.worker.receive()`."""
        fields = [chunk.fields() for chunk in chunks]
        self.worker.send(op="store", client=self.handle, chunks=fields, skew=skew)

    def try_store(self, chunks: Iterable[Chunk], *, skew: int = 0) -> tuple[bool, str]:
        """Whether LMCache counts the batch as stored, and its error. `skew`: bytes off a page, for every buffer."""
        self.send_store(chunks, skew=skew)
        answer = self.worker.receive()
        return answer["ok"], answer["error"]

    def store(self, chunks: Iterable[Chunk], *, skew: int = 0) -> None:
        ok, error = self.try_store(chunks, skew=skew)
        assert ok, f"LMCache could not store: {error}"

    def exists(self, chunks: Iterable[Chunk]) -> list[bool]:
        answer: list[bool] = self.worker.ask(
            op="exists", client=self.handle, keys=[asdict(chunk.key) for chunk in chunks]
        )
        return answer

    def load(
        self, chunks: Sequence[Chunk], *, length: int | None = None, skew: int = 0, versions: Sequence[int] = (0,)
    ) -> list[int | str | None]:
        """For each chunk: which of `versions` came, whole and right; None for a miss; "wrong" for other bytes.

        `length`: ask for so many bytes instead of the chunk's length.
        """
        fields = [chunk.fields(length) for chunk in chunks]
        words = {"chunks": fields, "skew": skew, "versions": list(versions)}
        answer: list[int | str | None] = self.worker.ask(op="load", client=self.handle, **words)
        return answer

    def delete(self, chunks: Iterable[Chunk]) -> list[bool] | None:
        """Which keys were there; the adapter doesn't tell (None)."""
        keys = [asdict(chunk.key) for chunk in chunks]
        answer: list[bool] | None = self.worker.ask(op="delete", client=self.handle, keys=keys)
        return answer
