"""Annotations out of QuPath's GeoJSON: areas with a class name, made valid within bounds; everything else is counted.

A point lies in a polygon if the outline goes around it an odd number of times and no hole does; it lies in the area if
it lies in any of the polygons. To repair an area, all rings are cut at their crossings, the faces between them are
found, and a point of each face decides for all of it. GEOS's own repairs were no choice: ``make_valid`` of the kind
"linework" has the same result and needs minutes for 400 points, "structure" and ``buffer(0)`` fill or drop what an
outline goes around twice. How long it takes depends on the crossings, which are counted first.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError

Polygons = Sequence[Sequence[Floats]]  # Polygons in full-resolution pixels, each an outline and its holes

SUFFIXES = (".geojson.gz", ".json.gz", ".geojson", ".json")
MAX_BYTES = 1 << 28
"""Unpacked size above which a file is refused: a small .gz can unpack to any size, and reading JSON takes up to
18 times as much memory."""
MAX_COORDINATE = 1e7
"""No slide has ten million pixels along a side; a larger coordinate is a mistake (µm, degrees, a broken file)."""
MAX_POINTS = 200_000  # Of an area that has to be repaired; whoever draws by hand sets some thousands
PAIRS_AT_ONCE = 2_000_000
MOST_MEETINGS = 300_000
"""Of pieces of outlines that touch or cross, in all areas of a file that have to be repaired: some seconds' work."""

HINT = "export from QuPath: File > Export objects as GeoJSON, 'Export as FeatureCollection'"
OTHER_OBJECTS = ("PathCellObject", "PathDetectionObject", "PathTileObject", "PathRootObject", "TMACoreObject")
"""What QuPath 0.2 wrote as the id of an object that nobody drew; later versions write its kind as objectType."""
NOT_AREAS = ("Point", "MultiPoint", "LineString", "MultiLineString")


class Annotation(NamedTuple):
    """One annotated area whose rings do not cross: the even-odd inside of its rings (outlines and holes alike)."""

    rings: tuple[Floats, ...]
    area: float
    bounds: tuple[float, float, float, float]  # x and y of the top left, x and y of the bottom right
    name: str = ""  # Class name as written by QuPath; empty if unclassified


@dataclass(frozen=True)
class AnnotationFile:
    """The areas of one file in the file's order, and what was left out or repaired, counted."""

    annotations: tuple[Annotation, ...]
    counts: Mapping[str, int]
    """``not_annotations`` (cells, detections, tiles), ``not_areas`` (points, lines), ``degenerate``, ``repaired``."""


def read_annotations(path: Path) -> AnnotationFile:
    """Areas drawn in QuPath, from a FeatureCollection, a single Feature or a bare list of features."""
    counts: Counter[str] = Counter(not_annotations=0, not_areas=0, degenerate=0, repaired=0)
    annotations: list[Annotation] = []
    met = 0
    for number, feature in enumerate(_features(_load(path), path), start=1):
        where = f"{path.name}, feature {number}"
        properties = feature.get("properties") or {}
        if not isinstance(properties, dict):
            raise _bad(f"{where}: unreadable properties", properties, "an object")
        # Whether a person drew it; other programs do not say, and mean so.
        kind = str(properties.get("objectType") or properties.get("object_type") or "").lower()
        if kind != "annotation" if kind else feature.get("id") in OTHER_OBJECTS:
            counts["not_annotations"] += 1
            continue
        name, polygons = _class_name(properties, where), [*_polygons(feature.get("geometry"), where)]
        if not polygons:
            counts["not_areas"] += 1
            continue
        # Without those that have no inside.
        polygons = [[ring for ring in rings if len(ring) >= 3] for rings in polygons if rings and len(rings[0]) >= 3]
        area = _valid_area(polygons)
        if area is None:
            counts["repaired"] += 1
            met += _meetings(polygons, MOST_MEETINGS - met)
            area = repaired(polygons) if met <= MOST_MEETINGS else None
        if area is None:
            raise DataError(
                f"{where}: the outline crosses itself too often",
                got=f"{_points(polygons):,} points",
                expected=f"at most {MAX_POINTS:,} points, and {MOST_MEETINGS:,} places in a file where outlines meet",
                hint="simplify the shape in QuPath (Objects > Annotations... > Simplify shape), or draw it again",
            )
        counts["degenerate"] += area.area <= 0
        annotations += [area._replace(name=name)] if area.area > 0 else []
    return AnnotationFile(tuple(annotations), dict(counts))


