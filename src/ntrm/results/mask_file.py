"""``mask.ome.tif`` read back: labels, and the names, titles and colours of its classes."""

from __future__ import annotations

import hashlib
import html
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ntrm.core.errors import NtrmError
from ntrm.core.labels import RGB, LabelSchema, Mask, Tissue, rgb_of
from ntrm.results.documents import Summary, unusable
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import MASK
from ntrm.results.pyramid import Pyramid

_TITLES = re.compile(r'Namespace="ntrm/titles"><Value>(.*?)</Value>', re.DOTALL)
_ENTRY = re.compile(r"<M K=(?:\"([^\"]*)\"|'([^']*)')>([^<]*)</M>")

_DAMAGES = (OSError, ValueError, TypeError, LookupError, MemoryError, zlib.error, struct.error)


@contextmanager
def opened_mask(folder: Path) -> Iterator[Pyramid]:
    """The mask's file of a slide's folder; whatever is damaged in it is our error."""
    try:
        with SlideFolder(folder).open(MASK) as stream:
            yield Pyramid(stream)
    except FileNotFoundError as error:
        raise unusable(folder, f" has no {MASK}", "no such file") from error
    except _DAMAGES as error:
        raise unusable(folder, f": cannot read {MASK}", error or type(error).__name__) from error


def mask_sha256(folder: Path) -> str:
    """SHA-256 of the mask's file; an ``OSError`` where there is none."""
    with SlideFolder(folder).open(MASK) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def colours_in(stored: Pyramid) -> list[RGB]:
    """Colours of the classes, by index."""
    # A byte was scaled to 16 bits.
    return [rgb_of(colour) for colour in stored.colours[1:] // 257]


def titles_in(stored: Pyramid) -> dict[str, str]:
    """What the names of the classes stand for, as far as the file says it."""
    found = _TITLES.search(stored.description)
    entries = _ENTRY.findall(found[1]) if found else []
    return {html.unescape(one or other): html.unescape(title) for one, other, title in entries}


def labels_in(stored: Pyramid, shape: tuple[int, int]) -> Mask:
    """(H, W) classes of the finest level, 255 where nothing is known; refuses another ``shape``."""
    check_shape(stored, shape)
    # 0 is nothing, and becomes 255.
    return stored.pixels() - np.uint8(1)


def check_shape(stored: Pyramid, shape: tuple[int, int]) -> None:
    """A mask of another size is not the one that the documents speak of."""
    own = stored.levels[0].shape
    if own != shape:
        raise ValueError(f"{own[1]} × {own[0]} pixels, not {shape[1]} × {shape[0]}")


def schema_of(folder: Path, summary: Summary, colours: Sequence[RGB], titles: Mapping[str, str]) -> LabelSchema:
    """The classes of a slide's results; the background is the class that has no share of the tissue."""
    background = next((name for name in summary.classes if name not in summary.tissue_fractions), None)
    try:
        tissues = [Tissue(k, name, titles.get(name) or name, colours[k]) for k, name in enumerate(summary.classes)]
        return LabelSchema(tuple(tissues), background=background)
    except (NtrmError, IndexError) as error:
        raise unusable(folder, f": {MASK} is of other classes", error) from error
