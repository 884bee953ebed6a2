"""Regions as GeoJSON that QuPath opens: one annotation per region, written as a stream.

Coordinates are full-resolution pixels with the origin where QuPath has it: at the top left of the scanned part, for
slides that state one. Unsimplified outlines follow the mask's pixel edges, so that the areas add up to the mask's
pixels. The same mask gives the same bytes.
"""

from __future__ import annotations

import gzip as gzip_module
import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import UsageError, check_number
from ntrm.core.io import whole_file
from ntrm.core.labels import LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.export.ome_tiff import NAMESPACE
from ntrm.export.polygons import Region, polygons
from ntrm.version import __version__

DECIMALS = 3
"""Of full-resolution pixels: far below a pixel of any mask."""
BUFFER = 1 << 20
SIMPLIFIED = "no point moved further than simplify_um; a region that would vanish keeps its exact outline"

Transform = tuple[float, float, float, float]
Measure = Callable[[Region], Mapping[str, float]]


@dataclass(frozen=True)
class Placement:
    """How mask pixels lie on the slide: x · sx + ox, y · sy + oy in level-0 pixels, then minus the bounds' corner."""

    to_level0: Transform = (1.0, 1.0, 0.0, 0.0)
    bounds: tuple[int, int, int, int] | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.to_level0).all() and min(self.to_level0[:2]) > 0):
            raise UsageError("unusable transform to level 0", got=self.to_level0, expected="positive, finite scales")

    @property
    def offset(self) -> tuple[int, int]:
        """What was taken off the file's own coordinates, as QuPath crops them."""
        return (0, 0) if self.bounds is None else (self.bounds[0], self.bounds[1])

    @cached_property
    def _steps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(2,) factors and (2,) shifts."""
        sx, sy, ox, oy = self.to_level0
        return np.array([sx, sy]), np.array([ox - self.offset[0], oy - self.offset[1]])

    @cached_property
    def _whole_steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The same as integers; None if they are none."""
        factors, shifts = self._steps
        whole = np.array_equal(np.rint(factors), factors) and np.array_equal(np.rint(shifts), shifts)
        return (factors.astype(np.int64), shifts.astype(np.int64)) if whole else None

    def place(self, ring: NDArray[Any]) -> list[list[float]]:
        """A ring of mask pixels in QuPath's coordinates."""
        # A slide is often an even multiple of the mask: then there is nothing to round.
        if self._whole_steps is not None and ring.dtype.kind == "i":
            factors, shifts = self._whole_steps
            whole: list[list[float]] = (ring * factors + shifts).tolist()
            return whole
        return _plain((ring * self._steps[0] + self._steps[1]).round(DECIMALS))


@dataclass(frozen=True)
class WrittenRegions:
    """What a file holds."""

    path: Path
    regions: int
    pixels: Mapping[str, int]
    """Mask pixels by class name, the sum over the polygons before any simplification."""
    kept_exact: int = 0
    """Regions whose exact outline stands although simpler ones were asked for: they would have vanished or broken."""


def write_geojson(
    path: Path,
    mask: NDArray[np.uint8],
    schema: LabelSchema,
    resolution: Resolution,
    *,
    to_level0: Transform = (1.0, 1.0, 0.0, 0.0),
    bounds: tuple[int, int, int, int] | None = None,
    simplify_um: float | None = None,
    gzip: bool = False,
    confidence: NDArray[Any] | None = None,
    confidence_full: float = 255.0,
    skip: Collection[str] = (),
    measurements: Measure | None = None,
    metadata: Mapping[str, str] | None = None,
    document: Mapping[str, Any] | None = None,
    identity: str = "",
) -> WrittenRegions:
    """Write the regions of ``mask`` (class indices, 255 = nothing; ``resolution`` is the mask's).

    ``skip`` names classes to leave out. ``confidence`` has the mask's shape, ``confidence_full`` stands for 1.
    ``simplify_um`` is the farthest that a point of an outline may move. ``measurements`` adds numbers to a region's
    own, ``metadata`` stands in every annotation, ``document`` once in the file. ``identity`` (a slide id, say) keeps
    the annotations' ids apart from those of other slides. With ``gzip``, the name ends in ``.gz``; the result tells it.
    """
    if simplify_um is not None:
        check_number("simplification in µm", simplify_um, 0, 1e4)
    placement = Placement(to_level0, bounds)
    path = path.with_name(f"{path.name}.gz") if gzip and path.suffix != ".gz" else path
    head: dict[str, Any] = {"program": "ntrm", "version": __version__, "mask_mpp": [resolution.x, resolution.y]}
    head |= {"to_level0": list(to_level0), "offset": list(placement.offset), "simplify_um": simplify_um}
    head |= {"simplification": SIMPLIFIED} if simplify_um else {}
    head |= dict(document or {})
    found: Counter[str] = Counter()
    pixels: Counter[str] = Counter()
    kept_exact, separator = 0, "\n"
    regions = polygons(mask, skip=[schema.index(name) for name in skip], confidence=confidence)
    with _stream(path, gzip) as write:
        write(f'{{"type":"FeatureCollection","ntrm":{_json(head)},"features":[')
        for region in regions:
            tissue = schema.tissues[_known(region, schema)]
            pixels[tissue.name] += region.pixels
            rings = _simpler(region, resolution, simplify_um) if simplify_um else None
            if rings is None:
                rings = (region.exterior, *region.holes)
                kept_exact += bool(simplify_um)
            found[tissue.name] += 1
            numbers = _measure(region, resolution, confidence_full) | dict(measurements(region) if measurements else {})
            feature = {
                "type": "Feature",
                "id": str(uuid.uuid5(NAMESPACE, f"{identity}|{tissue.name}|{region.number}|{_corner(region)}")),
                "geometry": {"type": "Polygon", "coordinates": [placement.place(ring) for ring in rings]},
                "properties": _properties(tissue, found[tissue.name], numbers, metadata),
            }
            write(separator + _json(feature))
            separator = ",\n"
        write("\n]}\n")
    return WrittenRegions(path, found.total(), dict(pixels), kept_exact)


