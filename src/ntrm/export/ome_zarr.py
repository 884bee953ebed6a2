"""OME-Zarr (OME-NGFF 0.5, zarr 3): label masks, and the probabilities of every class, with coarser levels.

Labels stand in ``labels/tissue`` with colours and class names; a pixel is class index + 1, 0 is nothing. There is no
picture in the file: its root shows the labels themselves, so that viewers that start at the root open it, too.

Probabilities are (K, H, W) bytes, 255 = 1, because four digits of a probability are noise and a slide has billions of
them. They are written while a slide is being predicted, shard by shard: what is held in memory are the rows of the
shards under way. Shards of nothing but 0 are not there, as zarr has it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.arrays import Bytes
from ntrm.core.errors import DataError, UsageError
from ntrm.core.io import writing
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.export.pyramid import MEANING, SMALLEST, Level, Rows, halve_mean, label_pyramid
from ntrm.version import __version__

VERSION = "0.5"
NAME, CHUNK = "tissue", 1024
"""Of the labels, and the side of their chunks."""
ROWS, COLUMNS, SHARD_CHUNK = 256, 4096, 256
"""Of a shard of probabilities, and the side of the chunks in it."""
PROBABILITY_MEANING = "255 = probability 1; all classes 0 = nothing was predicted here"

Shard = tuple[int, int]
"""Row and column in the grid of shards."""


def zarr_library() -> Any:
    """The library, which GPU machines may lack."""
    try:
        import zarr
    except ImportError as error:
        raise UsageError("OME-Zarr needs zarr, which is not installed", hint="pip install 'zarr>=3'") from error
    return zarr


def multiscale(levels: int, resolution: Resolution, below: str = "") -> dict[str, Any]:
    """Paths of the levels, and how large their pixels are along y and x."""
    datasets = []
    for number in range(levels):
        factor = 2**number
        scale = [resolution.y * factor, resolution.x * factor]
        # Coarser pixels begin at the same corner, so their centres lie further in.
        shift = [resolution.y * (factor - 1) / 2, resolution.x * (factor - 1) / 2]
        transforms = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": shift}]
        datasets.append({"path": f"{below}{number}", "coordinateTransformations": transforms})
    axes = [{"name": axis, "type": "space", "unit": "micrometer"} for axis in "yx"]
    return {"name": NAME, "axes": axes, "datasets": datasets, "type": "mode"}


def write_labels_zarr(
    path: Path, rows: Rows, schema: LabelSchema, resolution: Resolution, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a mask, whole or in bands of rows, to a new folder ``path``; one that is there is replaced."""
    zarr = zarr_library()
    with label_pyramid(rows, schema, path.parent) as levels, _whole_folder(path) as partial:
        about = {"program": "ntrm", "version": __version__, "pixel values": MEANING, **(metadata or {})}
        scales = multiscale(len(levels), resolution, f"labels/{NAME}/")
        root = _group(zarr, partial, {"ome": {"version": VERSION, "multiscales": [scales]}, "ntrm": about})
        labels = root.create_group("labels", attributes={"ome": {"version": VERSION, "labels": [NAME]}})
        scales = multiscale(len(levels), resolution)
        ome = {"version": VERSION, "multiscales": [scales], "image-label": _classes(schema)}
        group = labels.create_group(NAME, attributes={"ome": ome, "ntrm": about})
        for number, level in enumerate(levels):
            _write_level(group, str(number), level)


def _group(zarr: Any, path: Path, attributes: Mapping[str, Any]) -> Any:
    return zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)


def _classes(schema: LabelSchema) -> dict[str, Any]:
    colours = [{"label-value": t.index + 1, "rgba": [*t.rgb, 255]} for t in schema.tissues]
    names = [{"label-value": t.index + 1, "class": t.name, "title": t.title} for t in schema.tissues]
    return {"colors": colours, "properties": names, "source": {"image": "../../"}}


