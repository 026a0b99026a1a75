"""The order in which a model uses its tensors, as far as their names tell: embeddings, layers by number, then the rest.

It decides what is read first and nothing else: a model whose names say less is read just as completely.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hcfs.weights.model_files import natural

EMBEDDINGS, REST = "embeddings", "head"

_NUMBER = re.compile(r"[0-9]{1,9}")
_EMBEDDING = re.compile(r"embed|(^|[._])(wte|wpe|emb|shared|tok|pos)([._]|$)")
_HEAD = re.compile(r"(^|[._])(lm_head|head|score|classifier)([._]|$)")
# What is computed before the text's own layers: an encoder, or the tower that sees pictures or hears sounds.
_EARLY = re.compile(r"(^|[._])(encoder|vision|visual|audio)")


class Stage(NamedTuple):
    """A part of the model that is used at one time; sorts by time of use."""

    rank: int
    stack: tuple[tuple[int, int, str], ...]
    number: int
    name: str
    """`embeddings`, `head`, or stack and number such as `model.layers.7`."""


def stage_of(tensor: str) -> Stage:
    """The stage of a tensor by its name. The first component that is a number is the layer's, what is before it the
    stack's name; encoders and towers come before other stacks. Without a number: embeddings first, all else last."""
    parts = tensor.split(".")
    at = next((at for at, part in enumerate(parts) if at and _NUMBER.fullmatch(part)), None)
    if at is None:
        return Stage(0, (), 0, EMBEDDINGS) if _EMBEDDING.search(tensor) else Stage(3, (), 0, REST)
    stack = ".".join(parts[:at])
    if _HEAD.search(stack):
        return Stage(3, (), 0, REST)
    return Stage(1 if _EARLY.search(stack) else 2, natural(stack), int(parts[at]), f"{stack}.{parts[at]}")
