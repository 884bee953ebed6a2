"""OME-Zarr (OME-NGFF 0.5, zarr 3): label masks, and the probabilities of every class, with coarser levels.

Labels stand in ``labels/tissue`` with colours and class names; a pixel is class index + 1, 0 is nothing. There is no
picture in the file: its root shows the labels themselves, so that viewers that start at the root open it, too.

Probabilities are (K, H, W) bytes, 255 = 1, because four digits of a probability are noise and a slide has billions of
them. They are written while a slide is being predicted, a row of shards at a time. Shards of nothing but 0 are not
there, as zarr has it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.arrays import Bytes
from ntrm.core.errors import DataError, UsageError
from ntrm.core.io import writing
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.export.pyramid import MEANING, SMALLEST, check_mask, halve, halve_mean, pyramid
from ntrm.version import __version__

VERSION = "0.5"
NAME, CHUNK = "tissue", 1024
"""Of the labels, and the side of their chunks."""
ROWS, COLUMNS, SHARD_CHUNK = 256, 4096, 256
"""Of a shard of probabilities, and the side of the chunks in it."""
PROBABILITY_MEANING = "255 = probability 1; all classes 0 = nothing was predicted here"


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
    path: Path, mask: Bytes, schema: LabelSchema, resolution: Resolution, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a mask (H, W) to a new folder ``path``; one that is there is replaced."""
    zarr = zarr_library()
    check_mask(mask, schema)
    levels = pyramid(mask, halve, path.parent)
    with _whole_folder(path) as partial:
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


def _write_level(group: Any, name: str, level: Bytes) -> None:
    axes, chunks = ("y", "x"), (CHUNK, CHUNK)
    array = group.create_array(name, shape=level.shape, chunks=chunks, dtype="uint8", dimension_names=axes)
    for top in range(0, len(level), CHUNK):  # whole rows of chunks: none is ever read back
        array[top : top + CHUNK] = level[top : top + CHUNK] + np.uint8(1)


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
        self._path, self._schema, self._resolution = path, schema, resolution
        self._bands: dict[int, Bytes] = {}
        """Rows of shards under way, by their first row."""
        with writing(path.name):
            self._group = _group(zarr_library(), path, {})
            self._array = self._create(0, (len(schema), height, width))

    def put(self, top: int, left: int, height: int, width: int, values: Bytes | None) -> None:
        """Take a block in, (K, height, width); None where there is nothing."""
        classes, slide_height, slide_width = self._array.shape
        for first in range(top // ROWS * ROWS, top + height, ROWS):
            last = min(first + ROWS, slide_height)
            if first not in self._bands:
                self._bands[first] = np.zeros((classes, last - first, slide_width), dtype=np.uint8)
            if values is not None:
                upper, lower = max(first, top), min(last, top + height)
                rows = values[:, upper - top : lower - top]
                self._bands[first][:, upper - first : lower - first, left : left + width] = rows
            if top + height >= last and left + width == slide_width:
                self._flush(first)

    def _flush(self, first: int) -> None:
        with writing(self._path.name):
            band = self._bands.pop(first)
            self._array[:, first : first + band.shape[1]] = band

    def complete(self, goal: Path, metadata: Mapping[str, str]) -> None:
        """Add the coarser levels and the metadata, and rename the folder to ``goal``."""
        for first in sorted(self._bands):
            self._flush(first)
        with writing(goal.name):
            levels, finer = 1, self._array
            while max(finer.shape[1:]) > SMALLEST:
                finer, levels = self._coarser(levels, finer), levels + 1
            self._group.attrs.update(self._attributes(levels, metadata))
            shutil.rmtree(goal, ignore_errors=True)
            self._path.rename(goal)

    def _create(self, number: int, shape: tuple[int, ...]) -> Any:
        return self._group.create_array(
            str(number),
            shape=shape,
            shards=(shape[0], ROWS, COLUMNS),
            chunks=(1, SHARD_CHUNK, SHARD_CHUNK),
            dtype="uint8",
            dimension_names=("c", "y", "x"),
            overwrite=True,
        )

    def _coarser(self, number: int, finer: Any) -> Any:
        """Level ``number`` from the one before, shard by shard."""
        classes, height, width = finer.shape
        array = self._create(number, (classes, -(-height // 2), -(-width // 2)))
        for top, left in product(range(0, array.shape[1], ROWS), range(0, array.shape[2], COLUMNS)):
            below = finer[:, 2 * top : 2 * (top + ROWS), 2 * left : 2 * (left + COLUMNS)]
            array[:, top : top + ROWS, left : left + COLUMNS] = np.stack([halve_mean(plane) for plane in below])
        return array

    def _attributes(self, levels: int, metadata: Mapping[str, str]) -> dict[str, Any]:
        scales = multiscale(levels, self._resolution)
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
