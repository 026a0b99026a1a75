"""Names of chunk files: read, written, told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcfs.lmcache.keys import ChunkName, Key, OtherName, file_name, parse_name

HASH = "00ff" * 16

models = st.text(st.characters(exclude_characters="@\0", exclude_categories=["Cs"]), max_size=40)
salts = st.text(st.characters(exclude_characters="@/\\\0", exclude_categories=["Cs"]), max_size=128)
groups = st.none() | st.integers(0, (1 << 28) - 1)
keys = st.builds(Key, models, st.integers(0, 1 << 40), groups, st.binary(min_size=4, max_size=40).map(bytes.hex), salts)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (f"m@0x01000100@0@{HASH}.data", Key("m", 0x01000100, 0, HASH)),
        (f"m@0x01000100@1f@{HASH}.data", Key("m", 0x01000100, 0x1F, HASH)),
        (f"m@0x01000100@0@{HASH}@team-7.data", Key("m", 0x01000100, 0, HASH, "team-7")),
        (f"m@0x01000100@{HASH}.data", Key("m", 0x01000100, None, HASH)),
        (f"m@0x01000100@{HASH}@team-7.data", Key("m", 0x01000100, None, HASH, "team-7")),
        (f"m@0x01000100@0@{HASH}@x.data.data", Key("m", 0x01000100, 0, HASH, "x.data")),
        (f"org-SEP-m@0x1ff000100@0@{HASH}.data", Key("org/m", 0x1FF000100, 0, HASH)),
        (f"@0x00000000@0@{HASH}.data", Key("", 0, 0, HASH)),
    ],
)
def test_every_shape_that_lmcache_writes_is_read(name: str, key: Key) -> None:
    found = parse_name(name)
    assert isinstance(found, ChunkName)
    assert found.key == key
    assert found.name == name
    assert file_name(key) == name
    assert parse_name(name.encode()) == found


@given(keys)
def test_a_keys_name_reads_as_that_key(key: Key) -> None:
    found = parse_name(file_name(key))
    assert isinstance(found, ChunkName)
    model = key.model.replace("/", "-SEP-").replace("-SEP-", "/")
    assert found.key == Key(model, key.rank, key.group, key.hash, key.salt)
    assert found.model_is_ambiguous == ("/" in key.model or "-SEP-" in key.model)


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_name_is_read_or_refused_with_a_reason(name: str | bytes) -> None:
    found = parse_name(name)
    if isinstance(found, ChunkName):
        assert file_name(found.key) == found.name
    else:
        assert found.reason
        assert found.name.encode() is not None


@given(keys, st.data())
def test_what_reads_as_a_key_was_written_for_it(key: Key, data: st.DataObject) -> None:
    """A byte changed anywhere gives another key's name or none, never a name that no version writes."""
    name = file_name(key)
    at = data.draw(st.integers(0, len(name) - 1))
    found = parse_name(name[:at] + data.draw(st.sampled_from("0aA@-x/.")) + name[at + 1 :])
    if isinstance(found, ChunkName):
        assert file_name(found.key) == found.name


def test_the_slash_replacement_is_not_injective_and_that_is_said() -> None:
    with_slash, without = Key("a/b", 1, 0, HASH), Key("a-SEP-b", 1, 0, HASH)
    assert file_name(with_slash) == file_name(without)
    found = parse_name(file_name(without))
    assert isinstance(found, ChunkName)
    assert found.key == with_slash
    assert found.model_is_ambiguous
    plain = parse_name(file_name(Key("a", 1, 0, HASH)))
    assert isinstance(plain, ChunkName)
    assert not plain.model_is_ambiguous


def test_a_salt_that_looks_like_a_hash_stays_a_salt() -> None:
    with_group = parse_name(f"m@0x00000001@0@{HASH}@{HASH}.data")
    without = parse_name(f"m@0x00000001@{HASH}@{HASH}.data")
    assert isinstance(with_group, ChunkName)
    assert isinstance(without, ChunkName)
    assert (with_group.key.group, with_group.key.hash, with_group.key.salt) == (0, HASH, HASH)
    assert (without.key.group, without.key.hash, without.key.salt) == (None, HASH, HASH)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("notes.txt", "does not end in .data"),
        (f"m@0x00000001@0@{HASH}.tmp", "does not end in .data"),
        ("m.data", "1 fields separated by '@'"),
        (f"a@b@m@0x00000001@0@{HASH}.data", "6 fields separated by '@'"),
        (f"m@00000001@0@{HASH}.data", "'00000001' is not a rank"),
        (f"m@0x1@0@{HASH}.data", "'0x1' is not a rank"),
        (f"m@0x000000001@0@{HASH}.data", "'0x000000001' is not a rank"),
        (f"m@0x0000000A@0@{HASH}.data", "'0x0000000A' is not a rank"),
        (f"m@0x00000001@00@{HASH}.data", "'00' is not an object group or a chunk hash"),
        (f"m@0x00000001@{HASH}@{HASH}@s.data", "is not an object group"),
        ("m@0x00000001@xyz.data", "'xyz' is not a chunk hash"),
        ("m@0x00000001@0@abc.data", "'abc' is not a chunk hash"),
        (f"m@0x00000001@0@{HASH.upper()}.data", "is not a chunk hash"),
        (f"m@0x00000001@0@{HASH}@.data", "'' is not a cache salt"),
        (f"m@0x00000001@0@{HASH}@{'s' * 129}.data", "is not a cache salt"),
        (f"dir/m@0x00000001@0@{HASH}.data", "not a file's name"),
        (b"m\xff@0x00000001@0@" + HASH.encode() + b".data", "not UTF-8"),
        (f"m\udcff@0x00000001@0@{HASH}.data", "not UTF-8"),
    ],
)
def test_other_names_are_reported_with_the_reason(name: str | bytes, reason: str) -> None:
    found = parse_name(name)
    assert isinstance(found, OtherName)
    assert reason in found.reason
    found.name.encode()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("a@b", 0, 0, HASH, ""), "model"),
        (("a", -1, 0, HASH, ""), "rank"),
        (("a", 0, -1, HASH, ""), "group"),
        (("a", 0, 1 << 28, HASH, ""), "group"),
        (("a", 0, 0, "ABCDEF01", ""), "hash"),
        (("a", 0, 0, "abcdef", ""), "hash"),
        (("a", 0, 0, HASH, "a/b"), "salt"),
        (("a", 0, 0, HASH, "s" * 129), "salt"),
    ],
)
def test_a_key_that_lmcache_cannot_have_is_refused(fields: tuple[str, int, int, str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Key(*fields)
