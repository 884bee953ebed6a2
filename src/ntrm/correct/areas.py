"""Areas drawn in QuPath, on the mask of a slide that is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ntrm.annotations.qupath import Annotation, count_clipped, read_annotations
from ntrm.annotations.rasterise import AnnotationGrid, paint
from ntrm.core.errors import DataError, choices_error
from ntrm.core.labels import Mask
from ntrm.correct.mask import SlideMask
from ntrm.regions.nearest import nearest_of
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import CORRECTED, REGIONS

ROUNDED = 0.04  # Pixels of the slide by which programs move points that they read and write


def painted_areas(path: Path, mask: SlideMask) -> tuple[Mask, dict[str, int]]:
    """Classes of the areas of a file on the mask, and how many of them were left out, clipped or repaired.

    Regions that were exported again as network or corrected mask have them are left out. They must not shield what lies
    beneath: regions do not overlap, so that an area over one of them was drawn there.
    """
    file, names = read_annotations(path), mask.schema.names
    areas = [each for each in file.annotations if each.name]
    if not areas:
        hint = "give the areas their class in QuPath, and export them again"
        raise DataError(f"{path.name} has no area with a class", expected=", ".join(names), hint=hint)
    known = mask.schema.nameable
    unknown = next((each.name for each in areas if each.name not in known), None)
    if unknown is not None:
        raise choices_error(f"{path.name}: this tissue is none of the classes", unknown, known)
    (height, width), (step_x, step_y) = mask.shape, mask.summary.grid.to_level0[:2]
    count_clipped(areas, (width * step_x, height * step_y), path.name, mask.folder.name)
    drawn = _without_exported(areas, mask.folder)
    grid = AnnotationGrid(0.0, 0.0, step_x, step_y, width, height)
    painted, _, pixels = paint([(each, names.index(each.name)) for each in drawn], grid)
    unclassified = len(file.annotations) - len(areas)
    return painted, {**file.counts, "unclassified": unclassified, "no_pixel": pixels.count(0)}


def _without_exported(areas: Sequence[Annotation], folder: Path) -> list[Annotation]:
    """Those that have not class and outline of a region in a slide's files."""
    from scipy.spatial import cKDTree

    places = [(*inside, name) for inside in ((), (CORRECTED,)) for name in (REGIONS, f"{REGIONS}.gz")]
    files = [folder.joinpath(*names) for names in places if SlideFolder(folder).has(*names)]
    exported = [each for file in files for each in read_annotations(file).annotations]
    boxes = cKDTree(np.reshape([each.bounds for each in exported], (-1, 4)))
    near = boxes.query_ball_point([each.bounds for each in areas], ROUNDED, p=np.inf)

    def is_exported(area: Annotation, others: list[int]) -> bool:
        own = np.concatenate(area.rings)
        alike = (np.concatenate(exported[at].rings) for at in others if exported[at].name == area.name)
        # The same corners, wherever the rings begin and whichever way they go.
        return any(max(nearest_of(own, its)[0].max(), nearest_of(its, own)[0].max()) <= ROUNDED for its in alike)

    return [area for area, others in zip(areas, near, strict=True) if not is_exported(area, others)]
