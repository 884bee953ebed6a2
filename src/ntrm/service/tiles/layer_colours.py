"""Colours of layers, and tiles as PNG files with a palette."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import RGB
from ntrm.service.core.model_info import ModelFacts
from ntrm.service.core.problems import ProblemError, busy

Table = NDArray[np.uint8]
CLASSES = ("tissue", "coarse", "corrected")
PALETTES = {**dict.fromkeys((*CLASSES, "improvement"), ("dataset", "safe")), "confidence": ("viridis", "grey")}
"""Palettes of a layer; the first is the default."""
_VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
HIGHLIGHT: RGB = (255, 214, 10)
CORRECTED, BROKEN = (26, 152, 80), (215, 48, 39)
SAFE_CORRECTED, SAFE_BROKEN = (0, 90, 181), (220, 100, 0)  # Blue and orange: some readers cannot tell green from red


@dataclass(frozen=True)
class LayerLook:
    """A layer and its colours."""

    layer: str
    colours: tuple[RGB, ...]
    background: int | None
    grey: bool
    hide: frozenset[int]
    only: frozenset[int] | None
    pair: tuple[int, int] | None  # Classes whose border is shown

    @classmethod
    def of(
        cls,
        model: ModelFacts | None,
        layer: str,
        palette: str | None,
        hide: str | None,
        only: str | None,
        pair: tuple[str | None, str | None],
    ) -> LayerLook:
        """From the parameters of a request; refuses what does not go together."""
        if model is None:
            raise busy("the model's classes are not known yet")
        if palette is not None and palette not in PALETTES.get(layer, ()):
            raise ProblemError(400, "usage", f"the layer {layer} has no such palette", got=palette)
        colours: tuple[RGB, ...]
        if layer == "improvement":
            colours = (SAFE_CORRECTED, SAFE_BROKEN) if palette == "safe" else (CORRECTED, BROKEN)
        else:
            colours = tuple(model.safe_colours if palette == "safe" else model.colours)
        shown, border = None if only is None else _numbers(only), _pair(model, pair) if layer == "interface" else None
        background, hidden = model.schema.background_index, _numbers(hide or "")
        return cls(layer, colours, background, palette == "grey", hidden, shown, border)

    def tables(self) -> tuple[Table, Table]:
        """Palette (N, 3) and opacities (N,); pixel value 0 is transparent in every layer."""
        if self.layer == "confidence":
            colours = _confidence_colours(grey=self.grey)
        else:
            shown = [HIGHLIGHT] if self.layer == "interface" else self.colours
            colours = np.array([(255, 255, 255), *shown], dtype=np.uint8)  # of pixels that are class index + 1
        alpha = np.full(len(colours), 255, dtype=np.uint8)
        alpha[0] = 0
        if self.layer in CLASSES:
            every = range(len(self.colours))
            visible = {*every} - self.hide - {self.background} if self.only is None else self.only
            alpha[1:] = [255 if index in visible else 0 for index in every]
        return colours, alpha


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, filter(None, text.split(","))))


def _pair(model: ModelFacts, pair: tuple[str | None, str | None]) -> tuple[int, int]:
    """In a fixed order: the border of a pair is the same either way round."""
    names, (a, b) = model.schema.names, pair
    if a not in names or b not in names:
        expected = f"a and b of {', '.join(names)}"
        got = a if a not in names else b
        raise ProblemError(400, "usage", "an interface is that of two classes", got=got, expected=expected)
    first, second = sorted((names.index(a), names.index(b)))
    return first, second


def _confidence_colours(*, grey: bool) -> Table:
    """(256, 3): grey, or from dark violet (uncertain) to yellow (certain)."""
    ramp = np.arange(256)
    if grey:
        return np.repeat(ramp[:, None], 3, axis=1).astype(np.uint8)
    stops = np.linspace(0, 255, len(_VIRIDIS))
    channels = [np.interp(ramp, stops, channel) for channel in zip(*_VIRIDIS, strict=True)]
    return np.stack(channels, axis=1).astype(np.uint8)


def indexed_png(pixels: Table, colours: Table, alpha: Table) -> bytes:
    """A PNG file: pixels with a palette (N, 3) and its opacities (N,)."""
    from PIL import Image

    picture, stream = Image.fromarray(pixels), BytesIO()
    picture.putpalette(colours.tobytes())
    picture.save(stream, format="PNG", compress_level=1, transparency=alpha.tobytes())
    return stream.getvalue()
