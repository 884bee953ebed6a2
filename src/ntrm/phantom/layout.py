"""Anatomy of a synthetic skin section: ``layout(seed)`` gives its mask at any resolution, and the ground truth."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, binary_erosion
from scipy.spatial import cKDTree

from ntrm.core.arrays import BoolMask
from ntrm.core.errors import check_number
from ntrm.core.labels import CANCERS, SKIN, Mask
from ntrm.phantom.anatomy.frame import BCC, BKG, HYP, IEC, SCC, Extents, PhantomGrid, Skin
from ntrm.phantom.anatomy.layers import paint_dermis, paint_surface
from ntrm.phantom.anatomy.section_plan import Plan, draw_plan
from ntrm.phantom.anatomy.tumours import paint_nests, stroma
from ntrm.phantom.noise import Field, derive, generator
from ntrm.phantom.tissues import labels_of
from ntrm.phantom.versions import DEFAULT_VERSION

GRID_UM = 6.7
"""Ground truth is measured on this grid at every resolution, and sections lie on it: it is a whole number of pixels at
1x, 2x, 5x and 10x."""

GAP_UM = (600.0, 2500.0)  # Least and greatest glass between two sections of a slide and around them

MPP_RANGE = (0.25, 30.0)

FAR_UM = 1e9  # Depth given to pixels too far from the section to be drawn

NO_SURFACE = "no skin surface in the section"
NO_MARGIN = "fragmented: the cut margin cannot be told"
IN_SITU_ONLY = "in situ only: nothing invades"
NO_TUMOUR = "no tumour in the section"


@dataclass(frozen=True)
class SectionTruth:
    """The facts a pathologist would report; what cannot be given is None, with a reason.

    The surface direction is where the skin's outer side faces on average: 0° the top of the picture, 90° its right
    side, clockwise, below 360. Clearance is the smallest distance from tumour to a cut edge of the section, deep or
    lateral, never to the natural surface, a tear or a hole; 0 where the tumour is cut through. Depth is the greatest
    distance of invasive tumour (BCC, SCC) below the natural surface, keratin not counted.
    """

    cancers: tuple[str, ...]
    surface_deg: float | None
    surface_reason: str
    clearance_um: float | None
    clearance_reason: str
    depth_um: float | None
    depth_reason: str


@dataclass(frozen=True)
class Section:
    """A synthetic section: its labels, its resolution, how it was drawn and its ground truth."""

    mask: Mask
    mpp: float
    seed: int
    cancer: str
    biopsy: str
    truth: SectionTruth
    fine: Mask  # What ``render`` draws: the labels, with codes for tissues that are finer than these (``tissues.py``).
    version: str = DEFAULT_VERSION


def layout(seed: int, mpp: float = GRID_UM, cancer: str | None = None, version: str = DEFAULT_VERSION) -> Section:
    """Draw the section of ``seed`` at ``mpp`` µm per pixel.

    The same seed is the same section at every resolution. ``cancer`` is BCC, SCC, IEC or "none", which is normal skin;
    None draws one of the three in the ratio of the real dataset. ``version`` is one of ``versions.VERSIONS``.
    """
    check_number("µm per pixel", mpp, *MPP_RANGE)
    plan = draw_plan(seed, cancer, version)
    painted = paint_section(plan, GRID_UM)
    fine = painted.fine if mpp == GRID_UM else paint_section(plan, mpp).fine
    biopsy, truth = plan.specimen.biopsy.name, measure(painted)
    return Section(labels_of(fine), mpp, seed, plan.cancer, biopsy, truth, fine, version)


def _paint(plan: Plan, grid: PhantomGrid, extents: Extents) -> tuple[Skin, BoolMask]:
    """Paint a strip from the deep to the superficial; also returns where no cut took the tissue away."""
    lesions, strata, variety = plan.lesions, plan.lesions.strata, plan.variety
    skin = Skin(grid, plan.specimen.frame, plan.specimen.axis, strata.lift, extents=extents)
    paint_dermis(skin, strata)
    if variety is not None:
        variety.dermis.paint(skin, strata)
    for structure in (stroma(lesions.clusters), *(variety.structures if variety else ()), *plan.adnexa):
        structure.paint(skin)
    air = paint_surface(skin, strata)
    if variety is not None:
        variety.surface.paint(skin)
    paint_nests(skin, lesions.clusters)
    for structure in lesions.structures:
        structure.paint(skin)
    # Where the knife left the tissue: within the specimen's outline, made ragged.
    specimen = plan.specimen
    ragged_u, ragged_w = (np.float32(55.0) * skin.noise(name, 1100.0, 4) for name in ("ragged u", "ragged w"))
    # Fat tears rather than cuts: its edge is more ragged.
    depth = skin.w + np.where(skin.mask == HYP, np.float32(1.6) * ragged_w, ragged_w)
    uncut = depth < specimen.thickness[skin.axis.index(skin.u + ragged_u)]
    if not specimen.has_surface:
        uncut &= depth > specimen.top_um
    skin.mask[air | ~uncut] = BKG
    for structure in plan.damage:
        structure.paint(skin)
    return skin, uncut


@dataclass(frozen=True)
class PaintedSection:
    """A section as planned, on a grid; ground truth is measured on it."""

    fine: Mask
    mpp: float
    depth: Field  # µm below the natural surface
    uncut: BoolMask  # Where no knife took the tissue away; tears and holes do not count as cuts
    has_surface: bool
    has_margin: bool

    @property
    def mask(self) -> Mask:
        """Its labels."""
        return labels_of(self.fine)


def paint_section(plan: Plan, mpp: float) -> PaintedSection:
    """Paint a section strip by strip, at ``mpp`` µm per pixel."""
    top, left, height, width = plan.box_um
    rows, columns = math.ceil(height / GRID_UM), math.ceil(width / GRID_UM)
    grid = PhantomGrid((round(rows * GRID_UM / mpp), round(columns * GRID_UM / mpp)), mpp, (top, left))
    fine = np.full(grid.shape, BKG, dtype=np.uint8)
    depth = np.full(grid.shape, FAR_UM, dtype=np.float32)
    uncut = np.zeros(grid.shape, dtype=bool)
    extents: Extents = {}
    for at, strip in grid.strips(plan.outline):
        skin, uncut[at] = _paint(plan, strip, extents)
        fine[at], depth[at] = skin.fine, skin.v
    return PaintedSection(fine, mpp, depth, uncut, plan.specimen.has_surface, not plan.specimen.fragmented)


def measure(section: PaintedSection) -> SectionTruth:
    """Ground truth of one section."""
    mask = section.mask
    invasive = (mask == BCC) | (mask == SCC)
    tumour = invasive | (mask == IEC)
    no_surface = "" if section.has_surface else NO_SURFACE
    no_tumour = "" if tumour.any() else NO_TUMOUR
    no_clearance = no_tumour or no_surface or ("" if section.has_margin else NO_MARGIN)
    no_depth = no_tumour or no_surface or ("" if invasive.any() else IN_SITU_ONLY)
    surface = section.uncut & (section.depth <= 0) & (section.depth > -2.0 * section.mpp)
    return SectionTruth(
        cancers=tuple(name for name in CANCERS if (mask == SKIN.index(name)).any()),
        surface_deg=None if no_surface else _facing(section.depth, surface),
        surface_reason=no_surface,
        clearance_um=None if no_clearance else _clearance(section, tumour),
        clearance_reason=no_clearance,
        depth_um=None if no_depth else _rounded(_distances(invasive, surface).max() * section.mpp),
        depth_reason=no_depth,
    )


def _facing(depth: Field, surface: BoolMask) -> float:
    """Direction of the mean outward normal along the surface."""
    down, right = np.gradient(depth, axis=0), np.gradient(depth, axis=1)
    length = np.hypot(down[surface], right[surface])
    north, east = (down[surface] / length).mean(dtype=np.float64), (-right[surface] / length).mean(dtype=np.float64)
    return _rounded(math.degrees(math.atan2(east, north))) % 360.0


def _clearance(section: PaintedSection, tumour: BoolMask) -> float:
    """Distance between the tumour's nearest pixel and the nearest pixel that the knife took."""
    below = section.depth > 0
    taken = below & ~section.uncut & binary_dilation(section.uncut & below)
    # Neighbouring pixels are one pixel apart although nothing lies between them.
    return _rounded(max(_distances(tumour, taken).min() - 1.0, 0.0) * section.mpp)


