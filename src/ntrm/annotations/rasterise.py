"""Annotations to the pixels of a mask, and the pixels of the slide under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ntrm.annotations.qupath import Annotation
from ntrm.core.labels import IGNORE, Mask
from ntrm.data.area_mean import Boxes, area_boxes, box_means
from ntrm.regions.polygons import fill
from ntrm.slides.readers.reader import Pixels, SlideReader

BLOCK = 1024  # Side of the largest block of the slide held in memory, in full-resolution pixels
FRAME = "region*"
"""QuPath's class for a frame around what is annotated, in lower case; the annotations in it are meant to be seen."""


@dataclass(frozen=True)
class AnnotationGrid:
    """A pixel grid on the slide: it starts at ``left``, ``top``; a pixel is ``step_x`` by ``step_y``."""

    left: float
    top: float
    step_x: float
    step_y: float
    width: int
    height: int


class Painted(NamedTuple):
    """A mask made of areas."""

    mask: Mask
    overlaps: dict[tuple[int, int], int]
    """Pixels by (value below, value on top) where areas of different values lie on each other."""
    pixels: tuple[int, ...]  # Of each area, those beneath others included


def paint(areas: Sequence[tuple[Annotation, int]], grid: AnnotationGrid) -> Painted:
    """Mask of annotations and their values, larger ones below smaller ones, and what QuPath ignores on top of all.

    Of two areas of one size the later lies on top. What no area covers is ``IGNORE``.
    """
    mask = np.full((grid.height, grid.width), IGNORE, dtype=np.uint8)
    overlaps: dict[tuple[int, int], int] = {}
    covered = [0] * len(areas)
    for number, (annotation, value) in sorted(enumerate(areas), key=lambda each: _place(*each[1])):
        rings = [(ring - (grid.left, grid.top)) / (grid.step_x, grid.step_y) for ring in annotation.rings]
        # Only the pixels that the rings can touch.
        points, size = np.concatenate(rings), (grid.width, grid.height)
        left, top = np.clip(np.floor(points.min(axis=0)), 0, size).astype(int)
        right, bottom = np.clip(np.ceil(points.max(axis=0)), 0, size).astype(int)
        window = mask[top:bottom, left:right]
        inside = fill(rings, window.shape[1], window.shape[0], left, top)
        for below, pixels in enumerate(np.bincount(window[inside], minlength=IGNORE)[:IGNORE].tolist()):
            if pixels and value != below:
                overlaps[below, value] = overlaps.get((below, value), 0) + pixels
        window[inside] = value
        covered[number] = int(inside.sum())
    return Painted(mask, overlaps, tuple(covered))


def _place(annotation: Annotation, value: int) -> tuple[bool, float]:
    """What an annotation is sorted by, from the lowest to the top: a fold or ink hides also what is smaller.

    Of a class that was renamed to nothing it is not known whether it covers a fold or outlines what is annotated.
    """
    covers = value == IGNORE and annotation.name.endswith("*") and annotation.name.lower() != FRAME
    return covers, -annotation.area


def read_grid(reader: SlideReader, grid: AnnotationGrid) -> Pixels:
    """The slide on a coarser grid: every pixel is the mean of the slide over its area, read block by block.

    QuPath shows only the scanned area where a file states one, and counts pixels from its top left; so does the grid.
    """
    image = np.empty((grid.height, grid.width, 3), dtype=np.uint8)
    x, y, width, height = reader.info.area
    columns = _blocks(grid.left, grid.step_x, grid.width, width)
    for rows, down in _blocks(grid.top, grid.step_y, grid.height, height):
        for place, across in columns:
            pixels = reader.read(across.start + x, down.start + y, across.length, down.length, 0)
            image[rows, place] = box_means(pixels, down, across)
    return image


def _blocks(origin: float, step: float, count: int, length: int) -> list[tuple[slice, Boxes]]:
    """Pixels of the grid along an axis, as many as are read together, and what they cover of the slide."""
    most = max(1, int(BLOCK / step))
    parts = [range(first, min(first + most, count)) for first in range(0, count, most)]
    return [(slice(part.start, part.stop), area_boxes(part, step, length, origin)) for part in parts]
