"""Probabilities of every class as OME-Zarr (OME-NGFF 0.5, zarr 3): (K, H, W) bytes, 255 = 1, and coarser levels.

Written while a slide is being predicted, shard by shard: what is held in memory are the rows of the shards under way.
A shard is written whole and renamed into place, and what is held can be kept elsewhere, so that a killed run goes on.
Shards of nothing but 0 are not there, as zarr has it. Bytes, because four digits of a probability are noise and a
slide has billions of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.export.ngff import VERSION, multiscale, zarr_library
from ntrm.export.pyramid import SMALLEST, halve_mean
from ntrm.version import __version__

ROWS, COLUMNS, CHUNK = 256, 4096, 256
"""Of a shard, and the side of the chunks in it."""
MEANING = "255 = probability 1; all classes 0 = nothing was predicted here"

Bytes = NDArray[np.uint8]
Place = tuple[int, int]


class ProbabilityZarr:
    """Takes blocks of probabilities from the top down, in a row of blocks from the left; a folder at the end."""

    def __init__(self, path: Path, height: int, width: int, schema: LabelSchema, resolution: Resolution) -> None:
        self._path = path
        self._shape = len(schema), height, width
        self._schema, self._resolution = schema, resolution
        self._levels = _levels(height, width)
        self._pending: dict[Place, Bytes] = {}
        self._zarr = zarr_library()
        self._array: Any = None

    def restore(self, state: Mapping[str, Bytes] | None) -> None:
        """Begin anew, or go on from what ``state`` gave."""
        if state is not None and not self._path.exists():
            # It was complete and already stood in its place when the run that made it ended; ``complete`` sees to it.
            self._array, self._pending = None, {}
            return
        with _own_errors(self._path):
            if state is None:
                shutil.rmtree(self._path, ignore_errors=True)
                group = self._zarr.open_group(self._path, mode="w", zarr_format=3)
                self._create(group, 0, self._shape)
            # The library's own temporary files, if it was killed while writing one.
            for leftover in self._path.rglob("*.partial"):
                leftover.unlink()
            self._array = self._zarr.open_group(self._path, mode="r+")["0"]
        self._pending = {_place(key): array for key, array in (state or {}).items()}

    def state(self) -> dict[str, Bytes]:
        """The rows of shards that are not full yet."""
        return {f"{row}.{column}": array for (row, column), array in self._pending.items()}

    def put(self, top: int, left: int, height: int, width: int, values: Bytes | None) -> None:
        """Take a block in, (K, height, width); None where there is nothing."""
        bottom, right = top + height, left + width
        for row in range(top // ROWS, -(-bottom // ROWS)):
            for column in range(left // COLUMNS, -(-right // COLUMNS)):
                if values is not None:
                    self._fill((row, column), top, left, values)
                _, _, y1, x1 = self._box((row, column))
                # Blocks come from the left, so a shard is full when its last column is, down to its last row.
                if bottom >= y1 and left < x1 <= right:
                    self._flush((row, column))

    def finish(self) -> None:
        """There is nothing more to come."""
        for place in sorted(self._pending):
            self._flush(place)

    def complete(self, goal: Path, metadata: Mapping[str, str]) -> None:
        """Add the coarser levels, say what it is, and put the folder in its place; twice does no harm."""
        if not self._path.exists() and (goal / "zarr.json").is_file():
            return
        with _own_errors(goal):
            group = self._zarr.open_group(self._path, mode="r+")
            for number in range(1, self._levels):
                self._coarser(group, number)
            group.attrs.update(self._attributes(metadata))
            shutil.rmtree(goal, ignore_errors=True)
            self._path.rename(goal)

    def _box(self, place: Place) -> tuple[int, int, int, int]:
        """Top, left, bottom, right of a shard, within the slide."""
        (row, column), (_, height, width) = place, self._shape
        top, left = row * ROWS, column * COLUMNS
        return top, left, min(top + ROWS, height), min(left + COLUMNS, width)

    def _fill(self, place: Place, top: int, left: int, values: Bytes) -> None:
        y0, x0, y1, x1 = self._box(place)
        if place not in self._pending:
            self._pending[place] = np.zeros((self._shape[0], y1 - y0, x1 - x0), dtype=np.uint8)
        y, x = (
            slice(max(y0, top), min(y1, top + values.shape[1])),
            slice(max(x0, left), min(x1, left + values.shape[2])),
        )
        part = values[:, y.start - top : y.stop - top, x.start - left : x.stop - left]
        self._pending[place][:, y.start - y0 : y.stop - y0, x.start - x0 : x.stop - x0] = part

    def _flush(self, place: Place) -> None:
        values = self._pending.pop(place, None)
        y0, x0, y1, x1 = self._box(place)
        shard = self._path / "0" / "c" / "0" / str(place[0]) / str(place[1])
        if values is None or not values.any():
            # A run that was killed later than the one that goes on now may have left one.
            shard.unlink(missing_ok=True)
            return
        if self._array is None:
            hint = "delete the slide's folder, and run again"
            raise DataError("unfinished probabilities are gone", got=self._path.name, hint=hint)
        with _own_errors(self._path):
            self._array[:, y0:y1, x0:x1] = values
            with shard.open("rb") as stream:
                os.fsync(stream.fileno())

    def _create(self, group: Any, number: int, shape: tuple[int, ...]) -> Any:
        return group.create_array(
            str(number),
            shape=shape,
            shards=(shape[0], ROWS, COLUMNS),
            chunks=(1, CHUNK, CHUNK),
            dtype="uint8",
            dimension_names=("c", "y", "x"),
            overwrite=True,
        )

    def _coarser(self, group: Any, number: int) -> None:
        """Level ``number`` from the one before, shard by shard."""
        finer = group[str(number - 1)]
        classes, height, width = finer.shape
        shape = classes, -(-height // 2), -(-width // 2)
        array = self._create(group, number, shape)
        for top in range(0, shape[1], ROWS):
            for left in range(0, shape[2], COLUMNS):
                below = finer[:, 2 * top : 2 * (top + ROWS), 2 * left : 2 * (left + COLUMNS)]
                if below.any():
                    values = np.stack([halve_mean(each) for each in below])
                    array[:, top : top + values.shape[1], left : left + values.shape[2]] = values

    def _attributes(self, metadata: Mapping[str, str]) -> dict[str, Any]:
        scales = multiscale(self._levels, self._resolution)
        for dataset in scales["datasets"]:
            for transform, first in zip(dataset["coordinateTransformations"], (1.0, 0.0), strict=True):
                transform[transform["type"]].insert(0, first)
        scales["axes"].insert(0, {"name": "c", "type": "channel"})
        scales |= {"name": "probabilities", "type": "mean"}
        window = {"min": 0, "max": 255, "start": 0, "end": 255}
        channels = [
            {"label": t.name, "color": "{:02X}{:02X}{:02X}".format(*t.rgb), "window": window, "active": True}
            for t in self._schema.tissues
        ]
        about: dict[str, Any] = {"program": "ntrm", "version": __version__, "pixel values": MEANING, **metadata}
        about |= {"classes": [*self._schema.names], "titles": [t.title for t in self._schema.tissues]}
        return {"ome": {"version": VERSION, "multiscales": [scales], "omero": {"channels": channels}}, "ntrm": about}


def _levels(height: int, width: int) -> int:
    levels = 1
    while max(height, width) > SMALLEST:
        height, width, levels = -(-height // 2), -(-width // 2), levels + 1
    return levels


def _place(key: str) -> Place:
    row, column = key.split(".")
    return int(row), int(column)


@contextmanager
def _own_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write {path.name}", got=error, hint="check free space and permissions") from error
