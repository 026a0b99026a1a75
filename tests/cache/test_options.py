"""Texts of namespace options."""

from __future__ import annotations

import pytest

from hcfs.errors import UsageError
from hcfs.options.namespace_options import OPTIONS, NamespaceOptions, checked, parse
from hcfs.options.schemes import FORMS


def test_defaults() -> None:
    assert parse({}) == NamespaceOptions()
    assert parse({b"user.color": b"blue"}) == NamespaceOptions()
    assert NamespaceOptions() == NamespaceOptions(("*.tmp",), "read", None, None, None, None)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("verify", "open", NamespaceOptions(verify="open")),
        ("verify", "read", NamespaceOptions()),
        ("verify", None, NamespaceOptions()),
        (
            "staging_patterns",
            "*.tmp, *.incomplete,*.bin.tmp.*,*.tmp",
            NamespaceOptions(staging_patterns=("*.tmp", "*.incomplete", "*.bin.tmp.*")),
        ),
        ("staging_patterns", "*.tmp", NamespaceOptions()),
        ("staging_patterns", None, NamespaceOptions()),
        ("quota", "none", NamespaceOptions()),
        ("salt_quota", "none", NamespaceOptions()),
        ("quota", "1G", NamespaceOptions(quota=1 << 30)),
        ("quota", "0", NamespaceOptions(quota=0)),
        ("salt_quota", "64m", NamespaceOptions(salt_quota=64 << 20)),
        ("origin", "none", NamespaceOptions()),
        ("write_policy", "none", NamespaceOptions()),
    ],
)
def test_what_is_set_is_what_is_read(option: str, value: str | None, expected: NamespaceOptions) -> None:
    text = checked(option, value)
    attributes = {} if text is None else {b"hcfs." + option.encode(): text.encode()}
    assert parse(attributes) == expected
    assert (text is None) is (expected == NamespaceOptions())


ORIGINS = f"give {FORMS}"
REFUSED = {
    ("quota", "much"): "quota=much can't be set: it isn't a size; give one such as 64M or 1G, or none",
    ("quota", "-1"): "quota=-1 can't be set: it isn't a size; give one such as 64M or 1G, or none",
    (
        "salt_quota",
        "9999999999T",
    ): "salt_quota=9999999999T can't be set: it isn't a size; give one such as 64M or 1G, or none",
    ("origin", "s3://"): f"origin=s3:// can't be set: it names no bucket; {ORIGINS}",
    **{
        (
            "origin",
            url,
        ): f"origin={url} can't be set: its prefix begins or ends with a blank, or has an empty part, . or ..; "
        f"{ORIGINS}"
        for url in ("s3://b/../p", "gs://b/x/%2e%2e/p", "s3://b/x//y", "s3://b/p ", "s3://b/./p")
    },
    ("origin", "gs:///x"): f"origin=gs:///x can't be set: it names no bucket; {ORIGINS}",
    (
        "origin",
        "az://container/x",
    ): f"origin=az://container/x can't be set: it is none of those that this version of hcfs reads; {ORIGINS}",
    (
        "origin",
        "s3://me:word@b/x",
    ): "origin=s3://me:word@b/x can't be set: credentials aren't part of it: they come "
    f"from the daemon's environment; {ORIGINS}",
    ("origin_changes", "revalidate=-1"): "origin_changes=revalidate=-1 can't be set: give immutable, or "
    "revalidate=SECONDS with at most 2592000",
    ("origin_check", "sha1"): "origin_check=sha1 can't be set: there is no such value; give etag or length",
    ("origin_open", "late"): "origin_open=late can't be set: there is no such value; give stream or whole",
    ("write_policy", "always"): "write_policy=always can't be set: there is no such policy; give read-only, "
    "write-through, write-back",
    ("verify", "always"): "verify=always can't be set: there is no such value; give read or open",
    ("colour", "blue"): "colour=blue can't be set: there is no such option; give one of staging_patterns, verify, "
    "quota, salt_quota, origin, origin_changes, origin_check, origin_open, write_policy",
    ("staging_patterns", ""): "staging_patterns= can't be set: one of the patterns is empty; separate patterns with "
    "single commas, as in *.tmp,*.incomplete",
    ("staging_patterns", "*.tmp,,"): "staging_patterns=*.tmp,, can't be set: one of the patterns is empty; separate "
    "patterns with single commas, as in *.tmp,*.incomplete",
    ("staging_patterns", "a/*"): "staging_patterns=a/* can't be set: 'a/*' has a character that no name has; give "
    "patterns of names without directories, as in *.tmp,*.incomplete",
    ("staging_patterns", "**"): "staging_patterns=** can't be set: '**' matches every name, so nothing would ever be "
    "published; give patterns of temporary names, as in *.tmp,*.incomplete",
    ("staging_patterns", "*.lock"): "staging_patterns=*.lock can't be set: '*.lock' is for lock files, which are never "
    "staged; give patterns of temporary names, as in *.tmp,*.incomplete",
}


