"""A Llama for measurements, stage by stage: what a layer computes, and weights for it made of chance.

The arithmetic is that of transformers' LlamaForCausalLM (tests/weights/test_llama.py compares them): RMS norms, rotary
positions, grouped-query attention, SwiGLU. One prompt, no cache: this computes first tokens only.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

Weights = dict[str, Any]
"""Tensors by their names in the model's files."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self.hidden // self.heads

    def tensors(self) -> list[dict[str, list[int]]]:
        """Names and shapes of all tensors, by stage."""
        key = self.kv_heads * self.head_dim
        layer = {
            "input_layernorm": [self.hidden],
            "self_attn.q_proj": [self.hidden, self.hidden],
            "self_attn.k_proj": [key, self.hidden],
            "self_attn.v_proj": [key, self.hidden],
            "self_attn.o_proj": [self.hidden, self.hidden],
            "post_attention_layernorm": [self.hidden],
            "mlp.gate_proj": [self.ffn, self.hidden],
            "mlp.up_proj": [self.ffn, self.hidden],
            "mlp.down_proj": [self.hidden, self.ffn],
        }
        return [
            {"model.embed_tokens.weight": [self.vocabulary, self.hidden]},
            *(
                {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
                for number in range(self.layers)
            ),
            {"model.norm.weight": [self.hidden], "lm_head.weight": [self.vocabulary, self.hidden]},
        ]

    def elements(self) -> int:
        """Numbers in all tensors."""
        total = 0
        for stage in self.tensors():
            for shape in stage.values():
                total += shape[0] * (shape[1] if len(shape) > 1 else 1)
        return total


def shape_for(elements: int) -> Shape:
    """A shape of about so many numbers: of the proportions of small Llamas, with as many layers as it takes."""
    if elements >= 200_000_000:
        one = Shape(1536, 1, 24, 8, 4096, 32000)
    elif elements >= 20_000_000:
        one = Shape(512, 1, 8, 4, 1408, 8192)
    else:
        one = Shape(64, 1, 4, 2, 128, 256)
    rest = 2 * one.vocabulary * one.hidden
    layers = max(2, round((elements - rest) / (one.elements() - rest)))
    return Shape(one.hidden, layers, one.heads, one.kv_heads, one.ffn, one.vocabulary)


def write(directory: str, shape: Shape, dtype: str, seed: int = 0, shard_bytes: int = 256 << 20) -> int:
    """Write a model of random weights, with its index, in shards; return the tensors' bytes. Memory: one shard.

    Its numbers are small enough that no layer overflows; what such a model says means nothing. Blocks.
    """
    import torch
    from safetensors.torch import save_file

    chance = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    where: dict[str, str] = {}
    total = 0
    shard: Weights = {}

    def flush() -> None:
        name = f"model-{len(set(where.values())) + 1:05}.safetensors"
        save_file(shard, os.path.join(directory, name), {"format": "pt"})
        where.update(dict.fromkeys(shard, name))
        shard.clear()

    for stage in shape.tensors():
        for name, size in stage.items():
            norm = len(size) == 1
            shard[name] = (
                torch.ones(size, dtype=kind) if norm else torch.randn(size, generator=chance).mul_(0.02).to(kind)
            )
            total += shard[name].nbytes
        if sum(each.nbytes for each in shard.values()) >= shard_bytes:
            flush()
    if shard:
        flush()
    index = {"metadata": {"total_size": total}, "weight_map": where}
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as file:
        json.dump(index, file)
    return total


class Forward:
    """One prompt on its way through the model, a stage at a time in the order of a stream's stages."""

    def __init__(self, shape: Shape, tokens: Any) -> None:
        """tokens: integers [T] on the weights' device."""
        self._shape = shape
        self._tokens = tokens
        self._x: Any = None
        self._turn: Any = None

    def stage(self, name: str, weights: Weights) -> None:
        """Go through `embeddings`, `model.layers.N` or `head`."""
        if name == "embeddings":
            self._x = weights["model.embed_tokens.weight"][self._tokens]
            self._turn = self._rotation()
        elif name == "head":
            last = _norm(self._x[-1], weights["model.norm.weight"])
            self._x = last @ weights["lm_head.weight"].T
        else:
            self._layer(f"{name}.", weights)

    @property
    def logits(self) -> Any:
        """What the last stage left: for each token of the vocabulary how likely it is next, [V]."""
        return self._x

    def _rotation(self) -> tuple[Any, Any]:
        """Cosines and sines of the rotary positions, [T, head_dim], in float32."""
        import torch

        half = self._shape.head_dim // 2
        device = self._x.device
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float32, device=device) / half)
        angle = torch.arange(len(self._tokens), dtype=torch.float32, device=device)[:, None] * frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(self._x.dtype), angle.sin().to(self._x.dtype)

    def _layer(self, prefix: str, w: Weights) -> None:
        from torch.nn.functional import scaled_dot_product_attention, silu

        def weight(name: str) -> Any:
            return w[f"{prefix}{name}.weight"]

        x = _norm(self._x, weight("input_layernorm"))
        q, k, v = (self._heads(x @ weight(f"self_attn.{part}_proj").T) for part in "qkv")
        q, k = self._turned(q), self._turned(k)
        each = self._shape.heads // self._shape.kv_heads
        k, v = k.repeat_interleave(each, 0), v.repeat_interleave(each, 0)
        attended = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        attended = attended.transpose(0, 1).reshape(len(self._tokens), self._shape.hidden)
        self._x = self._x + attended @ weight("self_attn.o_proj").T
        x = _norm(self._x, weight("post_attention_layernorm"))
        x = silu(x @ weight("mlp.gate_proj").T) * (x @ weight("mlp.up_proj").T)
        self._x = self._x + x @ weight("mlp.down_proj").T

    def _heads(self, x: Any) -> Any:
        """[T, N * head_dim] as [N, T, head_dim]."""
        return x.view(len(self._tokens), -1, self._shape.head_dim).transpose(0, 1)

    def _turned(self, x: Any) -> Any:
        import torch

        cos, sin = self._turn
        one, other = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-other, one), dim=-1) * sin


def _norm(x: Any, weight: Any) -> Any:
    """RMS norm over the last dimension, in float32 as transformers does it."""
    wide = x.float()
    return weight * (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)
