"""Label masks as OME-Zarr (OME-NGFF 0.5, zarr 3): ``labels/tissue`` with its pyramid, colours and class names.

A pixel is class index + 1; 0 is nothing. There is no picture in the file: its root shows the labels themselves, so that
viewers that start at the root open it, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.export.pyramid import MEANING, Level, Rows, label_pyramid
from ntrm.version import __version__

CHUNK = 1024
NAME = "tissue"
VERSION = "0.5"


def write_labels_zarr(
    path: Path,
    rows: Rows,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a mask, given whole or in bands of rows, to a new folder ``path``; one that is there is replaced."""
    zarr = zarr_library()
    with label_pyramid(rows, schema, path.parent) as levels, whole_folder(path) as partial:
        about = {"program": "ntrm", "version": __version__, "pixel values": MEANING, **(metadata or {})}
        below = f"labels/{NAME}/"
        root = zarr.open_group(
            partial,
            mode="w",
            zarr_format=3,
            attributes={
                "ome": {"version": VERSION, "multiscales": [multiscale(len(levels), resolution, below)]},
                "ntrm": about,
            },
        )
        labels = root.create_group("labels", attributes={"ome": {"version": VERSION, "labels": [NAME]}})
        group = labels.create_group(
            NAME, attributes={"ome": _label_metadata(levels, schema, resolution), "ntrm": about}
        )
        for number, level in enumerate(levels):
            _write_level(group, str(number), level)


def zarr_library() -> Any:
    """The library, which GPU machines may lack."""
    try:
        import zarr
    except ImportError as error:
        raise UsageError("OME-Zarr needs zarr, which is not installed", hint="pip install 'zarr>=3'") from error
    return zarr


def _write_level(group: Any, name: str, level: Level) -> None:
    array = group.create_array(
        name, shape=(level.height, level.width), chunks=(CHUNK, CHUNK), dtype="uint8", dimension_names=("y", "x")
    )
    for top, band in level.bands(CHUNK):  # whole rows of chunks: none is ever read back
        array[top : top + len(band)] = band


def multiscale(levels: int, resolution: Resolution, below: str = "") -> dict[str, Any]:
    """Where the levels lie and how large their pixels are, along y and x."""
    datasets = []
    for number in range(levels):
        factor = 2**number
        scale = [resolution.y * factor, resolution.x * factor]
        # Coarser pixels begin at the same corner, so their centres lie further in.
        shift = [resolution.y * (factor - 1) / 2, resolution.x * (factor - 1) / 2]
        transforms: list[dict[str, Any]] = [{"type": "scale", "scale": scale}]
        transforms.append({"type": "translation", "translation": shift})
        datasets.append({"path": f"{below}{number}", "coordinateTransformations": transforms})
    axes = [{"name": axis, "type": "space", "unit": "micrometer"} for axis in "yx"]
    return {"name": NAME, "axes": axes, "datasets": datasets, "type": "mode"}


def _label_metadata(levels: tuple[Level, ...], schema: LabelSchema, resolution: Resolution) -> dict[str, Any]:
    colours = [{"label-value": t.index + 1, "rgba": [*t.rgb, 255]} for t in schema.tissues]
    names = [{"label-value": t.index + 1, "class": t.name, "title": t.title} for t in schema.tissues]
    return {
        "version": VERSION,
        "multiscales": [multiscale(len(levels), resolution)],
        "image-label": {
            "colors": colours,
            "properties": names,
            "source": {"image": "../../"},
        },
    }


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` that takes its place when the block ends well; what a killed run left there goes."""
    partial, old = path.with_name(f".{path.name}.writing"), path.with_name(f".{path.name}.old")
    if path.exists() and not (path / "zarr.json").is_file():
        raise DataError(f"{path} is in the way", got="no zarr folder", expected="a new name", hint="move it away")
    try:
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
        yield partial
        if path.exists():
            path.rename(old)
        partial.rename(path)
    except OSError as error:
        if old.exists() and not path.exists():
            old.rename(path)
        raise DataError(f"cannot write {path}", got=error, hint="check free space and permissions") from error
    finally:
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
