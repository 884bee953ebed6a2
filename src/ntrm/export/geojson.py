"""Regions as GeoJSON that QuPath opens: one annotation per region, written as a stream.

Coordinates are full-resolution pixels with the origin where QuPath has it: at the top left of the scanned area, for
slides that state one. Unsimplified outlines follow the mask's pixel edges, so that the areas add up to the mask's
pixels. The same mask gives the same bytes.
"""

from __future__ import annotations

import gzip as gzip_module
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.polygons import Outlines, outlines_of
from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import CONNECTIVITY
from ntrm.core.errors import UsageError, check_number
from ntrm.core.io import whole_file
from ntrm.core.labels import LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.export.ome_tiff import NAMESPACE
from ntrm.export.pyramid import check_classes
from ntrm.version import __version__

DECIMALS = 2
"""Of full-resolution pixels: far below a pixel of any mask, and the grid to which QuPath rounds."""
MOST_CHANGE = 0.1
"""Of a region's area by simplification: small regions would become triangles of half the area."""
BUFFER = 1 << 20
SIMPLIFIED = (
    "no point moved further than simplify_um; "
    f"a region that would break, or change by more than {MOST_CHANGE:.0%} of its area, keeps its exact outline"
)

_MARK = "\ufdd0"
"""Stands for what is filled in: this is no character, so that no text holds it."""

Transform = tuple[float, float, float, float]


@dataclass(frozen=True)
class Placement:
    """How mask pixels lie on the slide: x · sx + ox, y · sy + oy in level-0 pixels, then minus the bounds' corner."""

    to_level0: Transform
    bounds: tuple[int, int, int, int] | None

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
        shifts = [ox - self.offset[0], oy - self.offset[1]]
        return np.array([sx, sy], dtype=np.float64), np.array(shifts, dtype=np.float64)

    def to_qupath(self, ring: NDArray[Any]) -> list[list[float]]:
        """A ring of mask pixels in QuPath's coordinates."""
        factors, shifts = self._steps
        return [[_plain(x), _plain(y)] for x, y in (ring * factors + shifts).round(DECIMALS).tolist()]

    def texts(self, height: int, width: int) -> tuple[NDArray[np.bytes_], NDArray[np.bytes_]]:
        """JSON for the x of every column edge of a mask and for the y of every row edge: half a point each.

        An outline has its corners where edges cross: looking up their texts is far quicker than writing numbers.
        """
        columns, rows = (
            (np.arange(size + 1) * factor + shift).round(DECIMALS).tolist()
            for size, factor, shift in zip((width, height), *self._steps, strict=True)
        )
        across, down = [f"[{_plain(x)},".encode() for x in columns], [f"{_plain(y)}],".encode() for y in rows]
        return np.array(across), np.array(down)


@dataclass(frozen=True)
class WrittenRegions:
    """What a file holds."""

    path: Path
    regions: int
    pixels: Mapping[str, int]
    """Mask pixels by class name, the sum over the polygons before any simplification."""
    kept_exact: int = 0
    """Regions whose exact outline stands although simpler ones were asked for: too much would have changed."""


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
) -> WrittenRegions:
    """Write the regions of a mask, in the order of their numbers.

    ``simplify_um`` is the farthest that a point of an outline may move. ``metadata`` stands in every annotation,
    ``document`` once in the file. ``identity`` (a slide id, say) keeps the annotations' ids apart from those of other
    slides. With ``gzip``, the name ends in ``.gz``; the result tells it.
    """
    if simplify_um is not None:
        check_number("simplification in µm", simplify_um, 0, 1e4)
    placement, resolution = Placement(to_level0, bounds), regions.table.resolution
    path = path.with_name(f"{path.name}.gz") if gzip and path.suffix != ".gz" else path
    head: dict[str, Any] = {"program": "ntrm", "version": __version__, "mask_mpp": [resolution.x, resolution.y]}
    head |= {"to_level0": list(to_level0), "offset": list(placement.offset), "simplify_um": simplify_um}
    head |= {"simplification": SIMPLIFIED} if simplify_um else {}
    head |= {"connectivity": CONNECTIVITY, **(document or {})}
    check_classes(regions.table.tissue, schema)
    features = _Features(regions, schema, placement, simplify_um, metadata, identity)
    with _stream(path, gzip) as write:
        write(f'{{"type":"FeatureCollection","ntrm":{_json(head)},"features":['.encode())
        for number, feature in enumerate(features):
            write((b",\n" if number else b"\n") + feature)
        write(b"\n]}\n")
    counts = np.bincount(regions.table.tissue, regions.table.pixels, len(schema)).astype(np.int64).tolist()
    pixels = {name: count for name, count in zip(schema.names, counts, strict=True) if count}
    return WrittenRegions(path, len(regions.table), pixels, features.kept_exact)