def count_clipped(areas: Iterable[Annotation], size: tuple[float, float], file: str, slide: str) -> int:
    """How many areas reach over the edge of a slide of this width and height; one entirely outside is an error."""
    width, height = size
    clipped = 0
    for area in areas:
        left, top, right, bottom = area.bounds
        if right <= 0 or bottom <= 0 or left >= width or top >= height:
            raise DataError(
                f"{file}: an annotation ({area.name}) lies outside {slide}",
                got=f"x {left:.0f} to {right:.0f}, y {top:.0f} to {bottom:.0f}",
                expected=f"x 0 to {width:.0f}, y 0 to {height:.0f} (full-resolution pixels)",
                hint="check that the annotations were drawn on this slide at its full resolution",
            )
        clipped += left < 0 or top < 0 or right > width or bottom > height
    return clipped


def _points(polygons: Polygons) -> int:
    return sum(len(ring) for rings in polygons for ring in rings)


def _meetings(polygons: Polygons, most: int) -> int:
    """How many pieces of the outlines meet others than their neighbours, counted until there are more than ``most``."""
    import shapely

    if _points(polygons) > MAX_POINTS:
        return most + 1
    rings = [shapely.get_coordinates(shapely.LinearRing(ring)) for rings in polygons for ring in rings]
    pieces = shapely.linestrings(np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for ring in rings]))
    tree, met, step = shapely.STRtree(pieces), 0, max(1, PAIRS_AT_ONCE // len(pieces))
    for start in range(0, len(pieces), step):
        some = pieces[start : start + step]
        # A piece meets itself and two neighbours. "crosses" would miss those that are drawn twice.
        met += tree.query(some, predicate="intersects").shape[1] - 3 * len(some)
        if met > most:
            break
    return max(0, met)


def repaired(polygons: Polygons) -> Annotation | None:
    """The area of outlines that cross; None where GEOS fails."""
    import shapely

    try:
        # Rings cut wherever they meet, each segment once.
        lines = shapely.union_all([shapely.LinearRing(ring) for rings in polygons for ring in rings])
        faces = shapely.get_parts(shapely.polygonize([lines]))
        inside = _inside(polygons, shapely.STRtree(shapely.point_on_surface(faces)))
    except shapely.errors.GEOSException:
        return None
    kept = faces[inside]
    if not len(kept):
        return Annotation((), 0.0, (0.0, 0.0, 0.0, 0.0))
    rings = [shapely.get_coordinates(ring) for face in kept for ring in (face.exterior, *face.interiors)]
    return Annotation(tuple(rings), float(shapely.area(kept).sum()), tuple(shapely.total_bounds(kept).tolist()))


def _inside(polygons: Polygons, points: Any) -> NDArray[np.bool_]:
    """Which points lie in any of the polygons; GEOS counts how often a ring is crossed on the way to a point."""
    import shapely

    inside = np.zeros(len(points), dtype=bool)
    for rings in polygons:
        here = np.zeros(len(points), dtype=bool)
        for number, ring in enumerate(rings):
            here[points.query(shapely.Polygon(ring), predicate="contains")] = number == 0
        inside |= here
    return inside


def refuse_project(path: Path) -> None:
    """Refuse what belongs to a QuPath project: areas lie there in files that only QuPath reads."""
    if path.suffix.lower() in (".qpproj", ".qpdata") or (path.is_dir() and any(path.glob("*.qpproj"))):
        expected = f"areas that QuPath exported, in files ending in {', '.join(SUFFIXES)}"
        raise DataError(f"{path} belongs to a QuPath project", expected=expected, hint=HINT)


def _load(path: Path) -> Any:
    refuse_project(path)
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(f"{path} is too large", got="over 256 MiB", hint="export annotations only, without cells")
        # NaN stays: QuPath writes it for measurements that are not defined, and coordinates are checked by themselves.
        return json.loads(content.decode("utf-8-sig"))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}", got=error, hint="check the file, or export it again") from error
    except (ValueError, RecursionError) as error:
        raise _bad(f"{path} is not readable as JSON", error, "a whole UTF-8 GeoJSON file") from error


