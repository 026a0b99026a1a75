"""The structures are the kernel's: sizes and offsets against a C compiler's, where its header is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hcfs.fuse import protocol
from hcfs.fuse.protocol import InitFlag, MalformedRequest, Opcode, OpenFlag, name_of, names_of

HEADER = Path("/usr/include/linux/fuse.h")
STRUCTURES = {
    "fuse_in_header": protocol.IN_HEADER,
    "fuse_out_header": protocol.OUT_HEADER,
    "fuse_init_in": protocol.INIT_IN,
    "fuse_init_out": protocol.INIT_OUT,
    "fuse_entry_out": protocol.ENTRY_OUT,
    "fuse_attr_out": protocol.ATTR_OUT,
    "fuse_open_in": protocol.OPEN_IN,
    "fuse_open_out": protocol.OPEN_OUT,
    "fuse_create_in": protocol.CREATE_IN,
    "fuse_read_in": protocol.READ_IN,
    "fuse_write_in": protocol.WRITE_IN,
    "fuse_write_out": protocol.WRITE_OUT,
    "fuse_release_in": protocol.RELEASE_IN,
    "fuse_flush_in": protocol.FLUSH_IN,
    "fuse_rename_in": protocol.RENAME_IN,
    "fuse_rename2_in": protocol.RENAME2_IN,
    "fuse_getxattr_in": protocol.GETXATTR_IN,
    "fuse_notify_inval_inode_out": protocol.INVAL_INODE_OUT,
    "fuse_notify_inval_entry_out": protocol.INVAL_ENTRY_OUT,
}
# Newer than Debian 12's header.
LATER = {"FUSE_DIRECT_IO_ALLOW_MMAP"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a C compiler makes of the header: sizes of structures, and constants."""
    if not HEADER.exists():
        pytest.skip("linux/fuse.h isn't installed")
    top = tmp_path_factory.mktemp("header")
    text = HEADER.read_text()
    names = [f"FUSE_{flag.name}" for flag in InitFlag] + [f"FOPEN_{flag.name}" for flag in OpenFlag]
    names += [f"FUSE_{opcode.name}" for opcode in Opcode]
    names = [name for name in names if f"{name}\t" in text or f"{name} " in text]
    lines = [f'printf("{name} %zu\\n", sizeof(struct {name}));' for name in STRUCTURES]
    lines += [f'printf("{name} %llu\\n", (unsigned long long){name});' for name in names]
    source = top / "sizes.c"
    source.write_text("#include <stdio.h>\n#include <linux/fuse.h>\nint main(void) {" + "\n".join(lines) + "}\n")
    subprocess.run(["cc", "-o", top / "sizes", source], check=True)
    out = subprocess.run([top / "sizes"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in out.splitlines())}


@pytest.mark.parametrize("name", STRUCTURES)
def test_sizes(compiled: dict[str, int], name: str) -> None:
    assert STRUCTURES[name].size == compiled[name]


def test_flags_and_opcodes(compiled: dict[str, int]) -> None:
    for flag in InitFlag:
        name = f"FUSE_{flag.name}"
        assert compiled.get(name, flag if name in LATER else None) == flag
    assert all(compiled[f"FOPEN_{flag.name}"] == flag for flag in OpenFlag)
    known = [opcode for opcode in Opcode if f"FUSE_{opcode.name}" in compiled]
    assert len(known) > 40
    assert all(compiled[f"FUSE_{opcode.name}"] == opcode for opcode in known)


def test_names() -> None:
    assert name_of(b"a name\0") == b"a name"
    assert names_of(b"old\0new\0") == (b"old", b"new")
    for wrong in (b"", b"\0", b"no end"):
        with pytest.raises(MalformedRequest):
            name_of(wrong)
    for wrong in (b"one\0", b"one\0two", b"one\0\0"):
        with pytest.raises(MalformedRequest):
            names_of(wrong)
