"""Nobody shares a device: refusals name who has it, under whatever name it is asked for."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from errno import EBUSY
from pathlib import Path
from typing import Any

import pytest
from device.conftest import run

from hcfs.device import BufferPool, DeviceHeld, DeviceUnusable, FileDevice, mounted_or_held, open_device
from hcfs.device import claim as claim_module
from hcfs.device import holders as holders_module
from hcfs.device import mounts as mounts_module
from lab.harness.namespaces import own_mounts

MIB = 1 << 20
SIZE = "64M"
Holder = Callable[[object], int]

HOLD = """
import sys
from hcfs.device import BufferPool, open_device
device = open_device(sys.argv[1], BufferPool(1 << 20))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[Holder]:
    """`holder(path)`: another process that has it open; its process id."""
    with ExitStack() as stack:

        def hold(path: object) -> int:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            return process.pid

        yield hold


def opened(path: object) -> FileDevice:
    return open_device(str(path), BufferPool(MIB))


def refused(path: object) -> str:
    """The sentence with which a claim is refused."""
    with pytest.raises(DeviceHeld) as caught:
        opened(path)
    assert caught.value.errno == EBUSY
    text = str(caught.value)
    assert text.startswith(f"{path} is in use: ")
    assert "\n" not in text
    return text


def test_an_image_that_another_process_has_is_refused_with_its_name(make_image: Any, holder: Holder) -> None:
    image = make_image(SIZE)
    pid = holder(image)
    assert f"locked by process {pid} ({sys.executable} -c import sys" in refused(image)
    assert mounted_or_held(str(image)) == refused(image).split("in use: ")[1].split("; stop")[0]


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_block_device_that_another_process_has_is_refused_with_its_name(
    make_loop: Any, holder: Holder, sector: int
) -> None:
    device = make_loop(SIZE, sector=sector)
    pid = holder(device)
    assert f"claimed by process {pid} ({sys.executable} -c import sys" in refused(device)
    assert f"claimed by process {pid} " in (mounted_or_held(str(device)) or "")


def test_the_same_process_is_refused_too_and_can_claim_again_after_close(make_image: Any, make_loop: Any) -> None:
    for path in (make_image(SIZE), make_loop(SIZE)):
        device = opened(path)
        assert f"process {os.getpid()} " in refused(path)
        device.close()
        assert mounted_or_held(str(path)) is None
        opened(path).close()


def test_a_symlink_a_hard_link_and_another_node_are_the_same_device(
    tmp_path: Path, make_image: Any, make_loop: Any
) -> None:
    image, device = make_image(SIZE), make_loop(SIZE)
    (tmp_path / "symlink").symlink_to(device)
    os.link(image, tmp_path / "hardlink")
    os.mknod(tmp_path / "node", 0o600 | 0o060000, os.stat(device).st_rdev)
    held = [opened(image), opened(tmp_path / "symlink")]
    for name in ("symlink", "hardlink", "node"):
        refused(tmp_path / name)
    refused(device)
    for device in held:
        device.close()


def test_an_image_is_refused_while_a_loop_device_over_it_is_claimed(
    make_image: Any, attach: Any, holder: Holder
) -> None:
    image = make_image(SIZE)
    node = attach(image)
    pid = holder(node)
    assert f"through {node}: claimed by process {pid} " in refused(image)


def test_a_loop_device_is_refused_while_its_image_is_claimed(make_image: Any, attach: Any, holder: Holder) -> None:
    image = make_image(SIZE)
    pid = holder(image)
    node = attach(image)
    assert f"through its backing file {image}: locked by process {pid} " in refused(node)
    assert f"through its backing file {image}: locked by process {pid} " in (mounted_or_held(node) or "")


def test_a_loop_device_whose_image_was_renamed_is_still_seen_through(
    make_image: Any, attach: Any, tmp_path: Path
) -> None:
    image = make_image(SIZE)
    node = attach(image)
    # The path that the kernel tells leads nowhere now: "image (deleted)".
    os.link(image, tmp_path / "other")
    image.unlink()
    device = opened(node)
    assert f"through {node}: claimed by process {os.getpid()} " in refused(tmp_path / "other")
    device.close()


def test_two_loop_devices_over_one_image_are_one_device(make_image: Any, attach: Any) -> None:
    image = make_image(SIZE)
    first, second = attach(image), attach(image)
    device = opened(first)
    assert f"through {first}: claimed by process {os.getpid()} " in refused(second)
    device.close()
    opened(second).close()


def test_a_loop_device_over_a_block_device_is_that_device(make_loop: Any, attach: Any) -> None:
    below = make_loop(SIZE)
    above = attach(below)
    for one, other in ((below, above), (above, below)):
        device = opened(one)
        refused(other)
        device.close()


def test_an_idle_loop_device_over_an_image_keeps_nobody_away(make_image: Any, attach: Any) -> None:
    image = make_image(SIZE)
    attach(image)
    opened(image).close()


def test_a_mounted_device_and_its_image_are_refused_with_the_mount_point(
    make_image: Any, attach: Any, mount_at: Any
) -> None:
    image = make_image(SIZE)
    run("mkfs.ext4", "-q", image)
    node = attach(image)
    directory = mount_at("mounted here", node)
    assert refused(node) == f"{node} is in use: mounted at {directory} (ext4); stop or unmount that first"
    assert f"through {node}: mounted at {directory} (ext4)" in refused(image)


def test_a_btrfs_device_is_refused_with_the_mount_point(make_image: Any, attach: Any, mount_at: Any) -> None:
    image = make_image("128M")
    run("mkfs.btrfs", "-q", image)
    node = attach(image)
    directory = mount_at("mounted", node)
    assert f"mounted at {directory} (btrfs)" in refused(node)


