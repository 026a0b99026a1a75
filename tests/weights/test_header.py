"""A safetensors file's header: what is refused, with which words, and that safetensors itself agrees."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from hcfs.errors import HcfsError
from hcfs.weights import DamagedWeights, UnreadableWeights
from hcfs.weights.dtypes import DTYPES
from hcfs.weights.header import HEADER_MAX, parse_header, read_header
from lab.harness.weights import entry, file_bytes, safetensors

U8 = entry("U8", [4], 0, 4)
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "shorter than a length": (b"\x02\0\0", "3 bytes are too few"),
    "header longer than the file": ((100).to_bytes(8, "little") + b"{}", "claims 100 bytes, and the file has 10"),
    "huge header": ((1 << 63).to_bytes(8, "little") + b"{}", f"and {HEADER_MAX} is the most"),
    "header above the limit": ((HEADER_MAX + 1).to_bytes(8, "little") + b"{}", f"and {HEADER_MAX} is the most"),
    "not UTF-8": (file_bytes(b'{"\xff": 1}'), "isn't UTF-8"),
    "not JSON": (file_bytes(b"{"), "isn't JSON"),
    "NaN": (file_bytes(b'{"a": NaN}'), "isn't JSON"),
    "half a surrogate": (
        file_bytes(b'{"\\ud800": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', b"x"),
        "isn't JSON",
    ),
    "a number of 5,000 digits": (file_bytes(b'{"a": ' + b"1" * 5000 + b"}"), "isn't JSON"),
    "a list": (file_bytes(b"[]"), "isn't a JSON object"),
    "nested": (file_bytes(b"[" * 200_000), "nested too deeply"),
    "NUL behind it": (file_bytes(b"{}\0"), "isn't JSON"),
    "metadata that isn't text": (file_bytes({"__metadata__": {"a": 1}}), "object of strings"),
    "metadata that isn't an object": (file_bytes({"__metadata__": []}), "object of strings"),
    "a name twice": (
        file_bytes(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],'
                   b'"data_offsets":[0,0]}}'),
        "'a' occurs twice",
    ),
    "a field twice": (
        file_bytes(b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "'dtype' occurs twice",
    ),
    "a tensor that is a list": (file_bytes({"a": ["U8", [4], [0, 4]]}, b"abcd"), "'a' lacks dtype"),
    "no offsets": (file_bytes({"a": {"dtype": "U8", "shape": [4]}}, b"abcd"), "'a' lacks dtype"),
    "unknown dtype": (file_bytes({"a": entry("I4", [8], 0, 4)}, b"abcd"), "unknown dtype 'I4'"),
    "dtype that is a list": (file_bytes({"a": {**U8, "dtype": []}}, b"abcd"), "unknown dtype"),
    "negative size": (file_bytes({"a": entry("U8", [-4], 0, 4)}, b"abcd"), "not a list of sizes"),
    "offset of -0": (
        file_bytes(b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[-0,4]}}', b"abcd"),
        "not a start and an end",
    ),
    "size that is a float": (file_bytes({"a": {**U8, "shape": [4.0]}}, b"abcd"), "not a list of sizes"),
    "size that is a truth": (file_bytes({"a": {**U8, "shape": [True, 4]}}, b"abcd"), "not a list of sizes"),
    "size of 2^64": (file_bytes({"a": entry("U8", [1 << 64, 0], 0, 0)}), "not a list of sizes"),
    "product of 2^65": (file_bytes({"a": entry("F32", [(1 << 64) - 1, 2], 0, 0)}), "overflows"),
    "product above 2^64, times 0": (file_bytes({"a": entry("F32", [(1 << 64) - 1, 2, 0], 0, 0)}), "overflows"),
    "three offsets": (file_bytes({"a": {**U8, "data_offsets": [0, 4, 4]}}, b"abcd"), "not a start and an end"),
    "offsets backwards": (file_bytes({"a": entry("U8", [0], 4, 0)}, b"abcd"), "not a start and an end"),
    "half a byte": (file_bytes({"a": entry("F4", [3], 0, 1)}, b"a"), "ends within a byte"),
    "shape that doesn't fit": (file_bytes({"a": entry("F32", [2], 0, 4)}, b"abcd"), "has 4 bytes where"),
    "gap": (file_bytes({"a": U8, "b": entry("U8", [1], 5, 6)}, b"abcdef"), "'b' leaves a gap"),
    "gap at the start": (file_bytes({"a": entry("U8", [4], 1, 5)}, b"abcde"), "'a' leaves a gap"),
    "overlap": (file_bytes({"a": U8, "b": entry("U8", [4], 2, 6)}, b"abcdef"), "'b' overlaps"),
    "the same bytes twice": (file_bytes({"a": U8, "b": U8}, b"abcd"), "overlaps"),
    "out of range": (file_bytes({"a": entry("U8", [1 << 40], 0, 1 << 40)}, b"abcd"), "truncated"),
    "one byte short": (safetensors({"a": ("U8", [4], b"abcd")})[:-1], "truncated"),
    "one byte more": (safetensors({"a": ("U8", [4], b"abcd")}) + b"x", "belong to no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_sentence(tmp_path: Path, case: str) -> None:
    content, words = REFUSED[case]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedWeights) as refusal:
        read_header(str(path))
    text = str(refusal.value)
    assert words in text
    assert str(path) in text
    assert "\n" not in text
    if case not in STRICTER:
        with pytest.raises(SafetensorError):
            deserialize(content)


# Where hcfs refuses what the package takes, as the docstring of hcfs/weights/header.py says. Python's limit on the
# digits of a number meets only what the package ignores or refuses too.
STRICTER = {"a name twice", "a tensor that is a list"}


@pytest.mark.parametrize("case", sorted(STRICTER))
def test_where_the_package_takes_more(case: str) -> None:
    """Should this fail, the package has become stricter, and the docstring and docs/weights.md should say so."""
    assert deserialize(REFUSED[case][0])


@pytest.mark.parametrize(
    "header",
    [{}, {"__metadata__": {"format": "pt"}}, {"__metadata__": None}, b"  {}  "],
    ids=["empty", "metadata", "null", "blanks"],
)
def test_files_without_tensors(tmp_path: Path, header: Any) -> None:
    path = tmp_path / "none.safetensors"
    path.write_bytes(file_bytes(header))
    assert read_header(str(path)).tensors == ()
    assert deserialize(path.read_bytes()) == []


def test_what_a_header_says(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"b": ("F32", [1, 1], b"abcd"), "none": ("BF16", [3, 0], b""), "": ("U8", [], b"x")}
    path.write_bytes(safetensors(tensors, {"format": "pt"}))
    header = read_header(str(path))
    assert header.metadata == {"format": "pt"}
    assert header.file_bytes == path.stat().st_size
    start = header.file_bytes - 5
    found = {each.name: (each.dtype, each.shape, each.start - start, each.end - start) for each in header.tensors}
    assert found == {"b": ("F32", (1, 1), 0, 4), "none": ("BF16", (3, 0), 4, 4), "": ("U8", (), 4, 5)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_of_dtypes_are_the_packages(dtype: str) -> None:
    content = file_bytes({"a": entry(dtype, [8], 0, DTYPES[dtype].bits)}, bytes(DTYPES[dtype].bits))
    assert [each["shape"] for _, each in deserialize(content)] == [[8]]
    content = file_bytes({"a": entry(dtype, [8], 0, DTYPES[dtype].bits + 1)}, bytes(DTYPES[dtype].bits + 1))
    with pytest.raises(SafetensorError):
        deserialize(content)


def test_the_dtypes_are_all_that_the_package_knows() -> None:
    with pytest.raises(SafetensorError) as refusal:
        deserialize(file_bytes({"a": entry("none", [], 0, 0)}))
    expected = str(refusal.value).partition("expected one of ")[2].partition(" at line")[0]
    assert {word.strip("` ") for word in expected.split(",")} == set(DTYPES)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.safetensors", tmp_path):
        with pytest.raises(UnreadableWeights, match=str(path)):
            read_header(str(path))


def _both(content: bytes) -> tuple[Any, Any]:
    """What hcfs and the package make of a file; None where they refuse it."""
    try:
        length = int.from_bytes(content[:8], "little")
        tensors, _ = parse_header("f", content[8 : 8 + length], len(content) - 8 - length)
        ours = sorted((each.name, each.dtype, list(each.shape)) for each in tensors)
    except HcfsError:
        ours = None
    try:
        theirs = sorted((name, each["dtype"], each["shape"]) for name, each in deserialize(content))
    except SafetensorError:
        theirs = None
    return ours, theirs


sizes = st.one_of(st.integers(0, 9), st.sampled_from([-1, 1 << 63, (1 << 64) - 1, 1 << 64, 1.0, True, None, "4"]))
offsets = st.lists(st.one_of(st.integers(0, 40), sizes), min_size=1, max_size=3)
descriptions = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, "I4", "f32", 1]),
        "shape": st.lists(sizes, max_size=3),
        "data_offsets": offsets,
    },
    optional={"more": st.none()},
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=3), descriptions, max_size=3), st.integers(0, 60))
def test_whatever_the_header_says_the_package_agrees(header: dict[str, Any], data: int) -> None:
    ours, theirs = _both(file_bytes(header, bytes(data)))
    assert ours == theirs


def test_damaged_bytes_of_good_headers_the_package_agrees() -> None:
    """Flips, cuts and repeats, 3,000 of them: nobody takes what the other refuses, but for doubled names."""
    chance = random.Random(5)
    good = safetensors({"a.0": ("F32", [2], bytes(8)), "b": ("U8", [3], b"xyz"), "c": ("I16", [0], b"")}, {"k": "v"})
    taken = 0
    for _ in range(3000):
        content = bytearray(good)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(8, len(content))
            content[at] = chance.choice([content[at] ^ (1 << chance.randrange(8)), *b'0129"[]{},:abc'])
        ours, theirs = _both(bytes(content))
        if ours != theirs:
            assert ours is None
            names = [name for name, _ in json.loads(content[8 : 8 + int.from_bytes(good[:8], "little")],
                                                    object_pairs_hook=list)]  # fmt: skip
            assert len(set(names)) < len(names)
        taken += theirs is not None
    assert taken > 50
