"""Regions as GeoJSON that QuPath opens: one annotation per region, written as a stream.

Coordinates are full-resolution pixels with the origin where QuPath has it: at the top left of the scanned area, for
slides that state one. Unsimplified outlines follow the mask's pixel edges, so that the areas add up to the mask's
pixels. The same mask gives the same bytes.
"""

from __future__ import annotations

import gzip as gzip_module
import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.io import whole_file
from ntrm.core.labels import LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.export.ome_tiff import NAMESPACE
from ntrm.export.pyramid import check_classes
from ntrm.regions.polygons import outlines_of
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import Regions
from ntrm.regions.runs import CONNECTIVITY
from ntrm.version import __version__

DECIMALS = 2  # Of full-resolution pixels: far below a pixel of any mask, and the grid to which QuPath rounds
MOST_CHANGE = 0.1  # Of a region's area by simplification: small regions would become triangles of half the area
BUFFER = 1 << 20
SIMPLIFIED = (
    "no point moved further than simplify_um; "
    f"a region that would break, or change by more than {MOST_CHANGE:.0%} of its area, keeps its exact outline"
)

Transform = tuple[float, float, float, float]


@dataclass(frozen=True)
class Placement:
    """How mask pixels lie on the slide: x · sx + ox, y · sy + oy in level-0 pixels, then minus the bounds' corner."""

    to_level0: Transform
    bounds: tuple[int, int, int, int] | None

    @property
    def offset(self) -> tuple[int, int]:
        """What was taken off the file's own coordinates, as QuPath crops them."""
        return (0, 0) if self.bounds is None else (self.bounds[0], self.bounds[1])

    def to_qupath(self, ring: NDArray[Any]) -> list[list[float]]:
        """Points (n, 2) of mask pixels, x and y, in QuPath's coordinates."""
        scales, shifts = np.array(self.to_level0, dtype=np.float64).reshape(2, 2)
        placed = (ring * scales + (shifts - self.offset)).round(DECIMALS)
        # Whole numbers are shorter.
        return [[int(x) if x.is_integer() else x, int(y) if y.is_integer() else y] for x, y in placed.tolist()]

    def edges(self, shape: tuple[int, int]) -> tuple[list[float], list[float]]:
        """The x of every column edge of a mask, and the y of every row edge: outlines have no other coordinates."""
        edges = np.arange(max(shape) + 1)
        x, y = zip(*self.to_qupath(np.stack([edges, edges], axis=1)), strict=True)
        return list(x), list(y)


def write_geojson(
    path: Path,
    regions: Regions,
    schema: LabelSchema,
    *,
    to_level0: Transform = (1.0, 1.0, 0.0, 0.0),
    bounds: tuple[int, int, int, int] | None = None,
    simplify_um: float | None = None,
    gzip: bool = False,
    metadata: Mapping[str, str] | None = None,
    document: Mapping[str, Any] | None = None,
    identity: str = "",
) -> Path:
    """Write the regions of a mask, in the order of their numbers; returns the file, which ``gzip`` gives a ``.gz``.

    ``simplify_um`` is the farthest that a point of an outline may move. ``metadata`` stands in every annotation,
    ``document`` once in the file. ``identity`` (a slide id, say) keeps the annotations' ids apart from those of other
    slides.
    """
    placement, resolution = Placement(to_level0, bounds), regions.table.resolution
    path = path.with_name(f"{path.name}.gz") if gzip else path
    head: dict[str, Any] = {"program": "ntrm", "version": __version__, "mask_mpp": [resolution.x, resolution.y]}
    head |= {"to_level0": list(to_level0), "offset": list(placement.offset), "simplify_um": simplify_um}
    head |= {"simplification": SIMPLIFIED} if simplify_um else {}
    head |= {"connectivity": CONNECTIVITY, **(document or {})}
    check_classes(regions.table.tissue, schema)
    with _stream(path, gzip) as write:
        write(f'{{"type":"FeatureCollection","ntrm":{_json(head)},"features":['.encode())
        tissues = [_properties(tissue, metadata) for tissue in schema.tissues]
        for number, feature in enumerate(_features(regions, placement, simplify_um, tissues, identity)):
            write(((",\n" if number else "\n") + feature).encode())
        write(b"\n]}\n")
    return path


