"""How a layer is to look, and PNG files whose colours change without compressing the pixels again."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import RGB
from ntrm.service.core.model_info import ModelFacts
from ntrm.service.core.palette import (
    BROKEN,
    CORRECTED,
    HIGHLIGHT,
    SAFE_BROKEN,
    SAFE_CORRECTED,
    Table,
    certainty_table,
    class_alpha,
    class_table,
)
from ntrm.service.core.problems import ProblemError, busy

CLASSES = ("tissue", "coarse")
PALETTES = {
    **dict.fromkeys((*CLASSES, "improvement"), ("dataset", "safe")),
    "confidence": ("viridis", "grey"),
}
"""Those that a layer may be asked for in; the first one is what it has otherwise."""


@dataclass(frozen=True)
class LayerLook:
    """A layer and its colours."""

    layer: str
    colours: tuple[RGB, ...]
    background: int | None
    grey: bool = False
    hide: frozenset[int] = frozenset()
    only: frozenset[int] | None = None
    pair: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        model: ModelFacts | None,
        layer: str,
        palette: str | None,
        hide: str | None,
        only: str | None,
        a: str | None,
        b: str | None,
    ) -> LayerLook:
        """From what a request says; refuses what does not go together."""
        if model is None:
            raise busy("the model's classes are not known yet")
        if palette is not None and palette not in PALETTES.get(layer, ()):
            raise ProblemError(400, "usage", f"the layer {layer} has no such palette", got=palette)
        safe = palette == "safe"
        if layer == "improvement":
            colours = [SAFE_CORRECTED, SAFE_BROKEN] if safe else [CORRECTED, BROKEN]
        else:
            colours = model.safe_colours if safe else model.colours
        return cls(
            layer=layer,
            colours=tuple(colours),
            background=model.schema.background_index,
            grey=palette == "grey",
            hide=_numbers(hide) or frozenset(),
            only=_numbers(only),
            pair=_pair(model, a, b) if layer == "interface" else None,
        )


def colours_of(look: LayerLook) -> tuple[Table, Table]:
    """Palette (N, 3) and opacities (N,)."""
    if look.layer in CLASSES:
        count = len(look.colours)
        return class_table(look.colours), class_alpha(count, look.background, look.hide, look.only)
    if look.layer == "confidence":
        alpha = np.full(256, 255, dtype=np.uint8)
        alpha[0] = 0
        return certainty_table("grey" if look.grey else "viridis"), alpha
    if look.layer == "improvement":
        return class_table(look.colours), np.array([0, 255, 255], dtype=np.uint8)
    return class_table([HIGHLIGHT]), np.array([0, 255], dtype=np.uint8)


def _numbers(text: str | None) -> frozenset[int] | None:
    return None if text is None else frozenset(int(each) for each in text.split(","))


def _pair(model: ModelFacts, a: str | None, b: str | None) -> tuple[int, int]:
    """In a fixed order: the border of a pair is the same either way round."""
    names = model.schema.names
    for name in (a, b):
        if name not in names:
            raise ProblemError(
                400, "usage", "an interface is that of two classes", got=name, expected=f"a and b of {', '.join(names)}"
            )
    first, second = sorted(names.index(name) for name in (a, b) if name is not None)
    return first, second


# PNG files of indexed pixels whose colours change without compressing the pixels again.


SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVEL = 6
"""Of compression: labels shrink to almost nothing at any."""


def packed(pixels: NDArray[np.uint8]) -> bytes:
    """(H, W) as the content of an IDAT chunk."""
    height, width = pixels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # the first byte of a row: no filter
    rows[:, 1:] = pixels
    return zlib.compress(rows.tobytes(), _LEVEL)


def indexed_png(width: int, height: int, content: bytes, colours: NDArray[np.uint8], alpha: NDArray[np.uint8]) -> bytes:
    """A whole file: packed pixels with a palette (N, 3) and its opacities (N,)."""
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", colours.tobytes()), (b"tRNS", alpha.tobytes()))
    return b"".join((SIGNATURE, *(_chunk(*each) for each in chunks), _chunk(b"IDAT", content), _chunk(b"IEND", b"")))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