@dataclass
class _Features:
    """The annotations of a file as JSON, one after the other."""

    regions: Regions
    schema: LabelSchema
    placement: Placement
    simplify_um: float | None
    metadata: Mapping[str, str] | None
    identity: str
    kept_exact: int = 0
    """Regions that simplification would have changed too much, so far."""

    def __iter__(self) -> Iterator[bytes]:
        written = _PointTexts(*self.placement.texts(*self.regions.runs.shape))
        numbers, tissues = self.regions.table.number, self.regions.table.tissue
        about, first = self._properties_by_tissue(), 0
        for outlines in outlines_of(self.regions):
            last, exact = first + len(outlines), written.rings(outlines)
            corners = outlines.points[outlines.ring[outlines.region[:-1]]]
            table = (column.tolist() for column in (numbers[first:last], tissues[first:last], corners))
            for spans, measurements, number, tissue, corner in zip(
                outlines.spans(), self._measurements(first, last), *table, strict=True
            ):
                rings = [next(exact) for _ in spans]
                simpler = self._simplified(outlines.points, spans) if self.simplify_um else None
                name, head, tail = about[tissue]
                identity = _uuid(f"{self.identity}|{name}|{number}|{_corner(*corner)}")
                before = f'{{"type":"Feature","id":"{identity}","geometry":{{"type":"Polygon","coordinates":['
                behind = f']}},"properties":{head}{number}{tail[0]}{measurements}{tail[1]}}}'
                yield b"".join((before.encode(), simpler or b",".join(rings), behind.encode()))
            first = last

    def _properties_by_tissue(self) -> list[tuple[str, str, list[str]]]:
        """Name of each tissue, and the JSON of its properties before and after the number and the measurements."""
        texts = [_json(_properties(tissue, _MARK, _MARK, self.metadata)) for tissue in self.schema.tissues]
        # The measurements are an object, not a text.
        cut = [text.replace(f'"{_MARK}"', _MARK).split(_MARK) for text in texts]
        return [(tissue.name, head, tail) for tissue, (head, *tail) in zip(self.schema.tissues, cut, strict=True)]

    def _measurements(self, first: int, last: int) -> Iterator[str]:
        """JSON of the measurements of some regions, of the exact outline, simplified or not."""
        table = self.regions.table
        columns = {"Region": table.number, "Piece": table.piece, "Area mm^2": table.area_mm2}
        columns |= {"Perimeter mm": table.perimeter_mm}
        columns |= {} if table.confidence is None else {"Mean confidence": table.confidence}
        columns |= {} if table.person is None else {"By hand": table.person[:, 0], "Followed": table.person[:, 1]}
        texts = (_cells(_json(name), column[first:last]) for name, column in columns.items())
        return (f"{{{','.join(filter(None, row))}}}" for row in zip(*texts, strict=True))

    def _simplified(self, points: NDArray[np.int32], spans: Sequence[tuple[int, int]]) -> bytes | None:
        """Outline and holes as JSON, simplified; None if the exact ones stand."""
        import shapely

        rings = simplified(points, spans, self.regions.table.resolution, self.simplify_um or 0.0)
        placed = [self.placement.to_qupath(ring) for ring in rings or ()]
        # Rounding may break what is valid.
        if not placed or not shapely.Polygon(placed[0], placed[1:]).is_valid:
            self.kept_exact += 1
            return None
        return ",".join(map(_json, placed)).encode()


def simplified(
    points: NDArray[np.int32], spans: Sequence[tuple[int, int]], resolution: Resolution, tolerance_um: float
) -> list[NDArray[np.float64]] | None:
    """Outline and holes of a region (``analysis.polygons``) with fewer points; None where too much would change."""
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


class _PointTexts:
    """Rings of corners as JSON, by looking up the texts of their coordinates."""

    def __init__(self, across: NDArray[np.bytes_], down: NDArray[np.bytes_]) -> None:
        self.across, self.down = across, down
        self.widths, self.heights = np.strings.str_len(across), np.strings.str_len(down)
        self.point = np.dtype([("x", across.dtype), ("y", down.dtype)])

    def rings(self, outlines: Outlines) -> Iterator[bytes]:
        """Every ring of the outlines."""
        x, y = outlines.points.T
        points = np.empty(len(x), dtype=self.point)
        points["x"], points["y"] = self.across.take(x), self.down.take(y)
        # Texts shorter than the longest end with zeros, which no text has.
        text = points.tobytes().translate(None, b"\0")
        sizes = np.cumsum(self.widths.take(x) + self.heights.take(y))
        ends = [0, *sizes[outlines.ring[1:] - 1].tolist()]
        # Without the comma after the last point.
        return (b"[%b]" % text[begin : end - 1] for begin, end in pairwise(ends))


def _cells(name: str, values: NDArray[Any]) -> list[str]:
    """Name and value of a measurement as JSON: six significant digits of what is no whole number.

    Empty for NaN: of a region that a person named as a whole, the network has no confidence.
    """
    if values.dtype.kind in "iu":
        return [f"{name}:{value}" for value in values.tolist()]
    return [f"{name}:{float(f'{value:.6g}')!r}" if not math.isnan(value) else "" for value in values.tolist()]


def _uuid(name: str) -> str:
    """As ``uuid.uuid5`` in our namespace, without its objects, which take long for thousands of regions."""
    digest = bytearray(sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _properties(tissue: Tissue, number: str, measurements: str, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """What QuPath shows of an annotation; locked, so that a click does not move it."""
    return {
        "objectType": "annotation",
        "name": f"{tissue.name} {number}",
        "classification": {"name": tissue.name, "color": list(tissue.rgb)},
        "isLocked": True,
        "measurements": measurements,
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


def _corner(x: int, y: int) -> str:
    """The first corner as numpy writes it; ids are made from this text."""
    wide = max(len(str(x)), len(str(y)))
    return f"[{x:>{wide}} {y:>{wide}}]"


def _plain(value: float) -> float:
    """Whole numbers are shorter."""
    return int(value) if value.is_integer() else value