def test_a_mount_in_another_namespace_is_found(make_image: Any, attach: Any, tmp_path: Path) -> None:
    image = make_image(SIZE)
    run("mkfs.ext4", "-q", image)
    node = attach(image)
    script = f"mount {node} {tmp_path} && echo mounted && cat"
    with subprocess.Popen(own_mounts(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mounted\n"
        assert f"mounted at {tmp_path} (ext4) in the mount namespace of process " in refused(node)


def test_the_source_of_a_fuse_filesystem_is_held(make_image: Any, tmp_path: Path) -> None:
    """The kernel knows no device under a FUSE filesystem; its source word is all there is."""
    image, directory = make_image(SIZE), tmp_path / "mnt"
    directory.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(os.fsencode(image), os.fsencode(directory), b"fuse.hcfs", 0, options) == 0
    try:
        assert mounted_or_held(str(image)) == f"mounted at {directory} (fuse.hcfs)"
    finally:
        os.close(fd)
        libc.umount2(os.fsencode(directory), 2)
    assert mounted_or_held(str(image)) is None


@pytest.fixture
def partitioned(make_image: Any, attach: Any) -> Iterator[tuple[Path, str, list[str]]]:
    """An image with two partitions, the loop device over it, and the partitions' nodes."""
    image: Path = make_image(SIZE)
    run("sgdisk", "-n", "1:2048:+20M", "-n", "2:0:+20M", image)
    node = attach(image)
    run("partx", "-a", node)  # not losetup -P: some kernels read no partition tables
    yield image, node, [f"{node}p1", f"{node}p2"]
    run("partx", "-d", node)


def test_a_disk_is_refused_while_a_partition_is_in_use(
    partitioned: tuple[Path, str, list[str]], tmp_path: Path, holder: Holder
) -> None:
    image, node, (first, second) = partitioned
    run("mkfs.ext4", "-q", first)
    directory = tmp_path / "mounted"
    directory.mkdir()
    run("mount", first, directory)
    try:
        expected = f"through its partition {first}: mounted at {directory} (ext4)"
        assert expected in refused(node)
        assert f"through {node}: {expected}" in refused(image)
    finally:
        run("umount", directory)
    pid = holder(second)
    assert f"claimed by process {pid} " in refused(second)


def test_partitions_are_claimed_side_by_side_but_not_beside_the_whole(
    partitioned: tuple[Path, str, list[str]],
) -> None:
    image, node, parts = partitioned
    devices = [opened(part) for part in parts]
    assert f"through its partition {parts[0]}: claimed by process " in refused(node)
    refused(image)
    for device in devices:
        device.close()
    device = opened(image)
    assert f"through its backing file {image}: locked by process " in refused(parts[0])
    device.close()
    device = opened(node)
    refused(parts[0])
    device.close()


def test_swap_space_is_refused(make_loop: Any) -> None:
    device = make_loop(SIZE)
    run("mkswap", device)
    run("swapon", device)
    try:
        assert "in use: used as swap space" in refused(device)
    finally:
        run("swapoff", device)


def test_what_is_stacked_on_a_device_is_named(tmp_path: Path, make_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for holder, name in {"dm-0": "vg0-cache", "md127": None}.items():
        (tmp_path / "holders" / holder).mkdir(parents=True)
        if name:
            (tmp_path / "holders" / holder / "dm").mkdir()
            (tmp_path / "holders" / holder / "dm/name").write_text(f"{name}\n")
    monkeypatch.setattr(holders_module, "sysfs_directory", lambda rdev: tmp_path)
    device = str(make_loop(SIZE))
    assert mounted_or_held(device) == "held by dm-0 (vg0-cache)"
    (tmp_path / "holders/dm-0/dm/name").unlink()
    assert mounted_or_held(device) == "held by dm-0"


def test_a_lock_that_was_left_to_a_child_is_traced_to_the_child(make_image: Any, tmp_path: Path) -> None:
    """The kernel remembers who took a lock: for a daemon that is its parent, which has ended."""
    image = make_image(SIZE)
    daemonize = "import os; os._exit(0) if os.fork() else None"
    program = HOLD.replace("print", f"{daemonize}\nprint")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(image)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "held\n"
        parent.wait()
        text = refused(image)
        assert f"process {parent.pid} " not in text
        assert "locked by process " in text
        assert "import sys" in text


def test_without_a_claim_a_device_can_be_looked_at_while_it_is_in_use(
    make_image: Any, make_loop: Any, holder: Holder
) -> None:
    for path in (make_image(SIZE), make_loop(SIZE)):
        holder(path)
        device = open_device(str(path), BufferPool(MIB), read_only=True, exclusive=False)
        device.read_into(0, memoryview(bytearray(4096)))
        device.close()


def test_a_filesystem_without_locks_is_refused(make_image: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    image = make_image(SIZE)
    with monkeypatch.context() as patched:
        patched.setattr(claim_module.fcntl, "flock", refuse)
        with pytest.raises(DeviceUnusable, match=r"can't be claimed: .*No locks available.*local filesystem"):
            opened(image)
    opened(image).close()


def test_nobody_holds_what_is_no_device(tmp_path: Path) -> None:
    assert mounted_or_held(str(tmp_path)) is None
    assert mounted_or_held(str(tmp_path / "none")) is None
    assert mounted_or_held("/dev/null") is None


def test_blanks_in_the_kernels_tables_are_read() -> None:
    assert mounts_module.unescape(r"/mnt/a\040b\134c") == "/mnt/a b\\c"


def test_holder_that_cannot_be_seen_is_said_so() -> None:
    assert "can't be named from here" in str(DeviceHeld("/dev/sda"))
