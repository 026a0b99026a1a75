"""The order in which tensors are read: embeddings, layers by number, the rest."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from hcfs.weights import plan
from hcfs.weights.order import stage_of
from lab.harness.weights import safetensors

FAMILIES = {
    "llama": (
        ["model.embed_tokens.weight"],
        ["model.layers.0.self_attn.q_proj.weight", "model.layers.2.mlp.up_proj.weight", "model.layers.10.x.weight"],
        ["model.norm.weight", "lm_head.weight"],
    ),
    "gpt2": (["wte.weight", "wpe.weight"], ["h.0.ln_1.weight", "h.2.ln_1.weight", "h.10.ln_1.bias"], ["ln_f.weight"]),
    "mixtral": (
        ["model.embed_tokens.weight"],
        ["model.layers.0.block_sparse_moe.experts.7.w1.weight", "model.layers.1.block_sparse_moe.experts.0.w1.weight"],
        ["lm_head.weight"],
    ),
    "bert": (
        ["bert.embeddings.word_embeddings.weight"],
        ["bert.encoder.layer.0.output.dense.bias", "bert.encoder.layer.11.output.dense.bias"],
        ["bert.pooler.dense.weight", "classifier.0.weight"],
    ),
    "t5": (
        ["shared.weight"],
        ["encoder.block.0.layer.0.k.weight", "encoder.block.11.layer.0.k.weight", "decoder.block.0.layer.0.k.weight"],
        ["encoder.final_layer_norm.weight", "decoder.final_layer_norm.weight", "lm_head.weight"],
    ),
    "llava": (
        ["language_model.model.embed_tokens.weight"],
        ["vision_tower.encoder.layers.23.mlp.weight", "language_model.model.layers.0.mlp.weight"],
        ["language_model.lm_head.weight"],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_model_families(family: str) -> None:
    first, layers, last = FAMILIES[family]
    names = [*first, *layers, *last]
    assert [stage_of(name)[:3] for name in names] == sorted(stage_of(name)[:3] for name in names)
    assert {stage_of(name).name for name in first} == {"embeddings"}
    assert {stage_of(name).name for name in last} == {"head"}
    stages = [stage_of(name) for name in layers]
    assert all(one < other for one, other in pairwise(stages))


@pytest.mark.parametrize(
    "name", ["", ".", "0", "0.0", "a." + "9" * 10_000, "." * 10_000, "1" * 100_000, "\0.5.é", "a.²"]
)
def test_odd_names_have_a_stage(name: str) -> None:
    assert stage_of(name).name


def test_within_a_stage_tensors_come_as_they_lie(tmp_path: Path) -> None:
    names = ["lm_head.w", "m.layers.10.b", "m.layers.2.z", "m.layers.2.a", "m.layers.10.a", "m.embed.w"]
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({name: ("U8", [1], b"x") for name in names}))
    found = [each.info.name for each in plan(path).tensors]
    assert found == ["m.embed.w", "m.layers.2.z", "m.layers.2.a", "m.layers.10.b", "m.layers.10.a", "lm_head.w"]
    assert [each["stage"] for each in plan(path).document()["tensors"]][:2] == ["embeddings", "m.layers.2"]
