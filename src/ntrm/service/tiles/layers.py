"""Layers of a slide's results as tiles, sampled from the masks' pyramids on disk, and their colours.

A pixel is that of the mask nearest to its centre, from the finest level that is not finer than the tile.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy.ndimage import maximum_filter

from ntrm.core.errors import BROKEN, DataError
from ntrm.core.labels import RGB, LabelSchema, safe_palette
from ntrm.correct.state import State
from ntrm.results.folder import SlideFolder
from ntrm.results.mask_file import Pyramid
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, MASK, TRUTH_MASK
from ntrm.service.core.problems import ProblemError, missing
from ntrm.service.tiles.slide_tiles import DeepZoom, TileBox

Bytes = NDArray[np.uint8]
Numbers = Annotated[str | None, Field(pattern=r"^[0-9]{1,3}(,[0-9]{1,3})*$", description="indices of classes")]
ClassName = Annotated[str | None, Field(max_length=64, description="name of a class")]
FILES = {"tissue": MASK, "coarse": COARSE_MASK, "confidence": CONFIDENCE_MAP, "truth": TRUTH_MASK}
BORDER = 2
"""Pixels drawn on either side of a border: at least 2 in all are left where a viewer shrinks the tile to half."""

CLASSES = ("tissue", "coarse", "corrected")
_VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
HIGHLIGHT: RGB = (255, 214, 10)
IMPROVEMENT, SAFE_IMPROVEMENT = [(26, 152, 80), (215, 48, 39)], [(0, 90, 181), (220, 100, 0)]
"""Corrected and broken; safe are blue and orange: some readers cannot tell green from red."""


class LayerFile:
    """A tiled 8-bit pyramid of our own making; each level is half the one before. Closed when nobody holds it."""

    def __init__(self, folder: SlideFolder, name: str) -> None:
        stream = folder.open(name)
        weakref.finalize(self, stream.close)
        with _sound():
            self._file = Pyramid(stream)
        self.depth = len(self._file.levels)

    def read(self, level: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Bytes:
        """The pixels at each of the rows and columns, both ascending; 0 beyond the border."""
        of, out = self._file.levels[level], np.zeros((len(rows), len(columns)), dtype=np.uint8)
        tall, wide = of.tile
        for tile_row, r in _by_tile(rows, tall, of.shape[0]):
            for tile_column, c in _by_tile(columns, wide, of.shape[1]):
                with _sound():
                    tile = self._file.tile(level, tile_row * of.across + tile_column)
                out[np.ix_(r, c)] = tile[np.ix_(rows[r] - tile_row * tall, columns[c] - tile_column * wide)]
        return out


@contextmanager
def _sound() -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise DataError("cannot read a mask", got=error, hint="segment the slide again") from error


def _by_tile(indices: NDArray[np.int64], size: int, length: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each tile of ``size`` pixels: its number, and where in ``indices`` its pixels are asked for."""
    tiles = np.where((indices >= 0) & (indices < length), indices // size, -1)
    for tile in np.unique(tiles[tiles >= 0]):
        yield int(tile), np.flatnonzero(tiles == tile)


def layers_with(files: Collection[str]) -> list[str]:
    """Layers that can be shown of a slide with these of ``FILES``.

    >>> layers_with({"tissue", "coarse", "truth"})
    ['tissue', 'coarse', 'improvement', 'interface']
    """
    needs = {name: {name} for name in ("tissue", "coarse", "confidence")}
    needs |= {"improvement": {"tissue", "coarse", "truth"}, "interface": {"tissue"}}
    return [name for name, needed in needs.items() if needed <= {*files}]


class MaskLayers:
    """The layers of one finished slide, whose scanned area is left, top, width and height in the file's level 0.

    A pixel of the masks is ``sx`` × ``sy`` of the full resolution.
    """

    def __init__(self, folder: Path, area: tuple[int, int, int, int], scale: tuple[float, float]) -> None:
        self.area, self.zoom, (self.sx, self.sy), there = area, DeepZoom(*area[2:]), scale, SlideFolder(folder)
        self._files = {name: LayerFile(there, file) for name, file in FILES.items() if there.has(file)}
        self.names = layers_with(self._files.keys())  # Layers that can be shown

    def pixels(
        self, layer: str, level: int, box: TileBox, pair: Sequence[int] = (), corrections: State | None = None
    ) -> Bytes:
        """(height, width) indices into the layer's palette; tissue and borders on request as people made them."""
        if layer == "corrected":
            return self._tissue(level, box, corrections)
        if layer not in self.names:
            raise missing(f"the slide has no layer {layer}")
        if layer == "interface":
            labels = self._tissue(level, box, corrections, margin=BORDER)
            near = [maximum_filter(labels == index + 1, 2 * BORDER + 1) for index in pair]
            return np.asarray((near[0] & near[1])[BORDER:-BORDER, BORDER:-BORDER], dtype=np.uint8)
        if layer == "improvement":
            final, coarse, truth = (self._sampled(name, level, box) for name in ("tissue", "coarse", "truth"))
            corrected = (truth > 0) & (final == truth) & (coarse != truth)
            broken = (truth > 0) & (final != truth) & (coarse == truth)
            return np.asarray(corrected + 2 * broken, dtype=np.uint8)
        return self._sampled(layer, level, box)

    def _tissue(self, level: int, box: TileBox, corrections: State | None, margin: int = 0) -> Bytes:
        """With what people made of it, and so many pixels around the box."""
        labels, scale = self._sampled("tissue", level, box, margin), self.zoom.scale(level)
        if corrections is None:
            return labels
        rows = _nearest(box.top - margin, box.height + 2 * margin, scale, self.sy)
        columns = _nearest(box.left - margin, box.width + 2 * margin, scale, self.sx)
        return _corrected(corrections, rows, columns, labels)

    def at(self, layer: str, row: int, column: int, corrections: State | None = None) -> int | None:
        """The layer's value at a mask pixel, on request as people made it."""
        if (file := self._files.get(layer)) is None:
            return None
        rows, columns = np.array([row]), np.array([column])
        value = file.read(0, rows, columns)
        return int((value if corrections is None else _corrected(corrections, rows, columns, value))[0, 0])

    def _sampled(self, layer: str, level: int, box: TileBox, margin: int = 0) -> Bytes:
        file, scale = self._files[layer], self.zoom.scale(level)
        wanted = scale * (1 + 1e-9) / min(self.sx, self.sy)
        depth = min(file.depth - 1, max(0, int(np.floor(np.log2(wanted))))) if wanted >= 1 else 0
        rows = _nearest(box.top - margin, box.height + 2 * margin, scale, self.sy * 2**depth)
        columns = _nearest(box.left - margin, box.width + 2 * margin, scale, self.sx * 2**depth)
        return file.read(depth, rows, columns)


def _corrected(corrections: State, rows: NDArray[np.int64], columns: NDArray[np.int64], labels: Bytes) -> Bytes:
    # 0 is nothing, and becomes 255.
    return np.asarray(corrections.at(rows, columns, labels - np.uint8(1)) + np.uint8(1))


def _nearest(first: int, count: int, scale: int, size: float) -> NDArray[np.int64]:
    """Indices of the mask's pixels (of ``size``) under the centres of a tile's pixels (of ``scale``)."""
    centres = (np.arange(first, first + count) + 0.5) * scale
    return np.asarray(np.floor(centres / size), dtype=np.int64)


class Look(BaseModel):
    """How a layer is shown, and as of when, by the parameters of an address."""

    palette: Literal["dataset", "safe"] | None = None
    hide: Numbers = None
    only: Numbers = None
    a: ClassName = None
    b: ClassName = None
    v: int | None = Field(None, ge=0, le=2**31, description="of the corrections; the newest where none is said")
    r: str | None = Field(
        None, max_length=64, description="as the source or the corrections name it: tiles still of it are cached"
    )

    def of(self, layer: str, schema: LabelSchema) -> tuple[list[int], Bytes, Bytes]:
        """Classes whose border is shown, palette (N, 3), opacities (N,); pixel value 0 is always transparent."""
        if self.palette is not None and layer not in (*CLASSES, "improvement"):
            raise ProblemError(400, "usage", f"the layer {layer} has one palette", got=self.palette)
        names = [name or "" for name in (self.a, self.b) if layer == "interface"]
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            what, expected = "an interface is that of two classes", f"a and b of {', '.join(schema.names)}"
            raise ProblemError(400, "usage", what, got=unknown[0] or None, expected=expected)
        is_safe, every = self.palette == "safe", range(len(schema))
        if layer == "confidence":
            # From dark violet (uncertain) to yellow (certain).
            stops, ramp = np.linspace(0, 255, len(_VIRIDIS)), np.arange(256)
            channels = [np.interp(ramp, stops, channel) for channel in zip(*_VIRIDIS, strict=True)]
            colours = np.stack(channels, axis=1).astype(np.uint8)
        else:
            shown = {"interface": [HIGHLIGHT], "improvement": SAFE_IMPROVEMENT if is_safe else IMPROVEMENT}.get(
                layer, colours_of(schema, safe=is_safe)
            )
            colours = np.array([(255, 255, 255), *shown], dtype=np.uint8)  # of pixels that are class index + 1
        alpha = np.full(len(colours), 255, dtype=np.uint8)
        alpha[0] = 0
        if layer in CLASSES:
            hidden = {schema.background_index, schema.unnamed_index, *_numbers(self.hide)}
            visible = {*every} - hidden if self.only is None else _numbers(self.only)
            alpha[1:] = [255 if index in visible else 0 for index in every]
        return [schema.index(name) for name in names], colours, alpha


def _numbers(text: str | None) -> set[int]:
    return {int(number) for number in (text or "").split(",") if number}


def colours_of(schema: LabelSchema, *, safe: bool) -> list[RGB]:
    """The dataset's own, or those that colour-blind readers can tell apart: greys where there are too many classes."""
    palette = safe_palette(schema) if safe else [tissue.rgb for tissue in schema.tissues]
    step = 255 / max(len(schema) - 1, 1)
    return [(round(step * k),) * 3 for k in range(len(schema))] if palette is None else list(palette)


def indexed_png(pixels: Bytes, colours: Bytes, alpha: Bytes) -> bytes:
    """A PNG file: pixels with a palette (N, 3) and its opacities (N,)."""
    from PIL import Image

    picture, stream = Image.fromarray(pixels), BytesIO()
    picture.putpalette(colours.tobytes())
    picture.save(stream, format="PNG", compress_level=1, transparency=alpha.tobytes())
    return stream.getvalue()
