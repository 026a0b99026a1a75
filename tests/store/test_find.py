from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.device import BufferPool, DeviceNotFound, open_device
from hcfs.errors import UsageError
from hcfs.store import find, format_device
from hcfs.store.find import StoreNotFound, resolve_source


@pytest.fixture
def formatted(make_loop: Callable[..., Path]) -> Callable[[str], tuple[Path, uuid.UUID]]:
    def make(label: str) -> tuple[Path, uuid.UUID]:
        path = make_loop("8M")
        device = open_device(str(path), BufferPool(4 << 20))
        try:
            return path, format_device(device, label=label).uuid
        finally:
            device.close()

    return make


def test_a_path_is_what_it_is() -> None:
    assert resolve_source("/dev/nvme0n1") == "/dev/nvme0n1"
    assert resolve_source("./LABEL/x=y") == "./LABEL/x=y"


def test_a_store_is_found_by_uuid_and_by_label(formatted: Callable[[str], tuple[Path, uuid.UUID]]) -> None:
    label = f"find-{uuid.uuid4()}"
    path, own = formatted(label)
    assert resolve_source(f"UUID={str(own).upper()}") == resolve_source(f"LABEL={label}") == str(path)
    other, _ = formatted(label)
    with pytest.raises(StoreNotFound, match="is on several devices") as refused:
        resolve_source(f"LABEL={label}")
    assert str(path) in str(refused.value)
    assert str(other) in str(refused.value)


def test_what_is_nowhere() -> None:
    with pytest.raises(StoreNotFound, match="see 'hcfs info DEVICE'") as refused:
        resolve_source(f"UUID={uuid.uuid4()}")
    assert refused.value.errno == errno.ENODEV


def test_devices_that_may_not_be_read_are_named(
    formatted: Callable[[str], tuple[Path, uuid.UUID]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, own = formatted("x")

    def refuse(path: str, *_: object, **__: object) -> None:
        error = DeviceNotFound(f"{path}: no permission")
        error.errno = errno.EACCES
        raise error

    monkeypatch.setattr(find, "open_device", refuse)
    with pytest.raises(StoreNotFound, match=r"and /dev/\S+.* can't be \(Permission denied\): see"):
        resolve_source(f"UUID={own}")


@pytest.mark.parametrize("source", ["UUID=", "UUID=cache0", "LABEL="])
def test_what_names_nothing(source: str) -> None:
    with pytest.raises(UsageError):
        resolve_source(source)
