"""Block devices and images: direct I/O from any address, its fallback, and what the kernel can do to a transfer."""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EAGAIN, EINTR, EIO, ENOENT, ENOSPC, EROFS
from pathlib import Path
from typing import Any

import pytest

from hcfs.device import (
    BLOCK,
    BufferPool,
    DeviceError,
    DeviceNotFound,
    DeviceReadOnly,
    DeviceTooSmall,
    FileDevice,
    NotADevice,
    open_device,
)
from hcfs.device import file as file_module
from hcfs.device import opening as opening_module
from lab.harness.images import in_memory

MIB = 1 << 20
SIZE = 16 * MIB


@pytest.fixture(params=["image", "tmpfs", "loop512", "loop4096"])
def path(request: pytest.FixtureRequest, make_image: Any, make_loop: Any) -> Iterator[str]:
    if request.param == "image":
        yield str(make_image(SIZE))
    elif request.param == "tmpfs":
        image = in_memory(os.getpid()).path / "file.img"
        with image.open("wb") as file:
            file.truncate(SIZE)
        yield str(image)
        image.unlink()
    else:
        yield str(make_loop(SIZE, sector=int(request.param[4:])))


@pytest.fixture
def device(path: str) -> Iterator[FileDevice]:
    device = open_device(path, BufferPool(4 * MIB))
    yield device
    device.close()


def read(device: FileDevice, offset: int, length: int) -> bytes:
    buffer = memoryview(bytearray(length))
    device.read_into(offset, buffer)
    return bytes(buffer)


def test_a_device_is_opened_direct_with_its_size_rounded_down(device: FileDevice, path: str) -> None:
    assert (device.name, device.size, device.io, device.read_only) == (path, SIZE, "direct", False)


def test_what_is_written_bypasses_no_other_reader(device: FileDevice, path: str) -> None:
    data = random.Random(1).randbytes(MIB)
    device.write(4 * BLOCK, data)
    device.flush()
    with open(path, "rb") as other:
        other.seek(4 * BLOCK)
        assert other.read(MIB) == data


@pytest.mark.parametrize("skew", [0, 1, 4, 48, 512, 4095])
def test_memory_at_any_address_can_be_written_and_read_into(device: FileDevice, skew: int) -> None:
    data = random.Random(skew).randbytes(2 * MIB + BLOCK)
    aligned = BufferPool(8 * MIB).acquire(len(data) + BLOCK)
    source = aligned[skew : skew + len(data)]
    source[:] = data
    device.write(BLOCK, source)
    source[:] = bytes(len(data))
    device.read_into(BLOCK, source)
    assert source == data
    suits = skew % device.geometry.dio_memory_alignment == 0
    assert device._pool.copied_bytes == (0 if suits else 2 * len(data))


