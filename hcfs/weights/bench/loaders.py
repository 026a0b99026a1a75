"""The loaders that are compared, each as its own documentation says to use it on a CPU, with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from hcfs import __version__
from hcfs.errors import UsageError
from hcfs.weights.pieces import pieces_of
from hcfs.weights.plan import plan
from hcfs.weights.stream import stream

DROPPED_BUDGET = 64 << 20
"""Bytes; a model whose largest tensor takes more gets that."""


class Model(NamedTuple):
    """What a loader is given."""

    path: str
    """A file or a directory."""
    files: Sequence[str]
    """The files that it consists of."""


Loader = Callable[[Model], Iterable[tuple[str, Any]]]
"""Yields names and torch tensors."""


def _hcfs(model: Model) -> Iterable[tuple[str, Any]]:
    return stream(model.path)


def _hcfs_direct(model: Model) -> Iterable[tuple[str, Any]]:
    return stream(model.path, io="direct")


def _hcfs_buffered(model: Model) -> Iterable[tuple[str, Any]]:
    return stream(model.path, io="buffered")


def _hcfs_dropped(model: Model) -> Iterable[tuple[str, Any]]:
    planned = plan(model.path)
    largest = max((each.size for each in pieces_of(planned.tensors)), default=0)
    return stream(planned, budget=max(DROPPED_BUDGET, largest))


def _safetensors(model: Model) -> Iterable[tuple[str, Any]]:
    from safetensors.torch import load_file

    for file in model.files:
        yield from load_file(file).items()


def _runai(model: Model) -> Iterable[tuple[str, Any]]:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files(list(model.files))
        yield from streamer.get_tensors()


def _fastsafetensors(model: Model) -> Iterable[tuple[str, Any]]:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
    try:
        loader.add_filenames({0: list(model.files)})
        buffers = loader.copy_files_to_device()
        try:
            for name in loader.get_keys():
                yield name, buffers.get_tensor(name)
        finally:
            buffers.close()
    finally:
        loader.close()


LOADERS: dict[str, tuple[Loader, str]] = {
    "hcfs": (_hcfs, "torch"),
    "hcfs-dropped": (_hcfs_dropped, "torch"),
    "safetensors": (_safetensors, "safetensors"),
    "runai": (_runai, "runai-model-streamer"),
    "fastsafetensors": (_fastsafetensors, "fastsafetensors"),
    "hcfs-direct": (_hcfs_direct, "torch"),
    "hcfs-buffered": (_hcfs_buffered, "torch"),
}
"""By name: the function, and the distribution that it needs."""
LOADERS_DEFAULT = ("hcfs", "hcfs-dropped", "safetensors", "runai", "fastsafetensors")
DROPPED = {"hcfs-dropped"}
"""Those whose consumer lets go of each tensor at once; the consumers of the others keep all."""


def versions(names: Sequence[str]) -> dict[str, str | None]:
    """The version of the distribution behind each loader; None where it isn't installed. UsageError for a name that
    isn't one of LOADERS."""
    found: dict[str, str | None] = {}
    for name in names:
        if name not in LOADERS:
            raise UsageError(f"there is no loader {name!r}: use some of {', '.join(LOADERS)}")
        try:
            version = metadata.version(LOADERS[name][1])
            found[name] = f"{__version__} with torch {version}" if LOADERS[name][1] == "torch" else version
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