def _properties(
    tissue: Tissue, number: int, numbers: Mapping[str, float], metadata: Mapping[str, str] | None
) -> dict[str, Any]:
    """What QuPath shows of an annotation; locked, so that a click does not move it."""
    return {
        "objectType": "annotation",
        "name": f"{tissue.name} {number}",
        "classification": {"name": tissue.name, "color": list(tissue.rgb)},
        "isLocked": True,
        "measurements": numbers,
        **({"metadata": dict(metadata)} if metadata else {}),
    }


def _known(region: Region, schema: LabelSchema) -> int:
    if region.class_index >= len(schema):
        raise UsageError(
            "the mask holds a class that the schema does not know",
            got=f"index {region.class_index}",
            expected=f"0 to {len(schema) - 1}, or 255 for nothing",
            mend="give the schema of the model that made the mask",
        )
    return region.class_index


@contextmanager
def _stream(path: Path, gzip: bool) -> Iterator[Callable[[str], object]]:
    """A function that appends text to a whole file."""
    with whole_file(path) as partial, partial.open("wb", buffering=BUFFER) as raw:
        if not gzip:
            yield lambda text: raw.write(text.encode())
            return
        # Neither time nor name go into the header: the same content gives the same file.
        with gzip_module.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
            yield lambda text: packed.write(text.encode())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _corner(region: Region) -> str:
    """The first corner as numpy writes it, on which ids rest; for thousands of regions, numpy itself takes long."""
    x, y = (str(value) for value in region.exterior[0].tolist())
    wide = max(len(x), len(y))
    return f"[{x:>{wide}} {y:>{wide}}]"


def _plain(ring: NDArray[np.float64]) -> list[list[float]]:
    whole = np.rint(ring)
    # Whole numbers are shorter and quicker to write.
    plain: list[list[float]] = (ring.astype(np.int64) if np.array_equal(whole, ring) else ring).tolist()
    return plain


def _measure(region: Region, resolution: Resolution, full: float) -> dict[str, float]:
    """The region's own numbers; of the exact outline, simplified or not."""
    perimeter_um = region.sides_x * resolution.x + region.sides_y * resolution.y
    numbers = {
        "Area mm^2": region.pixels * resolution.pixel_area_um2 / 1e6,
        "Perimeter mm": perimeter_um / 1e3,
    }
    if region.confidence is not None:
        numbers["Mean confidence"] = region.confidence / full
    return {name: float(f"{value:.6g}") for name, value in numbers.items()}


def _simpler(region: Region, resolution: Resolution, simplify_um: float) -> Sequence[NDArray[Any]] | None:
    """Outline and holes in mask pixels, simplified; None if that leaves no area or no valid polygon."""
    import shapely

    scale = np.array([resolution.x, resolution.y])
    polygon = shapely.Polygon(region.exterior * scale, [hole * scale for hole in region.holes])
    # GEOS first thins the ring from its start to its end, then may take the start away as well: two steps, each within
    # the tolerance. Half of it for each keeps every point of the outline within the distance asked for.
    simpler = polygon.simplify(simplify_um / 2, preserve_topology=True)
    # GEOS keeps each ring from collapsing but promises nothing about holes that touch.
    if simpler.geom_type != "Polygon" or not simpler.is_valid or simpler.is_empty or simpler.area == 0:
        return None
    return [shapely.get_coordinates(ring) / scale for ring in (simpler.exterior, *simpler.interiors)]
