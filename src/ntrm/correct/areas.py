"""Areas drawn in QuPath, on the mask of a slide that is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ntrm.annotations.qupath import Annotation, AnnotationFile, count_clipped
from ntrm.annotations.rasterise import AnnotationGrid, Painted, paint
from ntrm.core.errors import DataError, choices_error
from ntrm.correct.mask import SlideMask
from ntrm.correct.results import exported_regions
from ntrm.correct.state import State
from ntrm.export.geojson import simplified
from ntrm.regions.fill import Ring
from ntrm.regions.nearest import nearest_of
from ntrm.regions.polygons import outlines_of
from ntrm.regions.regions import Regions

ROUNDED = 0.02  # Pixels of the slide by which programs move a point that they read and write


class ExactRegion(NamedTuple):
    """A region of a mask."""

    tissue: int
    rings: tuple[Ring, ...]  # In pixels of the slide


def slide_areas(file: AnnotationFile, file_name: str, mask: SlideMask) -> tuple[list[Annotation], dict[str, int]]:
    """Areas on the slide with a class that the model knows, and what was left out or repaired, counted."""
    names = mask.schema.names
    found = [each for each in file.annotations if each.name]
    if not found:
        hint = "give the areas their class in QuPath, and export them again"
        raise DataError(f"{file_name} has no area with a class", expected=", ".join(names), hint=hint)
    unknown = next((each.name for each in found if each.name not in names), None)
    if unknown is not None:
        raise choices_error(f"{file_name}: the model does not know this tissue", unknown, names)
    (height, width), (step_x, step_y) = mask.shape, mask.summary.grid.to_level0[:2]
    count_clipped(found, (width * step_x, height * step_y), file_name, mask.folder.name)
    return found, {**file.counts, "unclassified": len(file.annotations) - len(found)}


def painted_areas(mask: SlideMask, corrections: State, areas: Sequence[Annotation]) -> Painted:
    """Classes of the areas on the mask; regions as network or corrected mask have them are left out.

    They must not shield what lies beneath: regions do not overlap, so that an area over one of them was drawn there. An
    exported region that has another class by now is the whole region, also where its outline was simplified.
    """
    names = mask.schema.names
    grid = AnnotationGrid(0.0, 0.0, *mask.summary.grid.to_level0[:2], mask.shape[1], mask.shape[0])
    simplify_um = float(mask.summary.options.get("simplify_um") or 0)
    known = [_regions_among(areas, grid, regions, simplify_um) for regions in exported_regions(mask, corrections)]
    drawn = []
    for index, area in enumerate(areas):
        found = [regions[index] for regions in known if index in regions]
        if not any(names[region.tissue] == area.name for region in found):
            drawn.append(area._replace(rings=found[0].rings) if found else area)
    return paint([(each, names.index(each.name)) for each in drawn], grid)


def _regions_among(
    areas: Sequence[Annotation], grid: AnnotationGrid, regions: Regions, simplify_um: float
) -> dict[int, ExactRegion]:
    """Which areas, by their index, have the outline with which a region was written."""
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
            if region not in candidates:
                continue
            exact = tuple(outlines.points[begin:end] * step for begin, end in spans)
            simpler = simplified(outlines.points, spans, table.resolution, simplify_um) if simplify_um else None
            written = exact if simpler is None else [ring * step for ring in simpler]
            for index in candidates[region]:
                if _same_points(areas[index].rings, written):
                    found[index] = ExactRegion(int(table.tissue[region]), exact)
        first += len(outlines)
    return found


def _same_points(rings: Sequence[Ring], others: Sequence[Ring]) -> bool:
    """Whether rings have the same corners, wherever they begin and whichever way they go."""
    one, two = np.concatenate(rings), np.concatenate(others)
    return bool(max(nearest_of(one, two)[0].max(), nearest_of(two, one)[0].max()) <= 2 * ROUNDED)