def _features(
    regions: Regions, placement: Placement, simplify_um: float | None, tissues: Sequence[dict[str, Any]], identity: str
) -> Iterator[str]:
    """The annotations as JSON."""
    import shapely
    from pydantic_core import to_json

    table = regions.table
    across, down = placement.edges(regions.runs.shape)
    every = zip(table.number.tolist(), table.tissue.tolist(), _measurements(table), strict=True)
    for outlines in outlines_of(regions):
        corners = outlines.points.tolist()
        for spans, (number, tissue, measurements) in zip(outlines.spans(), every, strict=False):
            properties = tissues[tissue] | {"measurements": measurements}
            x, y = corners[spans[0][0]]
            wide = max(len(str(x)), len(str(y)))
            # Of the first corner as numpy writes it.
            name = f"{identity}|{properties['name']}|{number}|[{x:>{wide}} {y:>{wide}}]"
            rings = [[[across[x], down[y]] for x, y in corners[begin:end]] for begin, end in spans]
            if simplify_um:
                simpler = simplified(outlines.points, spans, table.resolution, simplify_um) or ()
                placed = [placement.to_qupath(ring) for ring in simpler]
                # Rounding may break what is valid.
                rings = placed if placed and shapely.Polygon(placed[0], placed[1:]).is_valid else rings
            properties["name"] = f"{properties['name']} {number}"
            # The numbers of the corners are most of the file, and this writes them ten times as quickly.
            geometry = f'{{"type":"Polygon","coordinates":{to_json(rings).decode()}}}'
            feature = f'"id":"{uuid.uuid5(NAMESPACE, name)}","geometry":{geometry},"properties":{_json(properties)}'
            yield f'{{"type":"Feature",{feature}}}'


def _measurements(table: RegionTable) -> Iterator[dict[str, float]]:
    """Of each region, of its exact outline: six significant digits of what is no whole number.

    What is NaN is left out: of a region that a person named as a whole, the network has no confidence.
    """
    columns = {"Region": table.number, "Piece": table.piece, "Area mm^2": table.area_mm2}
    columns |= {"Perimeter mm": table.perimeter_mm}
    columns |= {} if table.confidence is None else {"Mean confidence": table.confidence}
    columns |= {} if table.person is None else {"By hand": table.person[:, 0], "Followed": table.person[:, 1]}
    for row in zip(*(column.tolist() for column in columns.values()), strict=True):
        cells = zip(columns, row, strict=True)
        yield {name: v if isinstance(v, int) else float(f"{v:.6g}") for name, v in cells if not math.isnan(v)}


def simplified(
    points: NDArray[np.int32], spans: Sequence[tuple[int, int]], resolution: Resolution, tolerance_um: float
) -> list[NDArray[np.float64]] | None:
    """Outline and holes of a region (``regions.polygons``) with fewer points; None where too much would change."""
    import shapely

    scale = np.array([resolution.x, resolution.y])
    outline, *holes = (points[begin:end] * scale for begin, end in spans)
    # GEOS first thins the ring from its start to its end, then may take the start away as well: two steps, each
    # within the tolerance. Half of it for each keeps every point of the outline within the distance asked for.
    exact = shapely.Polygon(outline, holes)
    simpler = exact.simplify(tolerance_um / 2, preserve_topology=True)
    # GEOS keeps each ring from collapsing but promises nothing about holes that touch.
    if simpler.geom_type != "Polygon" or not simpler.is_valid:
        return None
    if abs(simpler.area - exact.area) > MOST_CHANGE * exact.area:
        return None
    return [shapely.get_coordinates(ring) / scale for ring in (simpler.exterior, *simpler.interiors)]


def _properties(tissue: Tissue, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """What QuPath shows of annotations of a tissue; locked, so that a click does not move them."""
    return {
        "objectType": "annotation",
        "name": tissue.name,
        "classification": {"name": tissue.name, "color": list(tissue.rgb)},
        "isLocked": True,
        "measurements": {},
        **({"metadata": dict(metadata)} if metadata else {}),
    }


@contextmanager
def _stream(path: Path, gzip: bool) -> Iterator[Callable[[bytes], object]]:
    """A function that appends to a whole file."""
    with whole_file(path) as partial, partial.open("wb", buffering=BUFFER) as raw:
        if not gzip:
            yield raw.write
            return
        # Neither time nor name go into the header: the same content gives the same file.
        with gzip_module.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
            yield packed.write


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