def test_an_origin_and_what_is_said_of_it() -> None:
    origin = {b"hcfs.origin": b"s3://bucket/models"}
    options = parse(origin)
    assert (options.origin, options.origin_changes, options.revalidate_s) == ("s3://bucket/models", "immutable", None)
    assert (options.origin_check, options.write_policy) == ("etag", "read-only")
    assert parse(origin | {b"hcfs.verify": b"open"}).origin_open == "whole"
    assert (options.origin_open, parse(origin | {b"hcfs.origin_open": b"whole"}).origin_open) == ("stream", "whole")
    for policy in ("write-back", "write-through"):
        assert checked("write_policy", policy) == policy
        options = parse(origin | {b"hcfs.write_policy": policy.encode()})
        assert (options.write_policy, options.writes) == (policy, True)
    options = parse(origin | {b"hcfs.origin_changes": b"revalidate=60", b"hcfs.origin_check": b"length"})
    assert (options.origin_changes, options.revalidate_s, options.origin_check) == ("revalidate=60", 60.0, "length")
    assert parse({b"hcfs.origin_changes": b"revalidate=60"}) == NamespaceOptions()  # left over, and without effect
    assert checked("origin_changes", "revalidate=060") == "revalidate=60"
    assert checked("origin_changes", "immutable") is checked("write_policy", "read-only") is None


@pytest.mark.parametrize(("option", "value"), REFUSED)
def test_what_can_not_be_is_refused_with_reason_and_remedy(option: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked(option, value)
    assert str(caught.value) == REFUSED[option, value]


def test_too_many_or_too_long_patterns_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 16 patterns; give fewer"):
        checked("staging_patterns", ",".join(f"*.{number}" for number in range(17)))
    with pytest.raises(UsageError, match="has more than 255 bytes; give shorter patterns"):
        checked("staging_patterns", "é" * 128)
    checked("staging_patterns", "é" * 127)


@pytest.mark.parametrize(
    "attributes", [{b"hcfs.quota": b"?"}, {b"hcfs.compression": b"zstd"}, {b"hcfs.verify": b"\xff"}]
)
def test_what_a_later_version_wrote_is_not_ignored(attributes: dict[bytes, bytes]) -> None:
    with pytest.raises(UsageError):
        parse(attributes)


def test_every_option_has_a_field() -> None:
    assert {*OPTIONS, "origin_problem"} == set(NamespaceOptions.__dataclass_fields__)


def test_staging_names() -> None:
    options = NamespaceOptions(staging_patterns=("*.tmp", "*.bin.tmp.*", "part-??"))
    for name in (b"x.tmp", b".tmp", b"a\nb.tmp", b"x.bin.tmp.12.7.ab", b"\xff\xfe.tmp", b"part-\xff1"):
        assert options.is_staging_name(name), name
    for name in (b"x.tmp2", b"x.TMP", b"tmp", b"x.tmp\n", b"part-1", b"x.bin.tmq", b"xpart-11"):
        assert not options.is_staging_name(name), name
    assert NamespaceOptions(staging_patterns=("é?",)).is_staging_name("éx".encode())
