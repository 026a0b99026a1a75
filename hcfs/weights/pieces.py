"""How the tensors of a plan are grouped into pieces of memory, each read as one run of a file's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hcfs.errors import UsageError
from hcfs.weights.plan import PlannedTensor

BLOCK = 4096
"""Alignment that O_DIRECT is given for addresses, offsets and lengths: enough for every device with sectors of up to
4 KiB, and for hcfs."""
SMALL = 1 << 20
"""A tensor of fewer bytes is read together with its neighbours, and copied out of their common memory when it is handed
over: a norm of 8 KiB isn't worth a read, and mustn't keep its neighbours' memory alive."""
TOGETHER_MAX = 4 << 20
"""Most bytes that small tensors are read together in."""
BUDGET_DEFAULT = 512 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of whole blocks of one file that holds these tensors, whole."""

    path: str
    start: int
    """Offset in the file, a multiple of BLOCK."""
    size: int
    """Bytes of memory, a multiple of BLOCK; 0 when its tensors have none."""
    tensors: tuple[PlannedTensor, ...]
    shared: bool
    """Its tensors are copied out of it; else it has one, which keeps it."""


def pieces_of(tensors: Sequence[PlannedTensor]) -> list[Piece]:
    """Pieces in the order of the tensors: a large tensor is one by itself, small ones share one as long as each follows
    the one before it in its file."""
    pieces: list[Piece] = []
    group: list[PlannedTensor] = []
    for each in tensors:
        if group and not _joins(group, each):
            pieces.append(_piece(group))
            group = []
        group.append(each)
    if group:
        pieces.append(_piece(group))
    return pieces


def _joins(group: list[PlannedTensor], each: PlannedTensor) -> bool:
    first, last = group[0].info, group[-1]
    return (
        last.file is each.file
        and last.info.end == each.info.start
        and max(last.info.nbytes, each.info.nbytes) < SMALL
        and each.info.end - first.start <= TOGETHER_MAX
    )


def _piece(group: list[PlannedTensor]) -> Piece:
    first, last = group[0].info, group[-1].info
    start = first.start // BLOCK * BLOCK
    size = -(-(last.end - start) // BLOCK) * BLOCK if last.end > first.start else 0
    return Piece(group[0].file.path, start, size, tuple(group), shared=last.end - first.start < SMALL or len(group) > 1)


def budget_for(pieces: Sequence[Piece], budget: int | None) -> int:
    """The budget in bytes: the one given, or BUDGET_DEFAULT, or as much as the largest piece takes if that is more.

    UsageError when the one given can't hold the largest piece: it must be in memory as a whole.
    """
    largest = max(pieces, key=lambda each: each.size, default=None)
    needed = 0 if largest is None else largest.size
    if budget is None:
        return max(BUDGET_DEFAULT, needed)
    if budget < needed:
        assert largest is not None
        names = ", ".join(repr(each.info.name) for each in largest.tensors[:2])
        raise UsageError(
            f"a budget of {budget} bytes can't hold {names} of {largest.path}, which takes {needed}: give at least that"
        )
    return budget
