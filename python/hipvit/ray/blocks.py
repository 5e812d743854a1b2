"""The blocks of a job's images, and the Parquet file of each block.

A block is a fixed range of the sorted list of images. Its file gets its name only when it is complete, so the existing
files are the checkpoint. A restarted job processes the blocks without a file. A block that is processed twice replaces its file by
the same rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

import pyarrow as pa
import pyarrow.parquet as pq

import hipvit
from hipvit.ray.predictor import Task

SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
# Readers of Parquet folders pass over names with an underscore.
JOB = "_job.json"
_FORMAT = 1


@dataclass(frozen=True)
class Block:
    """A finished block, and the worker that processed it."""

    index: int
    images: int
    failed: int
    node: str
    pid: int


def list_images(images: Union[str, os.PathLike[str], Iterable[Union[str, os.PathLike[str]]]]) -> list[str]:
    """The sorted image files of a folder and its subfolders, or the given files."""
    if not isinstance(images, (str, os.PathLike)):
        return sorted(os.fspath(image) for image in images)
    folder = Path(images)
    if not folder.is_dir():
        raise hipvit.NotFoundError(f"{folder}: there is no such folder")
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted(map(str, found))


@dataclass(frozen=True)
class Job:
    """The images, their blocks, and the task."""

    output: Path
    images: list[str] = field(repr=False)
    task: Task = "embed"
    model: Optional[str] = None
    block_size: int = 256
    top: int = 5
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in ("embed", "classify"):
            raise hipvit.ArgumentError(f"task: {self.task} is not one of embed, classify")
        if self.block_size < 1 or self.top < 1:
            raise hipvit.ArgumentError("block_size and top: must be at least 1")
        if not self.images:
            raise hipvit.ArgumentError("images: there are none")

    def __len__(self) -> int:
        """The number of blocks."""
        return -(-len(self.images) // self.block_size)

    def files(self, block: int) -> list[str]:
        return self.images[block * self.block_size : (block + 1) * self.block_size]

    def path(self, block: int) -> Path:
        return self.output / f"part-{block:06}.parquet"

    def missing(self) -> list[int]:
        """The blocks without a file."""
        there = {entry.name for entry in os.scandir(self.output)}
        return [block for block in range(len(self)) if self.path(block).name not in there]

    def _facts(self) -> dict[str, Any]:
        listed = hashlib.sha256("\0".join(self.images).encode("utf-8", "surrogateescape")).hexdigest()
        return {
            "format": _FORMAT,
            "hipvit": hipvit.__version__,
            "model": self.model,
            "task": self.task,
            "top": self.top,
            "block_size": self.block_size,
            "images": len(self.images),
            "images_sha256": listed,
            "options": {name: str(value) for name, value in sorted(self.options.items())},
        }

    def open(self) -> None:
        """Creates the output folder, or checks that an existing one belongs to the same job."""
        self.output.mkdir(parents=True, exist_ok=True)
        path, facts = self.output / JOB, self._facts()
        if path.exists():
            before = json.loads(path.read_text())
            changed = [name for name in facts if before.get(name) != facts[name]]
            if changed:
                raise hipvit.ArgumentError(
                    f"{path}: is of another job, whose {', '.join(changed)} differ; choose another output folder, or delete this one"
                )
            return
        if any(self.output.glob("part-*.parquet")):
            raise hipvit.ArgumentError(f"{self.output}: has Parquet files, but no {JOB}; choose another output folder")
        _replace(path, json.dumps(facts, indent=2) + "\n")

    def close(self) -> None:
        """Removes temporary files of killed workers."""
        for path in self.output.glob(".part-*.tmp"):
            path.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def write(job: Job, model: hipvit.Model, block: int) -> Block:
    """Processes a block and writes its file."""
    files = job.files(block)
    outputs = model.run(files, on_error="skip")
    errors = outputs.errors
    failed = pa.array([index in errors for index in range(len(files))])
    columns: dict[str, pa.Array] = {"path": pa.array(files, pa.string())}
    if job.task == "embed":
        values = outputs.embeddings
        mask = failed if errors else None
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1], mask=mask)
    else:
        top = outputs.top(job.top)
        lists: Iterator[tuple[str, Any]] = iter(
            (("label", pa.string()), ("index", pa.int32()), ("probability", pa.float32()))
        )
        for name, kind in lists:
            rows = [None if i in errors else [getattr(p, name) for p in row] for i, row in enumerate(top)]
            columns[name] = pa.array(rows, pa.list_(kind))
    columns["error"] = pa.array([str(errors[i]) if i in errors else None for i in range(len(files))], pa.string())
    path = job.path(block)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    pq.write_table(pa.table(columns), temporary, compression="zstd")
    temporary.replace(path)
    return Block(block, len(files), len(errors), os.uname().nodename, os.getpid())
