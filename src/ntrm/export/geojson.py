"""Regions as GeoJSON that QuPath opens: one annotation per region, written as a stream, the same bytes each time.

Coordinates are full-resolution pixels with the origin where QuPath has it: at the top left of the scanned area, for
slides that state one. Unsimplified outlines follow the mask's pixel edges: their areas are the mask's pixels.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from gzip import GzipFile
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
    offset: tuple[int, int]  # What is taken off the file's own coordinates, as QuPath crops them

    def to_qupath(self, points: NDArray[Any]) -> NDArray[Any]:
        """Points (n, 2) of mask pixels, x and y, in QuPath's coordinates."""
        scales, shifts = np.array(self.to_level0, dtype=np.float64).reshape(2, 2)
        placed = (points * scales + (shifts - self.offset)).round(DECIMALS)
        whole = placed.astype(np.int64)  # shorter as text
        return whole if (whole == placed).all() else placed


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
    placement, resolution = Placement(to_level0, bounds[:2] if bounds else (0, 0)), regions.table.resolution
    path = path.with_name(f"{path.name}.gz") if gzip else path
    head: dict[str, Any] = {"program": "ntrm", "version": __version__, "mask_mpp": [resolution.x, resolution.y]}
    head |= {"to_level0": list(to_level0), "offset": list(placement.offset), "simplify_um": simplify_um}
    head |= {"simplification": SIMPLIFIED} if simplify_um else {}
    head |= {"connectivity": CONNECTIVITY, **(document or {})}
    check_classes(regions.table.tissue, schema)
    tissues = [None if each.name == schema.unnamed else _properties(each, metadata) for each in schema.tissues]
    begin = "\n"
    with whole_file(path) as partial, partial.open("wb", buffering=BUFFER) as raw:
        # Neither time nor name go into the header: the same content gives the same file.
        packed = GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) if gzip else raw
        with packed as stream:
            stream.write(f'{{"type":"FeatureCollection","ntrm":{_json(head)},"features":['.encode())
            for feature in _features(regions, placement, simplify_um, tissues, identity):
                stream.write((begin + feature if feature else "\n").encode())
                begin = ",\n" if feature else begin
            stream.write(b"\n]}\n")
    return path


def _features(
    regions: Regions,
    placement: Placement,
    simplify_um: float | None,
    tissues: Sequence[dict[str, Any] | None],
    identity: str,
) -> Iterator[str]:
    """The annotations as JSON; an empty text for what nobody has named yet, so that each region has its line."""
    import shapely
    from pydantic_core import to_json

    table = regions.table
    every = zip(table.number.tolist(), table.tissue.tolist(), _measurements(table), strict=True)
    for outlines in outlines_of(regions):
        corners = placement.to_qupath(outlines.points)
        for spans, (number, tissue, measurements) in zip(outlines.spans(), every, strict=False):
            if (named := tissues[tissue]) is None:
                yield ""
                continue
            properties = named | {"measurements": measurements}
            name = f"{identity}|{properties['name']}|{number}|{outlines.points[spans[0][0]]}"
            rings = [corners[begin:end].tolist() for begin, end in spans]
            if simplify_um:
                simpler = simplified(outlines.points, spans, table.resolution, simplify_um) or ()
                placed = [placement.to_qupath(ring).tolist() for ring in simpler]
                # Rounding may break what is valid.
                rings = placed if placed and shapely.Polygon(placed[0], placed[1:]).is_valid else rings
            properties["name"] = f"{properties['name']} {number}"
            # The numbers of the corners are most of the file, and this writes them ten times as quickly.
            geometry = f'{{"type":"Polygon","coordinates":{to_json(rings).decode()}}}'
            feature = f'"id":"{uuid.uuid5(NAMESPACE, name)}","geometry":{geometry},"properties":{_json(properties)}'
            yield f'{{"type":"Feature",{feature}}}'


def _measurements(table: RegionTable) -> Iterator[dict[str, float]]:
    """Of each region, of its exact outline: six significant digits of what is no whole number.

    NaN is left out: of a region that a person named as a whole, the network has no confidence.
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
    kept = simpler.geom_type == "Polygon" and simpler.is_valid
    if not kept or abs(simpler.area - exact.area) > MOST_CHANGE * exact.area:
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


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
