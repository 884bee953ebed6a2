"""OME-Zarr (OME-NGFF 0.5, zarr 3): label masks, and the probabilities of every class, with coarser levels.

Labels stand in ``labels/tissue`` with colours and class names; a pixel is class index + 1, 0 is nothing. There is no
picture in the file: its root shows the labels themselves, so that viewers that start at the root open it, too.

Probabilities are (K, H, W) bytes, 255 = 1, because four digits of a probability are noise and a slide has billions of
them. Shards of nothing but 0 are not there, as zarr has it.
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
from ntrm.core.errors import DataError
from ntrm.core.io import writing
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.export.pyramid import MEANING, SMALLEST, check_mask, halve, halve_mean, pyramid
from ntrm.version import __version__

VERSION = "0.5"
NAME, CHUNK = "tissue", 1024  # Of the labels, and the side of their chunks
ROWS, COLUMNS, SHARD_CHUNK = 256, 4096, 256  # Of a shard of probabilities, and the side of the chunks in it
PROBABILITY_MEANING = "255 = probability 1; all classes 0 = nothing was predicted here"


def multiscale(levels: int, resolution: Resolution, below: str = "", *, classes: bool = False) -> dict[str, Any]:
    """Paths of the levels, and how large their pixels are along y and x, after an axis of ``classes``."""
    datasets = []
    for number in range(levels):
        factor = 2**number
        scale = [1.0] * classes + [resolution.y * factor, resolution.x * factor]
        # Coarser pixels begin at the same corner, so their centres lie further in.
        shift = [0.0] * classes + [resolution.y * (factor - 1) / 2, resolution.x * (factor - 1) / 2]
        transforms = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": shift}]
        datasets.append({"path": f"{below}{number}", "coordinateTransformations": transforms})
    axes = [{"name": "c", "type": "channel"}] * classes
    axes += [{"name": axis, "type": "space", "unit": "micrometer"} for axis in "yx"]
    name, kind = ("probabilities", "mean") if classes else (NAME, "mode")
    return {"name": name, "axes": axes, "datasets": datasets, "type": kind}


def write_labels_zarr(
    path: Path, mask: Bytes, schema: LabelSchema, resolution: Resolution, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a mask (H, W) to a new folder ``path``; one that is there is replaced."""
    check_mask(mask, schema)
    levels = pyramid(mask, halve, path.parent)
    about = {"program": "ntrm", "version": __version__, "pixel values": MEANING, **(metadata or {})}
    scales = multiscale(len(levels), resolution, f"labels/{NAME}/")
    with _new_group(path, {"ome": {"version": VERSION, "multiscales": [scales]}, "ntrm": about}) as root:
        labels = root.create_group("labels", attributes={"ome": {"version": VERSION, "labels": [NAME]}})
        scales = multiscale(len(levels), resolution)
        ome = {"version": VERSION, "multiscales": [scales], "image-label": _classes(schema)}
        group = labels.create_group(NAME, attributes={"ome": ome, "ntrm": about})
        for number, level in enumerate(levels):
            more = {"chunks": (CHUNK, CHUNK), "dtype": "uint8", "dimension_names": ("y", "x")}
            array = group.create_array(str(number), shape=level.shape, **more)
            for top in range(0, len(level), CHUNK):  # whole rows of chunks: none is ever read back
                array[top : top + CHUNK] = level[top : top + CHUNK] + np.uint8(1)


def _classes(schema: LabelSchema) -> dict[str, Any]:
    colours = [{"label-value": t.index + 1, "rgba": [*t.rgb, 255]} for t in schema.tissues]
    names = [{"label-value": t.index + 1, "class": t.name, "title": t.title} for t in schema.tissues]
    return {"colors": colours, "properties": names, "source": {"image": "../../"}}


@contextmanager
def _new_group(path: Path, attributes: dict[str, Any]) -> Iterator[Any]:
    """A zarr group beside ``path`` that takes its place when the block ends well."""
    import zarr

    partial = path.with_name(f".{path.name}.writing")
    if path.exists() and not (path / "zarr.json").is_file():
        raise DataError(f"{path} already exists", got="no zarr folder", expected="a new name", hint="move it away")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed run
    try:
        with writing(path):
            yield zarr.open_group(partial, mode="w", zarr_format=3, attributes=attributes)
            shutil.rmtree(path, ignore_errors=True)
            partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_probabilities_zarr(
    path: Path,
    probabilities: Bytes,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write (K, H, W) probabilities, which may lie on disk, to a new folder ``path``; one that is there is replaced."""
    with _new_group(path, {}) as group:
        levels, level = 1, _write_shards(group, 0, probabilities, 1)
        while max(level.shape[1:]) > SMALLEST:
            levels, level = levels + 1, _write_shards(group, levels, level, 2)
        scales, window = multiscale(levels, resolution, classes=True), {"min": 0, "max": 255, "start": 0, "end": 255}
        channels = [
            {"label": t.name, "color": "{:02X}{:02X}{:02X}".format(*t.rgb), "window": window, "active": True}
            for t in schema.tissues
        ]
        about: dict[str, Any] = {"program": "ntrm", "version": __version__, "pixel values": PROBABILITY_MEANING}
        about |= {**(metadata or {}), "classes": [*schema.names], "titles": [t.title for t in schema.tissues]}
        ome = {"version": VERSION, "multiscales": [scales], "omero": {"channels": channels}}
        group.attrs.update({"ome": ome, "ntrm": about})


def _write_shards(group: Any, number: int, finer: Any, factor: int) -> Any:
    """A level, shard by shard, of pixels or of the means of 2 × 2; zarr leaves out shards of nothing but 0."""
    classes, height, width = finer.shape
    array = group.create_array(
        str(number),
        shape=(classes, -(-height // factor), -(-width // factor)),
        shards=(classes, ROWS, COLUMNS),
        chunks=(1, SHARD_CHUNK, SHARD_CHUNK),
        dtype="uint8",
        dimension_names=("c", "y", "x"),
    )
    for top, left in product(range(0, array.shape[1], ROWS), range(0, array.shape[2], COLUMNS)):
        values = finer[:, factor * top : factor * (top + ROWS), factor * left : factor * (left + COLUMNS)]
        values = values if factor == 1 else np.stack([halve_mean(plane) for plane in values])
        array[:, top : top + ROWS, left : left + COLUMNS] = values
    return array
