"""The Llama that first tokens are timed with computes what transformers' computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hcfs.weights import plan, stream
from hcfs.weights.bench.llama import Forward, Shape, shape_for, write

torch = pytest.importorskip("torch")
TINY = Shape(hidden=64, layers=3, heads=4, kv_heads=2, ffn=128, vocabulary=256)


def logits(path: Path, shape: Shape, tokens: list[int]) -> torch.Tensor:
    forward = Forward(shape, torch.tensor(tokens))
    with torch.inference_mode(), stream(path) as model:
        for name, weights in model.stages():
            forward.stage(name, weights)
    return forward.logits


@pytest.mark.parametrize("count", [1, 2, 33])
def test_the_logits_are_transformers(tmp_path: Path, count: int) -> None:
    transformers = pytest.importorskip("transformers")
    write(str(tmp_path), TINY, "float32", shard_bytes=100_000)
    assert len(plan(tmp_path).files) > 2
    tokens = [(7 * each) % 256 for each in range(count)]
    config = transformers.LlamaConfig(
        vocab_size=TINY.vocabulary,
        hidden_size=TINY.hidden,
        num_hidden_layers=TINY.layers,
        num_attention_heads=TINY.heads,
        num_key_value_heads=TINY.kv_heads,
        intermediate_size=TINY.ffn,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=False,
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.load_state_dict(dict(stream(tmp_path)), strict=True)
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0, -1]
    torch.testing.assert_close(logits(tmp_path, TINY, tokens), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("elements", [100_000, 5_000_000, 25_000_000, 150_000_000, 350 << 20])
def test_a_shape_of_about_a_size(elements: int) -> None:
    shape = shape_for(elements)
    assert 0.8 < shape.elements() / elements < 1.2
    assert shape.hidden % shape.heads == 0


def test_what_is_written_is_the_shape(tmp_path: Path) -> None:
    total = write(str(tmp_path), TINY, "bfloat16", shard_bytes=50_000)
    found = {each.info.name: list(each.info.shape) for each in plan(tmp_path).tensors}
    assert found == {name: size for stage in TINY.tensors() for name, size in stage.items()}
    assert plan(tmp_path).nbytes == total == 2 * TINY.elements()
    assert json.loads((tmp_path / "model.safetensors.index.json").read_text())["metadata"]["total_size"] == total
    assert logits(tmp_path, TINY, [1, 2, 3]).dtype == torch.bfloat16