def _write_level(group: Any, name: str, level: Level) -> None:
    shape, axes = (level.height, level.width), ("y", "x")
    array = group.create_array(name, shape=shape, chunks=(CHUNK, CHUNK), dtype="uint8", dimension_names=axes)
    for top, band in level.bands(CHUNK):  # whole rows of chunks: none is ever read back
        array[top : top + len(band)] = band


@contextmanager
def _whole_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` that takes its name when the block ends well; leftovers of a killed run are deleted."""
    partial, old = path.with_name(f".{path.name}.writing"), path.with_name(f".{path.name}.old")
    if path.exists() and not (path / "zarr.json").is_file():
        raise DataError(f"{path} already exists", got="no zarr folder", expected="a new name", hint="move it away")
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with writing(path):
            yield partial
            if path.exists():
                path.rename(old)
            partial.rename(path)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)


class ProbabilityZarr:
    """Takes blocks of probabilities from the top down, in a row of blocks from the left; a folder at the end."""

    def __init__(self, path: Path, height: int, width: int, schema: LabelSchema, resolution: Resolution) -> None:
        self._path = path
        self._shape = len(schema), height, width
        self._schema, self._resolution = schema, resolution
        self._levels = 1
        while max(height, width) > SMALLEST * 2 ** (self._levels - 1):
            self._levels += 1
        self._pending: dict[Shard, Bytes] = {}
        self._zarr = zarr_library()
        with writing(path.name):
            self._array = self._create(_group(self._zarr, path, {}), 0, self._shape)

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

    def complete(self, goal: Path, metadata: Mapping[str, str]) -> None:
        """Add the coarser levels and the metadata, and rename the folder to ``goal``."""
        for shard in sorted(self._pending):
            self._flush(shard)
        with writing(goal.name):
            group = self._zarr.open_group(self._path, mode="r+")
            for number in range(1, self._levels):
                self._coarser(group, number)
            group.attrs.update(self._attributes(metadata))
            shutil.rmtree(goal, ignore_errors=True)
            self._path.rename(goal)

    def _box(self, shard: Shard) -> tuple[int, int, int, int]:
        """Top, left, bottom, right of a shard, within the slide."""
        (row, column), (_, height, width) = shard, self._shape
        top, left = row * ROWS, column * COLUMNS
        return top, left, min(top + ROWS, height), min(left + COLUMNS, width)

    def _fill(self, shard: Shard, top: int, left: int, values: Bytes) -> None:
        y0, x0, y1, x1 = self._box(shard)
        if shard not in self._pending:
            self._pending[shard] = np.zeros((self._shape[0], y1 - y0, x1 - x0), dtype=np.uint8)
        upper, lower = max(y0, top), min(y1, top + values.shape[1])
        first, last = max(x0, left), min(x1, left + values.shape[2])
        block = values[:, upper - top : lower - top, first - left : last - left]
        self._pending[shard][:, upper - y0 : lower - y0, first - x0 : last - x0] = block

    def _flush(self, shard: Shard) -> None:
        values = self._pending.pop(shard, None)
        y0, x0, y1, x1 = self._box(shard)
        if values is not None and values.any():
            with writing(self._path.name):
                self._array[:, y0:y1, x0:x1] = values

    def _create(self, group: Any, number: int, shape: tuple[int, ...]) -> Any:
        return group.create_array(
            str(number),
            shape=shape,
            shards=(shape[0], ROWS, COLUMNS),
            chunks=(1, SHARD_CHUNK, SHARD_CHUNK),
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
                    values = np.stack([halve_mean(plane) for plane in below])
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
        about: dict[str, Any] = {"program": "ntrm", "version": __version__, "pixel values": PROBABILITY_MEANING}
        about |= {**metadata, "classes": [*self._schema.names], "titles": [t.title for t in self._schema.tissues]}
        return {"ome": {"version": VERSION, "multiscales": [scales], "omero": {"channels": channels}}, "ntrm": about}