def _distances(of: BoolMask, to: BoolMask) -> NDArray[np.float64]:
    """Distance in pixels from the outline of one region to the nearest pixel of another."""
    outline = of & ~binary_erosion(of)
    distances, _ = cKDTree(np.argwhere(to)).query(np.argwhere(outline))
    return np.asarray(distances)


def _rounded(value: float) -> float:
    # A tenth of a µm or a degree is finer than the grid can tell.
    return round(float(value), 1)


@dataclass(frozen=True)
class Piece:
    """One section on a slide: its position and its ground truth."""

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
        return {"number": self.number, **box, "biopsy": self.biopsy, **asdict(self.truth)}


@dataclass(frozen=True)
class PhantomSlide:
    """A mask with its pieces."""

    mask: Mask
    pieces: tuple[Piece, ...]
    fine: Mask  # What ``render`` draws: the labels, with codes for finer tissues


def lay_slide(seed: int, mpp: float, cancer: str, pieces: int = 1, version: str = DEFAULT_VERSION) -> PhantomSlide:
    """Draw ``pieces`` sections of one block next to and below each other, as a microtome leaves them on the glass.

    One piece is the section as ``layout`` draws it, on the common grid.
    """
    sections = [layout(derive(seed, "piece", k) if k else seed, mpp, cancer, version) for k in range(pieces)]
    pixels, cells = GRID_UM / mpp, mpp / GRID_UM
    # The tolerance keeps rounding noise from adding a grid cell at one resolution only.
    sizes = [tuple(math.ceil(side * cells - 0.5) for side in section.mask.shape) for section in sections]
    corners, (height, width) = ([(0, 0)], sizes[0]) if pieces == 1 else _shelves(sizes, seed)
    fine: Mask = np.full((round(height * pixels), round(width * pixels)), BKG, dtype=np.uint8)
    laid = []
    for number, (section, size, corner) in enumerate(zip(sections, sizes, corners, strict=True), start=1):
        top, left = (round(side * pixels) for side in corner)
        fine[top : top + section.mask.shape[0], left : left + section.mask.shape[1]] = section.fine
        top_um, left_um, height_um, width_um = (side * GRID_UM for side in (*corner, *size))
        laid.append(Piece(number, top_um, left_um, height_um, width_um, section.biopsy, section.truth))
    return PhantomSlide(labels_of(fine), tuple(laid), fine)


def _shelves(sizes: list[tuple[int, ...]], seed: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Corners (row, column) of the sections in grid cells, shelf by shelf, and the size of the slide."""
    random = generator(seed, "slide")
    columns = math.ceil(math.sqrt(len(sizes)))

    def gap() -> int:
        return round(random.uniform(*GAP_UM) / GRID_UM)

    corners: list[tuple[int, int]] = []
    top, slide_width = gap(), 0
    for first in range(0, len(sizes), columns):
        left, bottom = gap(), top
        for height, width in sizes[first : first + columns]:
            row = top + gap() // 4
            corners.append((row, left))
            left += width + gap()
            bottom = max(bottom, row + height)
        slide_width = max(slide_width, left)
        top = bottom + gap()
    return corners, (top, slide_width)
