"""A slide on the model's grid: square pixels of the model's µm/px, whatever the scanner's.

Pixel i of an axis is centred (i + ½)·f level-0 pixels from the edge of the scanned area, f = model µm/px over slide
µm/px. It is the mean over max(f, 1) pixels of the best level around there: the exact area where the slide is finer than
the model, linear interpolation where it is coarser, and the slide's own pixel where f = 1.

The grid is computed in blocks at fixed positions that are cached, so that windows show the same pixels however they are
cut, and overlapping windows are read once.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from ntrm.core.errors import RefusedError, check_number
from ntrm.core.labels import WHITE
from ntrm.core.mpp import PLAUSIBLE_MPP, Resolution
from ntrm.core.threads import most_threads, thread_map
from ntrm.data.area_mean import Boxes, box_means
from ntrm.data.resample import shrunk_length
from ntrm.results.documents import Grid
from ntrm.slides.readers.reader import COARSEST_MPP, MAX_SIDE, ArrayCache, Pixels, SlideInfo, SlideReader

CACHE_BYTES = 128 * 2**20  # Blocks of the grid that are cached
BLOCK_PIXELS = 2048 * 2048  # Pixels of the slide that are read for one block, about: bounds the memory of a reading
MAX_BLOCK = 512  # Longest side of a block of tiled slides, in pixels of the grid
THUMBNAIL_MPP = 13.4
"""µm/px to look for tissue at: cell walls of fat still show, and a whole slide is some 2000 pixels wide."""
LEAST_FACTOR = 0.5  # A slide more than twice as coarse as the model lacks what the model has learnt to see
SUBPIXELS = 64  # Borders of boxes lie on this fraction of a pixel: all sums are integers

MOST_OVERVIEW = 2**27  # Pixels of a thumbnail: 155 mm squared, more than any glass has
MOST_READ = 2**36  # Pixels to be read: some ten to twenty minutes for the reading alone
READ_ANYWAY = 2**30  # So many pixels are read however small the file is
PIXELS_PER_BYTE = 1000  # Plain glass takes a byte for 350 pixels at best (deflate), tissue one for 10 or 20
SEVERAL_FILES = ("mirax", "dicom")
"""Formats whose pixels may lie in other files than the main one."""


@lru_cache(256)  # all blocks of a row or column of blocks have the same boxes, of some 20 kB
def box_weights(first: int, stop: int, step: float, origin: float, extent: float, length: int) -> Boxes:
    """Boxes of the output pixels ``first`` to ``stop - 1`` along an axis of ``length`` input pixels.

    There are ``step`` input pixels to an output pixel. Output pixel 0 begins at input pixel ``origin``, and ``extent``
    input pixels count from there on.
    """
    centre = origin + (np.arange(first, stop) + 0.5) * step
    half = max(step, 1.0) / 2
    low, high = round(max(0.0, origin) * SUBPIXELS), round(min(origin + extent, length) * SUBPIXELS)
    high = max(high, low + 1)
    begin = np.clip(np.rint((centre - half) * SUBPIXELS).astype(np.int64), low, high - 1)
    end = np.clip(np.rint((centre + half) * SUBPIXELS).astype(np.int64), begin + 1, high)
    return Boxes.between(begin, end, SUBPIXELS)


def read_area(reader: SlideReader, level: int, factors: tuple[float, float], rows: range, columns: range) -> Pixels:
    """Rows and columns of a grid whose pixels are ``factors`` (x, y) level-0 pixels, made of the pixels of a level."""
    info, this = reader.info, reader.info.levels[level]
    # The scanned area in pixels of the level; nobody scanned what lies beyond.
    (left, top, wide, tall), (sx, sy) = info.area, info.scale(level)
    down = box_weights(rows.start, rows.stop, factors[1] / sy, top / sy, tall / sy, this.height)
    across = box_weights(columns.start, columns.stop, factors[0] / sx, left / sx, wide / sx, this.width)
    x, y = round(across.start * this.downsample), round(down.start * this.downsample)
    return box_means(reader.read(x, y, across.length, down.length, level), down, across)


class SlideGrid:
    """A slide as the model sees it; safe to use from several threads if the reader is."""

    def __init__(self, reader: SlideReader, model_mpp: float, mpp: Resolution | None = None) -> None:
        self.reader = reader
        self.source = mpp or credible_resolution(reader.info)
        """µm/px of the slide."""
        self.model_mpp = float(model_mpp)
        self._mpp_from = "metadata" if mpp is None else "given"
        model = Resolution.square(self.model_mpp)
        _, _, wide, tall = reader.info.area
        self._fx = _snapped(model.x / self.source.x, wide)
        self._fy = _snapped(model.y / self.source.y, tall)
        if min(self._fx, self._fy) < LEAST_FACTOR:
            # Nine digits: more than a slide has pixels along an axis, so that what is refused never reads like it.
            raise RefusedError(
                "the slide is too coarse for the model",
                got=f"{self.source.x:.9g} × {self.source.y:.9g} µm/px",
                expected=f"at most {model.mean / LEAST_FACTOR:.9g} µm/px for a model of {model}",
                hint="scan or export the slide at a higher resolution, use a model of a lower one, or correct --mpp",
            )
        self.width, self.height = shrunk_length(wide, self._fx), shrunk_length(tall, self._fy)
        self.level = best_level(reader.info, self._fx, self._fy)
        this, (sx, sy) = reader.info.levels[self.level], reader.info.scale(self.level)
        per_row, per_column = self._fy / sy, self._fx / sx  # Pixels of the level for one of the grid
        # Full rows of slides in strips, otherwise nearly square.
        across = this.width if this.tile is not None and this.tile[0] >= this.width else math.sqrt(BLOCK_PIXELS)
        rows = min(MAX_BLOCK, max(1, int(BLOCK_PIXELS / across / per_row)))
        columns = self.width if across == this.width else min(MAX_BLOCK, max(1, int(across / per_column)))
        self.block = rows, columns
        """Rows and columns that are read together."""
        self._blocks = ArrayCache(CACHE_BYTES)

    @classmethod
    def no_finer(cls, reader: SlideReader, wanted_mpp: float, mpp: Resolution | None = None) -> SlideGrid:
        """A grid of the µm/px that are wanted, or of the slide's own where it is coarser."""
        source = mpp or credible_resolution(reader.info)
        return cls(reader, max(wanted_mpp, source.x, source.y), mpp)

    @property
    def resolution(self) -> Resolution:
        """µm/px of the grid: the model's, up to the rounding of tags."""
        return Resolution(self.source.x * self._fx, self.source.y * self._fy)

    @property
    def warnings(self) -> tuple[str, ...]:
        """In words, where the µm/px given contradicts the file: every area and length goes by it."""
        stated = self.reader.info.resolution
        agree = stated is None or stated.same_as(self.source)
        return () if agree else (f"the file says {stated}, but {self.source} was given and used",)

    @property
    def to_level0(self) -> tuple[float, float, float, float]:
        """(sx, sy, ox, oy): the corner (x, y) of a grid pixel is at (sx·x + ox, sy·y + oy) in level-0 pixels."""
        left, top = self.reader.info.area[:2]
        return self._fx, self._fy, float(left), float(top)

    def read(self, top: int, left: int, height: int, width: int) -> Pixels:
        """(height, width, 3) of the grid; white beyond it."""
        check_number("height of a window", height, 1, 2**15, whole=True)
        check_number("width of a window", width, 1, MAX_SIDE, whole=True)
        bottom, right = min(top + height, self.height), min(left + width, self.width)
        first_row, first_column = max(top, 0), max(left, 0)
        out = np.full((height, width, 3), WHITE, dtype=np.uint8)
        if first_row >= bottom or first_column >= right:
            return out
        tall, wide = self.block
        for row in range(first_row // tall, -(-bottom // tall)):
            for column in range(first_column // wide, -(-right // wide)):
                # Always computed from the same pixels of the slide.
                own = range(row * tall, min((row + 1) * tall, self.height))
                at = range(column * wide, min((column + 1) * wide, self.width))
                make = partial(read_area, self.reader, self.level, (self._fx, self._fy), own, at)
                block = self._blocks.get((row, column), make)
                y, x = row * tall, column * wide
                y0, y1 = max(first_row, y), min(bottom, y + block.shape[0])
                x0, x1 = max(first_column, x), min(right, x + block.shape[1])
                out[y0 - top : y1 - top, x0 - left : x1 - left] = block[y0 - y : y1 - y, x0 - x : x1 - x]
        return out

    def forget(self) -> None:
        """Empty the cache; to be called when no more is read."""
        self._blocks = ArrayCache(CACHE_BYTES)

    def record(self) -> Grid:
        """For the documents of a slide."""
        return Grid(
            height=self.height,
            width=self.width,
            mpp=(self.resolution.x, self.resolution.y),
            slide_mpp=(self.source.x, self.source.y),
            slide_mpp_from=self._mpp_from,
            level=self.level,
            to_level0=self.to_level0,
            bounds=self.reader.info.bounds,
            slide=self.reader.info.as_dict(),
        )


def thumbnail(grid: SlideGrid, mpp: float) -> tuple[Pixels, Resolution]:
    """The scanned area at ``mpp``, or at the slide's own µm/px where that is coarser, and its exact µm/px."""
    coarse = SlideGrid(grid.reader, max(mpp, grid.source.x, grid.source.y), grid.source)
    rows, _ = coarse.block

    def band(top: int) -> Pixels:
        return coarse.read(top, 0, min(rows, coarse.height - top), coarse.width)

    # While the reader, which does one thing at a time, reads one band, those before are scaled down.
    bands = thread_map(band, range(0, coarse.height, rows), min(8, most_threads()))
    return np.concatenate([*bands]), coarse.resolution


def credible_resolution(info: SlideInfo) -> Resolution:
    """µm/px of the file, or an error that says how to give it."""
    if info.resolution is not None:
        return info.resolution
    stated, (low, high) = info.stated_mpp, PLAUSIBLE_MPP
    raise RefusedError(
        "the slide does not state its µm per pixel" if stated is None else "the slide's µm per pixel is not plausible",
        got="nothing" if stated is None else f"{stated[0]:g} × {stated[1]:g} µm/px",
        expected=f"{low:g} to {COARSEST_MPP:g} µm/px in the file's metadata, or {low:g} to {high:g} µm/px given",
        hint="look the scan resolution up and give it with --mpp, or in the mpp column of a CSV; it is never guessed",
    )


def best_level(info: SlideInfo, factor_x: float, factor_y: float) -> int:
    """The coarsest level that is still at least as fine as the grid, else the finest."""
    slack = 1 + 1e-3  # sizes of levels are rounded
    scales = [info.scale(number) for number in range(len(info.levels))]
    fine = [number for number, (x, y) in enumerate(scales) if x <= factor_x * slack and y <= factor_y * slack]
    return max(fine, key=lambda number: info.levels[number].downsample, default=0)


def _snapped(factor: float, length: int) -> float:
    """An integer factor, or the least, in place of one that differs by less than half a pixel over all of the slide.

    µm/px in tags are rounded: 6.7 may come back as 6.70001, and resampling by 1.000001 would only blur.
    """
    plain = LEAST_FACTOR if factor < (1 + LEAST_FACTOR) / 2 else max(1, round(factor))
    return float(plain) if abs(factor - plain) * length / plain < 0.5 else factor


def check_cost(info: SlideInfo, mpp: Resolution, model_mpp: float, size: int) -> None:
    """Refuse a slide that costs too much, or far more than a file of ``size`` bytes can be worth.

    A header of a few kilobytes can promise any number of pixels. Tissue is looked for in a thumbnail, which is held in
    memory and read from the coarsest level that is fine enough: of a slide without coarse levels, that is every pixel.
    Then the network's windows are read where there is tissue, at worst everywhere.
    """
    _, _, width, height = info.area
    overview = read = 0
    for goal in (model_mpp, max(THUMBNAIL_MPP, model_mpp, mpp.x, mpp.y)):
        fx, fy = goal / mpp.x, goal / mpp.y
        sx, sy = info.scale(best_level(info, fx, fy))
        overview = math.ceil(width / fx) * math.ceil(height / fy)
        read += max(math.ceil(width / sx) * math.ceil(height / sy), overview)
    pixels = f"{info.width:,} × {info.height:,} pixels"
    if overview > MOST_OVERVIEW:
        raise RefusedError(
            "the slide is larger than any glass slide",
            got=f"{pixels} of {mpp}, {info.width * mpp.x / 1000:,.0f} × {info.height * mpp.y / 1000:,.0f} mm",
            expected=f"at most {MOST_OVERVIEW * (THUMBNAIL_MPP / 1000) ** 2:,.0f} mm²",
            hint="correct its µm/px, or cut it into parts",
        )
    held = MOST_READ if info.vendor in SEVERAL_FILES else max(READ_ANYWAY, PIXELS_PER_BYTE * size)
    if read > min(MOST_READ, held):
        raise RefusedError(
            "too many pixels of the slide would have to be read, or more than its file can hold",
            got=f"{pixels} in {len(info.levels)} levels and {size:,} bytes: {read:,} to read",
            expected=f"at most {MOST_READ:,}, and {PIXELS_PER_BYTE:,} for each byte",
            hint="save what was scanned with coarser levels (as OME-TIFF from QuPath has), or cut it into parts",
        )
