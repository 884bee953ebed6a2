"""Anatomy of a synthetic skin section: ``layout(seed)`` gives its mask at any resolution, and what is true of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN, Mask
from ntrm.phantom.anatomy.adnexa import paint_adnexa
from ntrm.phantom.anatomy.damage import paint_damage
from ntrm.phantom.anatomy.frame import BKG, HYP, Grid, Skin, Where
from ntrm.phantom.anatomy.layers import Fat, paint_dermis, paint_surface
from ntrm.phantom.anatomy.section_plan import Plan, draw_plan
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.anatomy.truth import SectionTruth, Survey, measure
from ntrm.phantom.anatomy.tumours import paint_mass_details, paint_nests, paint_stroma
from ntrm.phantom.noise import derive, generator

TRUTH_MPP = 6.7
"""Truth is measured on this grid whatever resolution is asked for; pictures are whole numbers of its pixels."""

MPP_RANGE = (0.25, 30.0)

FAR_UM = 1e9
"""Depth given to pixels too far from the section to be drawn."""


@dataclass(frozen=True)
class Section:
    """A synthetic section: its labels, its resolution, how it was drawn and what is true of it."""

    mask: Mask
    mpp: float
    seed: int
    cancer: str
    biopsy: str
    truth: SectionTruth


@dataclass(frozen=True)
class CutParameters:
    """Raggedness of the cut edges, in µm."""

    ragged_um: float = 55.0
    wavelength_um: float = 1100.0
    fat_factor: float = 1.6
    """Fat tears rather than cuts: its edge is more ragged by this factor."""


def layout(seed: int, mpp: float = TRUTH_MPP, cancer: str | None = None) -> Section:
    """Draw the section of ``seed`` at ``mpp`` µm per pixel.

    The same seed is the same section at every resolution. ``cancer`` is BCC, SCC or IEC; None draws it in the
    ratio of the real dataset.
    """
    low, high = MPP_RANGE
    if not low <= mpp <= high:
        raise UsageError("resolution out of range", got=f"{mpp} µm/px", expected=f"{low} to {high} µm/px")
    plan = draw_plan(seed, cancer)
    survey = _survey(plan)
    mask = survey.mask if mpp == TRUTH_MPP else paint_mask(plan, mpp)
    return Section(mask, mpp, seed, plan.cancer, plan.specimen.biopsy.name, measure(survey))


def _grid(plan: Plan, mpp: float) -> Grid:
    top, left, height, width = plan.box_um
    rows, columns = math.ceil(height / TRUTH_MPP), math.ceil(width / TRUTH_MPP)
    return Grid((round(rows * TRUTH_MPP / mpp), round(columns * TRUTH_MPP / mpp)), mpp, (top, left))


def paint_mask(plan: Plan, mpp: float) -> Mask:
    """The mask of a section as planned, at ``mpp`` µm per pixel."""
    grid = _grid(plan, mpp)
    mask = np.full(grid.shape, BKG, dtype=np.uint8)
    for at, strip in grid.strips(plan.outline):
        mask[at] = _paint(plan, strip)[0].mask
    return mask


def _survey(plan: Plan) -> Survey:
    grid = _grid(plan, TRUTH_MPP)
    mask = np.full(grid.shape, BKG, dtype=np.uint8)
    depth = np.full(grid.shape, FAR_UM, dtype=np.float32)
    uncut = np.zeros(grid.shape, dtype=bool)
    for at, strip in grid.strips(plan.outline):
        skin, uncut[at] = _paint(plan, strip)
        mask[at], depth[at] = skin.mask, skin.v
    specimen = plan.specimen
    return Survey(mask, TRUTH_MPP, depth, uncut, specimen.has_surface, has_margin=not specimen.fragmented)


def _paint(plan: Plan, grid: Grid) -> tuple[Skin, Where]:
    """Paint a strip from the deep to the superficial; also tell where no cut took the tissue away."""
    lesions, strata = plan.lesions, plan.lesions.strata
    skin = Skin(grid, plan.specimen.frame, plan.specimen.axis, strata.lift)
    paint_dermis(skin, strata, Fat())
    paint_stroma(skin, lesions.clusters)
    paint_adnexa(skin, plan.adnexa)
    air = paint_surface(skin, strata)
    paint_nests(skin, lesions.clusters)
    paint_mass_details(skin, lesions.satellites, lesions.pearls)
    uncut = _uncut(skin, plan.specimen, CutParameters())
    skin.mask[air | ~uncut] = BKG
    paint_damage(skin, plan.damage)
    return skin, uncut


def _uncut(skin: Skin, specimen: Specimen, cut: CutParameters) -> Where:
    """Where the knife left the tissue: within the specimen's outline, made ragged."""
    ragged_u = np.float32(cut.ragged_um) * skin.noise("ragged u", cut.wavelength_um, 4)
    ragged_w = np.float32(cut.ragged_um) * skin.noise("ragged w", cut.wavelength_um, 4)
    depth = skin.w + np.where(skin.mask == HYP, np.float32(cut.fat_factor) * ragged_w, ragged_w)
    inside = depth < specimen.thickness[skin.axis.index(skin.u + ragged_u)]
    return inside if specimen.has_surface else inside & (depth > specimen.top_um)


