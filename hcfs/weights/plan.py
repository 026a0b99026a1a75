"""What would be read of a model, and in which order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from hcfs.weights.header import Header, TensorInfo
from hcfs.weights.model_files import read_headers
from hcfs.weights.order import Stage, stage_of


class PlannedTensor(NamedTuple):
    """A tensor, where it is, and when it is used."""

    info: TensorInfo
    file: Header
    stage: Stage


@dataclass(frozen=True, slots=True)
class Plan:
    """A model's tensors in the order in which they will be read and handed out."""

    path: str
    files: tuple[Header, ...]
    tensors: tuple[PlannedTensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(each.info.nbytes for each in self.tensors)

    def document(self) -> dict[str, object]:
        """The plan as JSON takes it: files, and tensors in order with stage, dtype, shape, bytes, file and offset."""
        return {
            "path": self.path,
            "tensor_bytes": self.nbytes,
            "files": [
                {"path": each.path, "file_bytes": each.file_bytes, "metadata": each.metadata} for each in self.files
            ],
            "tensors": [
                {
                    "name": info.name,
                    "stage": stage.name,
                    "dtype": info.dtype,
                    "shape": list(info.shape),
                    "bytes": info.nbytes,
                    "file": os.path.basename(file.path),
                    "offset": info.start,
                }
                for info, file, stage in self.tensors
            ],
        }


def plan(path: str | os.PathLike[str]) -> Plan:
    """Read the headers of the model at `path` (a file, an index or a directory) and put its tensors in order: by stage
    (hcfs.weights.order), and within a stage as they lie in the files. Blocks; reads headers only.

    HcfsError, one sentence, when anything about the files isn't as the format says.
    """
    path = os.fspath(path)
    files = tuple(read_headers(path))
    found = [(stage_of(info.name), number, info) for number, header in enumerate(files) for info in header.tensors]
    found.sort(key=lambda each: (each[0], each[1], each[2].start, each[2].end))
    return Plan(path, files, tuple(PlannedTensor(info, files[number], stage) for stage, number, info in found))
