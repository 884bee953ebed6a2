"""Outlines that cross themselves or each other, made into areas: within bounds, since crossings grow with the square.

A point lies in a polygon if the outline goes around it an odd number of times and no hole does; it lies in the area if
it lies in any of the polygons. All rings are cut at their crossings, the faces between them are found, and a point of
each face decides for the whole of it. GEOS's own mends were no choice: ``make_valid`` of the kind "linework" has the
same result and needs minutes for 400 points, "structure" and ``buffer(0)`` fill or drop what an outline goes around
twice.

What may take long is done in a process of its own, whose memory and time are limited.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.children import limit_memory, module_command, module_environment

Ring = NDArray[np.float64]
"""Vertices of a closed outline, (n, 2) as x, y in full-resolution pixels."""
Polygons = Sequence[Sequence[Ring]]
"""Polygons, each an outline and its holes."""

MAX_POINTS = 200_000
"""Of an area that has to be mended; whoever draws by hand sets some thousands."""
AT_ONCE = 10_000
"""Pairs of points up to which mending a file's areas takes no process: a tenth of a second at worst."""
MEMORY_MB = 1024
SECONDS = 30.0
"""Of processor time for all areas of a file, so that a busy machine mends as much as a quiet one."""


@dataclass(frozen=True)
class Mended:
    """An area whose rings cross no more: its even-odd inside is the area."""

    rings: tuple[Ring, ...]
    area: float
    bounds: tuple[float, float, float, float]


def points(polygons: Polygons) -> int:
    """How many an area has."""
    return sum(len(ring) for rings in polygons for ring in rings)


def mend(areas: Sequence[Polygons]) -> list[Mended]:
    """The areas, from the first on, up to one that the limits do not suffice for."""
    known = [*takewhile(lambda polygons: points(polygons) <= MAX_POINTS, areas)]
    cheap = sum(points(polygons) ** 2 for polygons in known) <= AT_ONCE
    return [*(_mended_here if cheap else _mended_apart)(known)]


def _mended_here(areas: Iterable[Polygons]) -> Iterator[Mended]:
    for polygons in areas:
        mended = _mended(polygons)
        if mended is None:
            return
        yield mended


def _mended(polygons: Polygons) -> Mended | None:
    import shapely

    try:
        # Rings cut wherever they meet, each piece once.
        lines = shapely.union_all([shapely.LinearRing(ring) for rings in polygons for ring in rings])
        faces = shapely.get_parts(shapely.polygonize([lines]))
        inside = _inside(polygons, shapely.STRtree(shapely.point_on_surface(faces)))
    except shapely.errors.GEOSException:
        return None
    kept = faces[inside]
    if not len(kept):
        return Mended((), 0.0, (0.0, 0.0, 0.0, 0.0))
    rings = [shapely.get_coordinates(ring) for face in kept for ring in (face.exterior, *face.interiors)]
    return Mended(tuple(rings), float(shapely.area(kept).sum()), tuple(shapely.total_bounds(kept).tolist()))


def _inside(polygons: Polygons, places: Any) -> NDArray[np.bool_]:
    """Which places lie in any of the polygons; GEOS counts how often a ring is crossed on the way to a point."""
    import shapely

    inside = np.zeros(len(places), dtype=bool)
    for rings in polygons:
        here = np.zeros(len(places), dtype=bool)
        for number, ring in enumerate(rings):
            here[places.query(shapely.Polygon(ring), predicate="contains")] = number == 0
        inside |= here
    return inside


def _mended_apart(areas: Sequence[Polygons]) -> Iterator[Mended]:
    """In a child, which answers area by area: however it ends, all before the one that ended it are there."""
    asked = [[[ring.tolist() for ring in rings] for rings in polygons] for polygons in areas]
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        module_command("ntrm.annotations.mending", SECONDS, MEMORY_MB),
        input=json.dumps(asked).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=module_environment(),
        check=False,
    )
    # What follows the last line's end is half an answer.
    for line in done.stdout.split(b"\n")[:-1]:
        rings, area, bounds = json.loads(line)
        yield Mended(tuple(np.array(ring, dtype=np.float64) for ring in rings), area, tuple(bounds))


def main(seconds: float, memory_mb: int) -> None:
    """Mend what the input asks for, and end at the first area that the limits do not suffice for."""
    import shapely  # noqa: F401 - before memory is limited

    asked = json.load(sys.stdin)
    limit_memory(memory_mb * 2**20)
    # Processor time; by default its alarm ends the process, inside a library's long loop as well.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    for mended in _mended_here([[np.array(ring) for ring in rings] for rings in polygons] for polygons in asked):
        answer = [[ring.tolist() for ring in mended.rings], mended.area, mended.bounds]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