# Several sections on one slide-sized picture, as a microtome leaves them on the glass.


GRID_UM = 6.7
"""Pieces lie on this grid: a whole number of pixels at 1x, 2x, 5x and 10x, so every level shows the same slide."""

GAP_UM = (600.0, 2500.0)
"""Least and greatest glass between two pieces and around them."""


@dataclass(frozen=True)
class Piece:
    """One section on a slide: where it lies and what is true of it."""

    number: int
    top_um: float
    left_um: float
    height_um: float
    width_um: float
    biopsy: str
    truth: SectionTruth

    def as_dict(self) -> dict[str, object]:
        """For ``truth.json``."""
        box = {key: round(getattr(self, key), 2) for key in ("top_um", "left_um", "height_um", "width_um")}
        return {"number": self.number, **box, "biopsy": self.biopsy, **self.truth.as_dict()}


@dataclass(frozen=True)
class Slide:
    """A mask with its pieces."""

    mask: Mask
    pieces: tuple[Piece, ...]


def lay_slide(seed: int, mpp: float, cancer: str, pieces: int = 1) -> Slide:
    """Draw ``pieces`` sections of one block beside and below each other.

    One piece is the section as ``layout`` draws it, on the common grid.
    """
    sections = [layout(derive(seed, "piece", k) if k else seed, mpp, cancer) for k in range(pieces)]
    sizes = [_cells(section) for section in sections]
    if pieces == 1:
        places, (height, width) = [(0, 0)], sizes[0]
    else:
        places, (height, width) = _shelves(sizes, seed)
    pixels = GRID_UM / mpp
    shape = round(height * pixels), round(width * pixels)
    mask: Mask = np.full(shape, SKIN.index("BKG"), dtype=np.uint8)
    for section, (row, column) in zip(sections, places, strict=True):
        top, left = round(row * pixels), round(column * pixels)
        mask[top : top + section.mask.shape[0], left : left + section.mask.shape[1]] = section.mask
    boxes = zip(sections, sizes, places, strict=True)
    return Slide(mask, tuple(_piece(k, *box) for k, box in enumerate(boxes, start=1)))


def _cells(section: Section) -> tuple[int, int]:
    """Extent of a section in grid cells. The tolerance keeps rounding noise from adding a cell at one level only."""
    height, width = section.mask.shape
    scale = section.mpp / GRID_UM
    return math.ceil(height * scale - 0.5), math.ceil(width * scale - 0.5)


def _piece(number: int, section: Section, cells: tuple[int, int], place: tuple[int, int]) -> Piece:
    top, left = (value * GRID_UM for value in place)
    height, width = (value * GRID_UM for value in cells)
    return Piece(number, top, left, height, width, section.biopsy, section.truth)


def _shelves(sizes: list[tuple[int, int]], seed: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Places (row, column) in cells, row by row, and the size of the slide that holds them."""
    random = generator(seed, "slide")
    columns = math.ceil(math.sqrt(len(sizes)))

    def gap() -> int:
        return round(random.uniform(*GAP_UM) / GRID_UM)

    places: list[tuple[int, int]] = []
    top, width = gap(), 0
    for first in range(0, len(sizes), columns):
        left, bottom = gap(), top
        for height_k, width_k in sizes[first : first + columns]:
            row = top + gap() // 4
            places.append((row, left))
            left += width_k + gap()
            bottom = max(bottom, row + height_k)
        width = max(width, left)
        top = bottom + gap()
    return places, (top, width)
