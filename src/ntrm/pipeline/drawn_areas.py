"""Areas drawn in QuPath, on the mask of a slide that is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Runs
from ntrm.annotations.qupath import Annotation, count_clipped, read_annotations
from ntrm.annotations.rasterise import AnnotationGrid, Painted, paint
from ntrm.core.errors import DataError, choices_error
from ntrm.core.polygons import fill
from ntrm.correction.corrections import Corrections
from ntrm.pipeline.corrected_outputs import exported_regions
from ntrm.pipeline.slide_mask import SlideMask


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


def painted_areas(mask: SlideMask, corrections: Corrections, areas: Sequence[Annotation]) -> Painted:
    """Classes of the areas on the mask; regions as network or corrected mask have them are left out.

    They must not shield what lies beneath: regions do not overlap, so that an area over one of them was drawn there.
    """
    names, ours = mask.schema.names, exported_regions(mask, corrections)
    grid = AnnotationGrid(0.0, 0.0, *mask.summary.grid.to_level0[:2], mask.shape[1], mask.shape[0])
    drawn = [each for each in areas if not any(_is_region(each, grid, regions, names) for regions in ours)]
    return paint([(each, names.index(each.name)) for each in drawn], grid)


def _is_region(area: Annotation, grid: AnnotationGrid, regions: Regions, names: Sequence[str]) -> bool:
    """Whether an area is a region of a mask, pixel by pixel, under its own name."""
    rings = [grid.to_pixels(ring) for ring in area.rings]
    low, high = np.concatenate(rings).min(axis=0), np.concatenate(rings).max(axis=0)
    (left, top), (right, bottom) = np.floor(low).astype(int), np.ceil(high).astype(int)
    same_box = (regions.table.box == [top, left, bottom - top, right - left]).all(axis=1)
    for region in np.flatnonzero(same_box & (regions.table.tissue == names.index(area.name))):
        inside = fill(rings, right - left, bottom - top, left, top)
        window = Runs(regions.runs.shape, regions.runs.start, regions.region == region)
        if np.array_equal(window.window(top, left, bottom - top, right - left).dense(), inside):
            return True
    return False
