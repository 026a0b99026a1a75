"""The device in memory, and the rules of the protocol that every device keeps."""

from __future__ import annotations

from collections.abc import Callable
from errno import EBADF, EIO, EROFS
from pathlib import Path

import pytest

from hcfs.device import BLOCK, BlockDevice, BufferPool, DeviceError, MemoryDevice, open_device

SIZE = 64 * BLOCK
MakeDevice = Callable[[], BlockDevice]


@pytest.fixture(params=["memory", "image"])
def make_device(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDevice:
    if request.param == "memory":
        return lambda: MemoryDevice(SIZE)
    path = tmp_path / "image"
    path.write_bytes(bytes(SIZE))
    return lambda: open_device(str(path), BufferPool(1 << 20))


def test_bytes_come_back_from_where_they_were_put(make_device: MakeDevice) -> None:
    device = make_device()
    device.write(3 * BLOCK, b"a" * BLOCK)
    device.write(4 * BLOCK, bytearray(b"b" * BLOCK))
    device.write(0, memoryview(b"-" + b"c" * BLOCK)[1:])
    device.flush()
    buffer = memoryview(bytearray(SIZE))
    device.read_into(0, buffer)
    assert bytes(buffer) == b"c" * BLOCK + bytes(2 * BLOCK) + b"a" * BLOCK + b"b" * BLOCK + bytes(SIZE - 5 * BLOCK)
    device.close()


def test_a_discarded_range_leaves_its_neighbours_alone(make_device: MakeDevice) -> None:
    device = make_device()
    device.write(0, b"a" * SIZE)
    device.discard(BLOCK, BLOCK)
    buffer = memoryview(bytearray(BLOCK))
    for block in (0, 2):
        device.read_into(block * BLOCK, buffer)
        assert bytes(buffer) == b"a" * BLOCK
    device.close()


def test_a_zeroed_range_leaves_its_neighbours_alone(make_device: MakeDevice) -> None:
    device = make_device()
    device.write(0, b"a" * SIZE)
    device.zero(BLOCK, 3 * BLOCK)
    device.zero(0, 0)
    device.flush()
    buffer = memoryview(bytearray(SIZE))
    device.read_into(0, buffer)
    assert bytes(buffer) == b"a" * BLOCK + bytes(3 * BLOCK) + b"a" * (SIZE - 4 * BLOCK)
    with pytest.raises(DeviceError, match="beyond its end"):
        device.zero(SIZE - BLOCK, 2 * BLOCK)
    device.close()


@pytest.mark.parametrize(("offset", "length"), [(1, BLOCK), (512, BLOCK), (0, 1), (0, BLOCK + 512)])
def test_an_unaligned_range_is_the_callers_bug(make_device: MakeDevice, offset: int, length: int) -> None:
    device = make_device()
    with pytest.raises(ValueError, match="not multiples of 4096"):
        device.read_into(offset, memoryview(bytearray(length)))
    with pytest.raises(ValueError, match="not multiples of 4096"):
        device.write(offset, bytes(length))
    with pytest.raises(ValueError, match="not multiples of 4096"):
        device.discard(offset, length)
    device.close()


@pytest.mark.parametrize(
    ("offset", "length"), [(SIZE, BLOCK), (SIZE - BLOCK, 2 * BLOCK), (-BLOCK, BLOCK), (1 << 70, BLOCK)]
)
def test_a_range_beyond_the_device_is_a_device_error(make_device: MakeDevice, offset: int, length: int) -> None:
    device = make_device()
    with pytest.raises(
        DeviceError, match=rf"read of {length} bytes at offset {offset} failed: .* beyond its end"
    ) as caught:
        device.read_into(offset, memoryview(bytearray(length)))
    assert (caught.value.errno, caught.value.operation, caught.value.offset, caught.value.length) == (
        EIO,
        "read",
        offset,
        length,
    )
    with pytest.raises(DeviceError, match=r"write of .* beyond its end"):
        device.write(offset, bytes(length))
    with pytest.raises(DeviceError, match=r"discard of .* beyond its end"):
        device.discard(offset, length)
    device.close()


def test_a_closed_device_refuses_everything_but_close(make_device: MakeDevice) -> None:
    device = make_device()
    device.close()
    device.close()
    calls: list[Callable[[], None]] = [
        lambda: device.read_into(0, memoryview(bytearray(BLOCK))),
        lambda: device.write(0, bytes(BLOCK)),
        lambda: device.discard(0, BLOCK),
        device.flush,
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="the device is closed") as caught:
            call()
        assert caught.value.os_errno == EBADF


def test_every_device_satisfies_the_protocol(make_device: MakeDevice) -> None:
    device = make_device()
    assert isinstance(device, BlockDevice)
    assert device.size == SIZE
    assert not device.read_only
    device.close()


def test_memory_takes_contents_over_and_shows_them() -> None:
    device = MemoryDevice.holding(b"x" * (BLOCK + 5))
    assert (device.size, device.io, bytes(device.contents)) == (BLOCK, "memory", b"x" * BLOCK)
    device.contents[7] ^= 1
    buffer = memoryview(bytearray(BLOCK))
    device.read_into(0, buffer)
    assert buffer[7] == ord("x") ^ 1


def test_read_only_memory_takes_no_write() -> None:
    device = MemoryDevice.holding(b"x" * BLOCK, read_only=True)
    with pytest.raises(DeviceError, match="Read-only file system") as caught:
        device.write(0, bytes(BLOCK))
    assert caught.value.os_errno == EROFS
    device.discard(0, BLOCK)
    device.flush()
    assert bytes(device.contents) == b"x" * BLOCK


class RecordingDevice:
    """All that a crash test needs: a wrapper written against the protocol alone."""

    def __init__(self, inner: BlockDevice) -> None:
        self.inner = inner
        self.name = inner.name
        self.size = inner.size
        self.io = inner.io
        self.read_only = inner.read_only
        self.log: list[str] = []

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.inner.read_into(offset, buffer)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.log.append(f"write {offset} {len(data)}")
        self.inner.write(offset, data)

    def flush(self) -> None:
        self.log.append("flush")
        self.inner.flush()

    @property
    def takes_discard(self) -> bool:
        return self.inner.takes_discard

    def discard(self, offset: int, length: int) -> bool:
        return self.inner.discard(offset, length)

    def zero(self, offset: int, length: int) -> None:
        self.inner.zero(offset, length)

    def close(self) -> None:
        self.inner.close()


def test_a_wrapper_over_the_protocol_is_a_device(make_device: MakeDevice) -> None:
    device = RecordingDevice(make_device())
    assert isinstance(device, BlockDevice)
    device.write(BLOCK, bytes(BLOCK))
    device.flush()
    assert device.log == ["write 4096 4096", "flush"]
    device.close()
