"""Areas drawn in QuPath, on the mask of a slide that is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Runs
from ntrm.annotations.qupath import Annotation, read_annotations
from ntrm.annotations.rasterise import AnnotationGrid, paint
from ntrm.core.errors import DataError, choices_error
from ntrm.core.labels import Mask
from ntrm.core.polygons import fill
from ntrm.correction.corrections import Corrections
from ntrm.pipeline.corrected_outputs import exported_regions
from ntrm.pipeline.correcting import SlideMask


def read_areas(path: Path, names: Sequence[str]) -> list[Annotation]:
    """Areas with a class that the model knows; those without one are left out."""
    found = [each for each in read_annotations(path).annotations if each.name]
    if not found:
        hint = "give the areas their class in QuPath, and export them again"
        raise DataError(f"{path.name} has no area with a class", expected=", ".join(names), hint=hint)
    unknown = next((each.name for each in found if each.name not in names), None)
    if unknown is not None:
        raise choices_error(f"{path.name}: the model does not know this tissue", unknown, names)
    return found


def painted_areas(mask: SlideMask, corrections: Corrections, areas: Sequence[Annotation]) -> Mask:
    """(H, W) classes of the areas on the mask; regions as network or corrected mask have them are ``len(schema)``."""
    names, ours = mask.schema.names, exported_regions(mask, corrections)
    grid = AnnotationGrid(0.0, 0.0, *mask.summary.grid.to_level0[:2], mask.shape[1], mask.shape[0])
    same = [any(_is_region(each, grid, regions, names) for regions in ours) for each in areas]
    values = [len(names) if known else names.index(each.name) for each, known in zip(areas, same, strict=True)]
    return paint([*zip(areas, values, strict=True)], grid)[0]


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