def _features(document: Any, path: Path) -> list[dict[str, Any]]:
    features = document
    if isinstance(document, dict):
        features = document.get("features") if document.get("type") == "FeatureCollection" else [document]
    if not isinstance(features, list):
        raise _bad(f"{path} holds no features", document, "a FeatureCollection")
    for number, feature in enumerate(features, start=1):
        if not isinstance(feature, dict) or feature.get("type") != "Feature":
            raise _bad(f"{path}: entry {number} is no Feature", feature, "Features")
    return features


def _class_name(properties: dict[str, Any], where: str) -> str:
    """Name of the classification, which QuPath writes as an object and other programs as plain text."""
    value = properties.get("classification")
    if isinstance(value, dict):
        value = value.get("name") or value.get("names")
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = ": ".join(value)  # QuPath's own way to write a class derived from another
    if value is not None and not isinstance(value, str):
        raise _bad(f"{where}: unreadable classification", value, "a name")
    return (value or "").strip()


def _valid_area(polygons: Polygons) -> Annotation | None:
    """The area of rings that do not cross; None where they have to be repaired."""
    import shapely

    solid = [shapely.Polygon(outline, holes) for outline, *holes in polygons]
    area = solid[0] if len(solid) == 1 else shapely.MultiPolygon(solid)
    if not area.is_valid:
        return None
    rings = tuple(shapely.get_coordinates(ring) for one in solid for ring in (one.exterior, *one.interiors))
    return Annotation(rings, float(area.area), area.bounds)


def _polygons(geometry: Any, where: str) -> Iterator[list[Floats]]:
    """Every polygon in a geometry as its outline and holes; collections are opened without recursion."""
    stack = [geometry]
    while stack:
        one = stack.pop()
        if one is None:
            continue
        kind = one.get("type") if isinstance(one, dict) else None
        if kind == "GeometryCollection":
            stack.extend(reversed(_list(one.get("geometries"), where)))
        elif kind in ("Polygon", "MultiPolygon"):  # no set: any JSON value may stand here
            coordinates = one.get("coordinates")
            for polygon in [coordinates] if kind == "Polygon" else _list(coordinates, where):
                yield [_ring(ring, where) for ring in _list(polygon, where)]
        elif kind not in NOT_AREAS:
            raise _bad(f"{where}: unknown geometry", one, "Polygon or MultiPolygon")


def _ring(points: Any, where: str) -> Floats:
    try:
        ring = np.array([point[:2] for point in _list(points, where)], dtype=np.float64).reshape(-1, 2)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise _bad(f"{where}: unreadable coordinates", error, "pairs of numbers") from error
    # Written so that NaN fails the comparison as well.
    possible = np.abs(ring) <= MAX_COORDINATE
    if not possible.all():
        expected = f"full-resolution pixels, finite and at most {MAX_COORDINATE:g}"
        raise _bad(f"{where}: impossible coordinates", float(ring[~possible][0]), expected)
    return ring


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _bad(f"{where}: unreadable geometry", value, "a list of coordinates")
    return value


def _bad(what: str, value: Any, expected: str) -> DataError:
    return DataError(what, got=repr(value)[:80], expected=expected, hint=HINT)
