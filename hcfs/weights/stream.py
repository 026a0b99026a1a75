"""Tensors of a model, one after the other in layer order, read ahead by threads within a budget of memory."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from types import TracebackType
from typing import Any

from hcfs.errors import UsageError
from hcfs.weights.pieces import Piece, budget_for, pieces_of
from hcfs.weights.plan import Plan, PlannedTensor, plan
from hcfs.weights.read_ahead import ReadAhead, StreamStatistics
from hcfs.weights.tensors import Framework, aligned, maker
from hcfs.weights.weight_file import IO, check_io

THREADS_DEFAULT = 4


class TensorStream:
    """An iterator over (name, tensor) in the plan's order, and a context manager that ends it.

    Each tensor has memory of its own and lives as long as the consumer keeps it. Read, and not handed over yet, are at
    most `budget` bytes; to that comes one tensor of less than 1 MiB while it is copied, and what the consumer keeps. An
    error is raised in place of the tensor that it concerns, after those before it; the stream is closed then. Leaving
    the `with` block, close(), the end of the iteration and the object's end stop the threads and close the files. One
    consumer at a time.
    """

    def __init__(
        self,
        model: Plan,
        *,
        framework: Framework = "torch",
        device: str = "cpu",
        budget: int | None = None,
        threads: int = THREADS_DEFAULT,
        io: IO = "auto",
        only: Callable[[str], bool] | None = None,
    ) -> None:
        """See stream()."""
        if threads < 1:
            raise UsageError(f"{threads} threads can't read: give at least 1")
        check_io(io)
        self._make = maker(framework, device)
        tensors = [each for each in model.tensors if only is None or only(each.info.name)]
        pieces = pieces_of(tensors)
        self._ahead = ReadAhead(model.files, pieces, budget_for(pieces, budget), threads, io)
        # The garbage collector may call it in any thread at any moment, also in one that reads: it can't wait there.
        self._forgotten = weakref.finalize(self, _close_elsewhere, self._ahead)
        self._forgotten.atexit = False
        self._piece: Piece | None = None
        self._memory: mmap.mmap | None = None
        self._left: deque[PlannedTensor] = deque()

    def __iter__(self) -> TensorStream:
        return self

    def __next__(self) -> tuple[str, Any]:
        """The next tensor's name and the tensor. Blocks until it is read."""
        _, name, tensor = self._next()
        return name, tensor

    def stages(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rest of the tensors by stage (`embeddings`, `model.layers.0` ..., `head`), each stage as soon as its last
        tensor is there. Blocks."""
        for stage, group in groupby(iter(self._next_or_none, None), key=lambda each: each[0]):
            yield stage, {name: tensor for _, name, tensor in group}

    def _next_or_none(self) -> tuple[str, str, Any] | None:
        try:
            return self._next()
        except StopIteration:
            return None

    def _next(self) -> tuple[str, str, Any]:
        try:
            if not self._left:
                self._take()
            tensor = self._left.popleft()
            made = self._tensor(tensor)
        except BaseException:
            self.close()
            raise
        if not self._left:
            self._let_go()
        return tensor.stage.name, tensor.info.name, made

    def _take(self) -> None:
        taken = self._ahead.take()
        if taken is None:
            raise StopIteration
        self._piece, self._memory = taken
        self._left.extend(self._piece.tensors)

    def _tensor(self, tensor: PlannedTensor) -> Any:
        piece, memory = self._piece, self._memory
        assert piece is not None
        if memory is None or not tensor.info.nbytes:
            return self._make(tensor, None, 0)
        offset = tensor.info.start - piece.start
        if piece.shared:
            return self._make(tensor, bytearray(memory[offset : offset + tensor.info.nbytes]), 0)
        return self._make(tensor, memory, aligned(memory, offset, tensor))

    def _let_go(self) -> None:
        piece, self._piece, self._memory = self._piece, None, None
        if piece is not None:
            self._ahead.let_go(piece)

    def statistics(self) -> StreamStatistics:
        """Bytes read and held so far. Never waits for I/O."""
        return self._ahead.statistics()

    def close(self) -> None:
        """Stop reading; waits for the reads under way. Tensors that were handed out stay. May be called again."""
        self._left.clear()
        self._piece = self._memory = None
        self._forgotten.detach()
        self._ahead.close()

    def __enter__(self) -> TensorStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close_elsewhere(ahead: ReadAhead) -> None:
    """Call close() in a thread of its own."""
    # None is to be had when the interpreter ends, and then the threads end with it.
    with suppress(RuntimeError):
        threading.Thread(target=ahead.close, name="hcfs-weights-close", daemon=True).start()


def stream(
    model: Plan | str | os.PathLike[str],
    *,
    framework: Framework = "torch",
    device: str = "cpu",
    budget: int | None = None,
    threads: int = THREADS_DEFAULT,
    io: IO = "auto",
    only: Callable[[str], bool] | None = None,
) -> TensorStream:
    """Begin to read a model (a plan, or a path as plan() takes it) and return the stream of its tensors.

    framework: `torch` or `numpy`. device: torch's name of one, such as `cuda:0`; tensors are copied there when they are
    handed over. budget: bytes that may be read ahead (see TensorStream); 512 MiB by default, or more where one tensor
    takes more. threads: that read. io: `direct`, `buffered` or `auto` (hcfs.weights.weight_file.IO). only: names for
    which it returns true are read, others aren't.

    Blocks while headers are read. HcfsError, one sentence, for whatever is wrong with files, tensors or arguments.
    """
    return TensorStream(
        model if isinstance(model, Plan) else plan(model),
        framework=framework,
        device=device,
        budget=budget,
        threads=threads,
        io=io,
        only=only,
    )


def load(
    model: Plan | str | os.PathLike[str],
    *,
    framework: Framework = "torch",
    device: str = "cpu",
    budget: int | None = None,
    threads: int = THREADS_DEFAULT,
    io: IO = "auto",
) -> dict[str, Any]:
    """All tensors of a model by name; arguments, blocking and errors as stream()."""
    with stream(model, framework=framework, device=device, budget=budget, threads=threads, io=io) as tensors:
        return dict(tensors)
