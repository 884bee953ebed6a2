"""Areas drawn in QuPath, on the mask of a slide that is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ntrm.analysis.fill import Ring, fill
from ntrm.analysis.polygons import outlines_of
from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Runs
from ntrm.annotations.qupath import Annotation, count_clipped, read_annotations
from ntrm.annotations.rasterise import AnnotationGrid, Painted, paint
from ntrm.core.errors import DataError, choices_error
from ntrm.correction.mask import SlideMask
from ntrm.correction.results import exported_regions
from ntrm.correction.state import State
from ntrm.export.geojson import simplified

ROUNDED = 0.02
"""Pixels of the slide by which programs move a point that they read and write."""


class ExactRegion(NamedTuple):
    """A region of a mask."""

    tissue: int
    rings: tuple[Ring, ...]
    """In pixels of the slide."""


def read_areas(path: Path, mask: SlideMask) -> tuple[list[Annotation], dict[str, int]]:
    """Areas on the slide with a class that the model knows, and what was left out or repaired, counted."""
    names, file = mask.schema.names, read_annotations(path)
    found = [each for each in file.annotations if each.name]
    if not found:
        hint = "give the areas their class in QuPath, and export them again"
        raise DataError(f"{path.name} has no area with a class", expected=", ".join(names), hint=hint)
    unknown = next((each.name for each in found if each.name not in names), None)
    if unknown is not None:
        raise choices_error(f"{path.name}: the model does not know this tissue", unknown, names)
    (height, width), (step_x, step_y) = mask.shape, mask.summary.grid.to_level0[:2]
    count_clipped(found, (width * step_x, height * step_y), path.name, mask.folder.name)
    return found, {**file.counts, "unclassified": len(file.annotations) - len(found)}


def painted_areas(mask: SlideMask, corrections: State, areas: Sequence[Annotation]) -> Painted:
    """Classes of the areas on the mask; regions as network or corrected mask have them are left out.

    They must not shield what lies beneath: regions do not overlap, so that an area over one of them was drawn there. So
    it is with regions whose outlines were simplified when they were written; one that has another class by now is the
    whole region.
    """
    names, ours = mask.schema.names, exported_regions(mask, corrections)
    grid = AnnotationGrid(0.0, 0.0, *mask.summary.grid.to_level0[:2], mask.shape[1], mask.shape[0])
    drawn = [each for each in areas if not any(_is_region(each, grid, regions, names) for regions in ours)]
    if simplify_um := mask.summary.options.get("simplify_um"):
        known = [_simplified_regions(drawn, grid, regions, float(simplify_um)) for regions in ours]
        whole = (_whole(area, [each[k] for each in known if k in each], names) for k, area in enumerate(drawn))
        drawn = [area for area in whole if area is not None]
    return paint([(each, names.index(each.name)) for each in drawn], grid)


def _whole(area: Annotation, found: Sequence[ExactRegion], names: Sequence[str]) -> Annotation | None:
    """An area that is a region of a mask with its exact outline; None where it has the class that a mask has there."""
    if any(names[region.tissue] == area.name for region in found):
        return None
    return area._replace(rings=found[0].rings) if found else area


def _simplified_regions(
    areas: Sequence[Annotation], grid: AnnotationGrid, regions: Regions, simplify_um: float
) -> dict[int, ExactRegion]:
    """Which areas, by their index, are regions whose outlines were simplified."""
    table, step = regions.table, np.array([grid.step_x, grid.step_y])
    corners = np.concatenate([table.box[:, 1::-1], table.box[:, 1::-1] + table.box[:, :1:-1]], axis=1)
    # A simpler outline has some of the corners of the exact one: its box is no larger, and hardly smaller.
    most = simplify_um / np.tile([table.resolution.x, table.resolution.y], 2)
    candidates: dict[int, list[int]] = {}
    for index, area in enumerate(areas):
        inwards = (area.bounds / np.tile(step, 2) - corners) * [1, 1, -1, -1]
        for region in np.flatnonzero(((inwards >= -ROUNDED) & (inwards <= most + ROUNDED)).all(axis=1)).tolist():
            candidates.setdefault(region, []).append(index)
    found: dict[int, ExactRegion] = {}
    first = 0
    for outlines in outlines_of(regions) if candidates else ():
        for region, spans in enumerate(outlines.spans(), first):
            rings = simplified(outlines.points, spans, table.resolution, simplify_um) if region in candidates else None
            for index in candidates.get(region, []) if rings is not None else []:
                if _same_points(areas[index].rings, [ring * step for ring in rings or ()]):
                    exact = tuple(outlines.points[begin:end] * step for begin, end in spans)
                    found[index] = ExactRegion(int(table.tissue[region]), exact)
        first += len(outlines)
    return found


def _same_points(rings: Sequence[Ring], others: Sequence[Ring]) -> bool:
    """Whether rings have the same corners, wherever they begin and whichever way they go."""
    one, two = (np.unique(np.concatenate(each).round(2), axis=0) for each in (rings, others))
    return one.shape == two.shape and bool(np.abs(one - two).max() <= ROUNDED)


def _is_region(area: Annotation, grid: AnnotationGrid, regions: Regions, names: Sequence[str]) -> bool:
    """Whether an area is a region of a mask, pixel by pixel, under its own name."""
    rings = [grid.to_pixels(ring) for ring in area.rings]
    low, high = np.concatenate(rings).min(axis=0), np.concatenate(rings).max(axis=0)
    # A region lies between edges of pixels, but for the rounding of its coordinates.
    (left, top), (right, bottom) = np.rint(low).astype(int), np.rint(high).astype(int)
    same_box = (regions.table.box == [top, left, bottom - top, right - left]).all(axis=1)
    for region in np.flatnonzero(same_box & (regions.table.tissue == names.index(area.name))):
        inside = fill(rings, right - left, bottom - top, left, top)
        window = Runs(regions.runs.shape, regions.runs.start, regions.region == region)
        if np.array_equal(window.window(top, left, bottom - top, right - left).dense(), inside):
            return True
    return False