def test_an_aligned_buffer_is_not_copied(device: FileDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(length: int) -> memoryview:
        raise AssertionError("a copy was made")

    buffer = BufferPool(MIB).acquire(64 * BLOCK)
    monkeypatch.setattr(device._pool, "try_acquire", refuse)
    device.write(0, buffer)
    device.read_into(0, buffer)


def test_copies_are_made_without_the_pool_when_it_is_used_up(path: str) -> None:
    pool = BufferPool(MIB)
    device = open_device(path, pool)
    everything = pool.acquire(MIB)
    data = random.Random(2).randbytes(MIB)
    unaligned = bytearray(len(data) + 1)
    results: list[bytes] = []

    def work(start: int) -> None:
        # Both use the one spare buffer at once.
        device.write(start, memoryview(b"-" + data)[1:])
        results.append(read(device, start, len(data)))

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 4 * MIB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [data, data]
    assert len(everything) + 1 == len(unaligned)
    device.close()


def test_threads_read_and_write_side_by_side(device: FileDevice) -> None:
    failures: list[int] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        region = number * 2 * MIB
        for _ in range(20):
            length = chance.randrange(1, 64) * BLOCK
            offset = region + chance.randrange((2 * MIB - length) // BLOCK + 1) * BLOCK
            data = chance.randbytes(length)
            device.write(offset, data)
            if read(device, offset, length) != data:
                failures.append(number)
        device.flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_discard_gives_space_back(make_image: Any) -> None:
    image = make_image(SIZE)
    device = open_device(str(image), BufferPool(MIB))
    device.write(0, b"x" * SIZE)
    device.flush()
    before = os.stat(image).st_blocks
    device.discard(0, SIZE)
    assert os.stat(image).st_blocks < before // 4
    assert os.stat(image).st_size == SIZE
    assert read(device, 0, MIB) == bytes(MIB)
    device.close()


def test_discard_reaches_the_file_under_a_loop_device(make_loop: Any) -> None:
    device = open_device(str(make_loop(SIZE)), BufferPool(MIB))
    device.write(0, b"x" * SIZE)
    device.discard(MIB, SIZE - 2 * MIB)
    assert read(device, MIB, MIB) == bytes(MIB)
    assert read(device, 0, MIB) == read(device, SIZE - MIB, MIB) == b"x" * MIB
    device.close()


@pytest.mark.parametrize("where", ["image", "loop"])
def test_where_discards_and_holes_are_not_supported(where: str, ramfs: Path, attach: Any) -> None:
    """A discard is no error, but told; zeros are written."""
    image = ramfs / "image"
    image.write_bytes(b"x" * SIZE)
    device = open_device(attach(image) if where == "loop" else str(image), BufferPool(MIB))
    assert not device.takes_discard
    assert not device.discard(0, SIZE)
    device.zero(MIB, SIZE - 2 * MIB)
    device.flush()
    assert read(device, 0, SIZE) == b"x" * MIB + bytes(SIZE - 2 * MIB) + b"x" * MIB
    device.close()


def test_zeroing_a_loop_device_makes_holes(make_loop: Any) -> None:
    """Its driver does that by itself, as a drive would."""
    device = open_device(str(make_loop(SIZE)), BufferPool(MIB))
    assert device.takes_discard
    device.write(0, b"x" * SIZE)
    device.zero(MIB, SIZE - 2 * MIB)
    device.flush()
    assert read(device, 0, SIZE) == b"x" * MIB + bytes(SIZE - 2 * MIB) + b"x" * MIB
    device.close()


def test_zeroing_an_image_overwrites_what_it_holds(make_image: Any) -> None:
    """Giving the blocks back would leave the bytes on the filesystem below; and what is a hole stays one."""
    image = make_image(SIZE)
    device = open_device(str(image), BufferPool(MIB))
    assert device.takes_discard
    device.write(0, b"x" * MIB)
    device.write(2 * MIB, b"x" * MIB)
    device.flush()
    before = os.stat(image).st_blocks
    device.zero(BLOCK, SIZE - BLOCK)
    device.flush()
    assert read(device, 0, SIZE) == b"x" * BLOCK + bytes(SIZE - BLOCK)
    assert abs(os.stat(image).st_blocks - before) <= 2 * BLOCK // 512
    device.close()


def test_nothing_is_zeroed_or_discarded_read_only(make_image: Any) -> None:
    image = make_image(SIZE)
    device = open_device(str(image), BufferPool(MIB), read_only=True)
    assert not device.takes_discard
    assert not device.discard(0, MIB)
    with pytest.raises(DeviceError) as refusal:
        device.zero(0, MIB)
    assert refusal.value.os_errno == EROFS
    device.close()


# Where there is no direct I/O


def test_a_filesystem_without_direct_io_is_used_through_the_page_cache_and_said_once(
    ramfs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = ramfs / "image"
    image.write_bytes(bytes(SIZE))
    with caplog.at_level(logging.INFO):
        device = open_device(str(image), BufferPool(MIB))
    assert device.io == "buffered"
    data = random.Random(3).randbytes(MIB)
    device.write(BLOCK, data)
    device.flush()
    assert read(device, BLOCK, MIB) == data
    device.close()
    said = [record for record in caplog.records if "no direct I/O" in record.getMessage()]
    assert [(record.levelname, str(image) in record.getMessage()) for record in said] == [("INFO", True)]


def test_a_filesystem_that_refuses_direct_reads_is_used_through_the_page_cache(
    make_image: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(22, "Invalid argument")

    with monkeypatch.context() as patched:
        patched.setattr(opening_module.os, "preadv", refuse)
        device = open_device(str(make_image(SIZE)), BufferPool(MIB))
    assert device.io == "buffered"
    device.write(0, memoryview(b"-" + b"x" * BLOCK)[1:])
    device.flush()
    assert read(device, 0, BLOCK) == b"x" * BLOCK
    device.close()


def test_a_failed_flush_is_never_followed_by_a_good_one(
    small_tmpfs: Path, monkeypatch: pytest.MonkeyPatch, attach: Any
) -> None:
    """The kernel forgets pages that it couldn't write: the second fdatasync on the same descriptor succeeds."""
    image = small_tmpfs / "image"
    with image.open("wb") as file:
        file.truncate(SIZE)
    loop = attach(image)
    monkeypatch.setattr(opening_module, "_turn_on_direct_io", lambda fd: "none in this test")
    device = open_device(loop, BufferPool(MIB))
    assert device.io == "buffered"
    device.write(0, b"x" * 4 * MIB)
    for _ in range(3):
        with pytest.raises(DeviceError, match="flush failed: ") as caught:
            device.flush()
        assert caught.value.errno == EIO
        assert caught.value.operation == "flush"
        assert caught.value.offset is None
        # The kernel itself has forgotten it by now.
        os.fdatasync(device._fd)
    device.close()


def test_a_medium_that_cannot_take_a_write_is_a_device_error_that_names_the_reason(small_tmpfs: Path) -> None:
    image = small_tmpfs / "image"
    with image.open("wb") as file:
        file.truncate(SIZE)
    device = open_device(str(image), BufferPool(MIB))
    with pytest.raises(
        DeviceError, match=r"write of \d+ bytes at offset \d+ failed: No space left.*; free space"
    ) as caught:
        device.write(0, bytes(4 * MIB))
    assert (caught.value.errno, caught.value.os_errno) == (EIO, ENOSPC)
    device.close()


# What the kernel may do to a transfer


class Kernel:
    """Stands before pread and pwrite: answers from `script` first, one entry a call: a limit in bytes or an errno."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: list[int | OSError]) -> None:
        self.script = script
        self.lengths: list[int] = []
        real_read, real_write = os.preadv, os.pwrite

        def read(fd: int, buffers: list[memoryview], offset: int) -> int:
            return self.answer(len(buffers[0]), lambda length: real_read(fd, [buffers[0][:length]], offset))

        def write(fd: int, data: memoryview, offset: int) -> int:
            return self.answer(len(data), lambda length: real_write(fd, data[:length], offset))

        monkeypatch.setattr(file_module.os, "preadv", read)
        monkeypatch.setattr(file_module.os, "pwrite", write)

    def answer(self, length: int, call: Callable[[int], int]) -> int:
        self.lengths.append(length)
        step = self.script.pop(0) if self.script else length
        if isinstance(step, OSError):
            raise step
        return call(min(step, length))


INTERRUPTED = OSError(EINTR, "Interrupted system call")
AGAIN = OSError(EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    "script",
    [
        [BLOCK],
        [BLOCK, BLOCK, 3 * BLOCK],
        [INTERRUPTED],
        [AGAIN, AGAIN],
        [2 * BLOCK, INTERRUPTED, BLOCK, AGAIN, BLOCK],
    ],
)
def test_short_and_interrupted_transfers_go_on(
    make_loop: Any, monkeypatch: pytest.MonkeyPatch, script: list[int | OSError]
) -> None:
    device = open_device(str(make_loop(SIZE, sector=4096)), BufferPool(MIB))
    data = BufferPool(MIB).acquire(8 * BLOCK)
    data[:] = random.Random(4).randbytes(8 * BLOCK)
    with monkeypatch.context() as patched:
        kernel = Kernel(patched, list(script))
        device.write(0, data)
        assert kernel.script == []
    assert read(device, 0, 8 * BLOCK) == data
    with monkeypatch.context() as patched:
        kernel = Kernel(patched, list(script))
        assert read(device, 0, 8 * BLOCK) == data
        assert kernel.script == []
    device.close()


def test_a_transfer_that_ended_within_a_sector_goes_on_from_its_start(
    make_loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_device(str(make_loop(SIZE)), BufferPool(MIB))
    device.write(0, b"x" * 2 * BLOCK)
    buffer = BufferPool(MIB).acquire(2 * BLOCK)
    real = os.preadv
    answers = [700]
    seen: list[int] = []

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        seen.append(offset)
        whole = real(fd, buffers, offset)
        return answers.pop() if answers else whole

    with monkeypatch.context() as patched:
        patched.setattr(file_module.os, "preadv", preadv)
        device.read_into(0, buffer)
    assert seen == [0, 512]
    assert buffer == b"x" * 2 * BLOCK
    device.close()


def test_a_medium_that_says_again_for_ever_is_given_up(make_image: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device(str(make_image(SIZE)), BufferPool(MIB))
    monkeypatch.setattr(file_module, "AGAIN_LIMIT_S", 0.05)
    with monkeypatch.context() as patched:
        Kernel(patched, [AGAIN] * 10_000)
        with pytest.raises(DeviceError, match="Resource temporarily unavailable"):
            device.write(0, bytes(BLOCK))
    device.close()


def test_an_io_error_is_not_tried_again(make_image: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device(str(make_image(SIZE)), BufferPool(MIB))
    with monkeypatch.context() as patched:
        kernel = Kernel(patched, [OSError(EIO, "Input/output error")])
        with pytest.raises(DeviceError, match=r"Input/output error; .*dmesg") as caught:
            read(device, 0, BLOCK)
        assert len(kernel.lengths) == 1
    assert (caught.value.os_errno, caught.value.name) == (EIO, device.name)
    device.close()


def test_an_image_that_shrinks_gives_errors_and_never_short_reads(make_image: Any) -> None:
    image = make_image(SIZE)
    device = open_device(str(image), BufferPool(MIB))
    os.truncate(image, 3 * BLOCK + 100)
    assert read(device, 0, 3 * BLOCK) == bytes(3 * BLOCK)
    for offset in (3 * BLOCK, 8 * BLOCK):
        with pytest.raises(DeviceError, match="has the medium shrunk"):
            read(device, offset, BLOCK)
    with pytest.raises(DeviceError, match="it ended after 12288 bytes"):
        read(device, 0, 4 * BLOCK)
    device.close()


def test_after_close_the_descriptor_number_leads_to_nothing(make_image: Any) -> None:
    """A thread that was on its way into a system call must not reach the next file of that number."""
    device = open_device(str(make_image(SIZE)), BufferPool(MIB))
    number = device._fd
    device.close()
    assert os.path.samefile(f"/proc/self/fd/{number}", os.devnull)
    del device
    gc.collect()
    with suppress(FileNotFoundError):
        assert not os.path.samefile(f"/proc/self/fd/{number}", os.devnull)


# Opening


def test_a_read_only_device_is_not_written(path: str) -> None:
    device = open_device(path, BufferPool(MIB), read_only=True)
    assert device.read_only
    with pytest.raises(DeviceError, match="Read-only file system") as caught:
        device.write(0, bytes(BLOCK))
    assert caught.value.os_errno == EROFS
    device.discard(0, SIZE)
    device.flush()
    device.clear_tail()
    assert read(device, 0, BLOCK) == bytes(BLOCK)
    device.close()


def test_a_write_protected_block_device_is_only_read(make_image: Any, attach: Any) -> None:
    loop = attach(make_image(SIZE), "-r")
    with pytest.raises(DeviceReadOnly, match=f"^{loop} .*read-only") as caught:
        open_device(loop, BufferPool(MIB))
    assert caught.value.errno == EROFS
    device = open_device(loop, BufferPool(MIB), read_only=True)
    assert read(device, 0, BLOCK) == bytes(BLOCK)
    device.close()


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DeviceNotFound, match=f"^{tmp_path}/none can't be opened: No such file or directory; "
    ) as caught:
        open_device(f"{tmp_path}/none", BufferPool(MIB))
    assert caught.value.errno == ENOENT


@pytest.mark.parametrize(("path", "kind"), [("/dev/shm", "directory"), ("/dev/null", "special file")])
def test_other_kinds_of_files_are_refused(path: str, kind: str) -> None:
    with pytest.raises(NotADevice, match=f"^{path} is a {kind}; give a block device or an image file"):
        open_device(path, BufferPool(MIB))


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotADevice, match="special file"):
        open_device(f"{tmp_path}/pipe", BufferPool(MIB))


@pytest.mark.parametrize("size", [0, 1, 4095])
def test_less_than_a_block_is_too_small(tmp_path: Path, size: int) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(size))
    with pytest.raises(DeviceTooSmall, match=f"^{image} has {size} bytes but 4096 are needed; "):
        open_device(str(image), BufferPool(MIB))


def test_a_block_device_without_bytes_is_too_small(tmp_path: Path, attach: Any) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    node = attach(empty, "-r")
    with pytest.raises(DeviceTooSmall, match=f"^{node} has 0 bytes"):
        open_device(node, BufferPool(MIB))


def test_opening_and_closing_leaves_no_descriptor(path: str, make_image: Any) -> None:
    gc.collect()
    before = os.listdir("/proc/self/fd")
    open_device(path, BufferPool(MIB)).close()
    open_device(path, BufferPool(MIB))
    gc.collect()
    open_device(path, BufferPool(MIB)).close()
    with pytest.raises(NotADevice):
        open_device("/dev/null", BufferPool(MIB))
    gc.collect()
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("extra", [0, 512, 100, 4095])
def test_the_tail_beyond_the_last_whole_block_can_be_cleared(tmp_path: Path, extra: int) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"x" * (4 * BLOCK + extra))
    device = open_device(str(image), BufferPool(MIB))
    assert (device.size, device.geometry.size) == (4 * BLOCK, 4 * BLOCK + extra)
    device.clear_tail()
    device.close()
    assert image.read_bytes() == b"x" * 4 * BLOCK + bytes(extra)
