"""Tissue classes, their names and colours: the single source. A bare index means nothing without its schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.csv_text import Open, read_columns, write_rows
from ntrm.core.errors import DataError, RefusedError, UsageError, choices_error, plain_number

IGNORE = 255  # Mask value of pixels about which nothing is known; never a class

PALETTE_DISTANCE = 16.0
"""RGB distance within which a stray colour is its nearest class; the skin palette's closest colours are 36 apart."""

UNNAMED = "unnamed"
"""Name of the class of tissue that nobody has named yet, where a person names tissues from nothing, without a model."""

WHITE = (255, 255, 255)

RGB = tuple[int, int, int]
Mask = NDArray[np.uint8]
Counts = NDArray[np.int64]
IndexMask = NDArray[np.integer[Any]]


def rgb_of(channels: Iterable[Any]) -> RGB:
    """Three channels as plain numbers."""
    red, green, blue = map(int, channels)
    return red, green, blue


@dataclass(frozen=True)
class Tissue:
    """One class: its index in masks and logits, its short name, what it stands for, its colour."""

    index: int
    name: str
    title: str
    rgb: RGB

    def __post_init__(self) -> None:
        # Arrays have other numbers than JSON.
        object.__setattr__(self, "rgb", tuple(plain_number(value) for value in self.rgb))

    @property
    def explanation(self) -> str:
        """The title, where it says more than the name."""
        return "" if self.title == self.name else self.title


@dataclass(frozen=True)
class DecodedMask:
    """Indices read from an RGB mask, and the *strays*: pixels whose colour is not in the palette."""

    mask: Mask
    strays: int  # All of them, whether they could be mapped or not
    ignored: int  # Strays that became IGNORE: white, near-white or too far from every class
    worst: tuple[tuple[RGB, int], ...] = ()  # The most frequent stray colours with their counts

    @property
    def stray_share(self) -> float:
        """Strays over all pixels."""
        return self.strays / max(self.mask.size, 1)


@dataclass(frozen=True)
class LabelSchema:
    """An ordered set of classes by name, as a dictionary has keys; ``tissues`` has them by index.

    >>> SKIN.index("BCC"), SKIN["BCC"].title, SKIN.tissues[9].name, "BCC" in SKIN
    (9, 'basal cell carcinoma', 'BCC', True)
    """

    tissues: tuple[Tissue, ...]
    background: str | None = None  # Name of the class that is not tissue, if there is one
    name: str = field(default="custom", compare=False)
    unnamed: str | None = None  # Name of the class of tissue that nobody has named yet, if there is one

    def __post_init__(self) -> None:
        _check_tissues(self.tissues)
        for role, name in (("background", self.background), ("unnamed", self.unnamed)):
            if name is not None and name not in self.names:
                raise choices_error(f"the {role} class is not among the classes", name, self.names)

    def __len__(self) -> int:
        return len(self.tissues)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Tissue:
        return self.tissues[self.index(name)]

    def index(self, name: str) -> int:
        """Index of the class called ``name``."""
        if name not in self.names:
            raise choices_error("unknown class", str(name), self.names)
        return self.names.index(name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Short names in index order."""
        return tuple(tissue.name for tissue in self.tissues)

    @property
    def background_index(self) -> int | None:
        """Index of the background class, or None."""
        return None if self.background is None else self.index(self.background)

    @property
    def unnamed_index(self) -> int | None:
        """Index of the class of unnamed tissue, or None."""
        return None if self.unnamed is None else self.index(self.unnamed)

    @property
    def nameable(self) -> tuple[str, ...]:
        """Names that a person can give to tissue, or to glass."""
        return tuple(name for name in self.names if name != self.unnamed)

    def without_unnamed(self) -> LabelSchema:
        """The classes that tissue can be called, numbered anew."""
        tissues = (replace(self[name], index=index) for index, name in enumerate(self.nameable))
        return self if self.unnamed is None else LabelSchema(tuple(tissues), self.background, self.name)

    def check_nameable(self, name: str) -> None:
        """Refuse what no tissue can be called by a person."""
        if name not in self.nameable:
            raise choices_error("unknown class", name, self.nameable)

    @cached_property
    def palette(self) -> NDArray[np.uint8]:
        """Colours as a (K, 3) array."""
        return np.array([tissue.rgb for tissue in self.tissues], dtype=np.uint8)

    @cached_property
    def fingerprint(self) -> str:
        """Short hash of names in order: equal fingerprints mean that indices may be compared."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:12]

    def colourise(self, mask: NDArray[np.integer], ignore_rgb: RGB = (128, 128, 128)) -> NDArray[np.uint8]:
        """RGB picture of an index mask.

        >>> SKIN.colourise(np.array([[0, 8]])).tolist()
        [[[73, 0, 106], [0, 0, 0]]]
        """
        pixel_counts(mask, len(self))  # refuses what is no class
        return np.asarray(self.colour_table(ignore_rgb)[mask], dtype=np.uint8)

    def colour_table(self, ignore_rgb: RGB = (128, 128, 128)) -> NDArray[np.uint8]:
        """(256, 3) the colour of every byte that may be in a mask."""
        table = np.full((256, 3), ignore_rgb, dtype=np.uint8)
        table[: len(self)] = self.palette
        return table

    def decode(self, rgb: NDArray[np.uint8]) -> DecodedMask:
        """Indices of an RGB mask.

        A palette colour is its class. Any other colour is a stray: it becomes the nearest class within
        ``PALETTE_DISTANCE``, or ``IGNORE`` where white is nearer still or every class is too far.

        >>> SKIN.decode(np.array([[[73, 0, 106], [74, 1, 106], [255, 255, 255]]], dtype=np.uint8)).mask.tolist()
        [[0, 0, 255]]
        """
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
            raise DataError("an RGB mask must be 8-bit with three channels", got=f"{rgb.dtype} {rgb.shape}")
        codes = (rgb[..., 0].astype(np.uint32) << 16 | rgb[..., 1].astype(np.uint32) << 8 | rgb[..., 2]).ravel()
        # Masks have long runs of one colour: sorting the runs is several times faster than sorting the pixels.
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))[: codes.size]
        lengths = np.diff(starts, append=codes.size)
        colours, run_of = np.unique(codes[starts], return_inverse=True)
        counts = np.bincount(run_of, weights=lengths, minlength=len(colours)).astype(np.int64)
        rgbs = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)
        index_of, exact = self._classify(rgbs)
        stray = np.flatnonzero(~exact)
        order = stray[np.argsort(counts[stray], kind="stable")[::-1]][:5]
        return DecodedMask(
            mask=np.repeat(index_of[run_of], lengths).reshape(rgb.shape[:2]),
            strays=int(counts[stray].sum()),
            ignored=int(counts[stray][index_of[stray] == IGNORE].sum()),
            worst=tuple((rgb_of(rgbs[i]), int(counts[i])) for i in order),
        )

    def _classify(self, colours: NDArray[np.integer]) -> tuple[Mask, NDArray[np.bool_]]:
        """(n,) class of each of the colours (n, 3), and whether it is exactly the palette's."""
        palette = self.palette.astype(np.float64)
        own = np.linalg.norm(palette[:, None] - palette, axis=2)[np.triu_indices(len(self), 1)]
        near = min(PALETTE_DISTANCE, own.min(initial=np.inf) / 2)  # beyond half a gap it could be either of two
        gaps = np.linalg.norm(colours[:, None] - palette, axis=2)  # (colours, K)
        gap = gaps.min(axis=1)
        to_white = np.linalg.norm(colours - np.array(WHITE, dtype=np.float64), axis=1)
        known = (gap == 0) | ((gap <= near) & (gap < to_white))
        return np.where(known, gaps.argmin(axis=1), IGNORE).astype(np.uint8), gap == 0

    def remap_table(self, source: LabelSchema, names: dict[str, str] | None = None) -> NDArray[np.uint8]:
        """Lookup table (256 entries) from ``source``'s indices to ours, matched by name.

        ``names`` renames source classes first; a source class mapped to the empty string becomes ``IGNORE``.

        >>> other = LabelSchema((Tissue(0, "BCC", "", (1, 1, 1)), Tissue(1, "EPI", "", (2, 2, 2))))
        >>> SKIN.remap_table(other)[:2].tolist()
        [9, 0]
        """
        rename = names or {}
        if unknown := sorted(set(rename) - set(source.names)):
            raise choices_error("the renaming names unknown classes", ", ".join(unknown), source.names)
        targets = [rename.get(name, name) for name in source.names]
        if lost := [target for target in targets if target and target not in self.names]:
            what, hint = "classes without a counterpart", "map each to a known class, or to the empty string for ignore"
            raise RefusedError(what, got=", ".join(lost), expected=", ".join(self.names), hint=hint)
        table = np.full(256, IGNORE, dtype=np.uint8)
        table[: len(targets)] = [self.index(target) if target else IGNORE for target in targets]
        return table

    def write_csv(self, path: Path) -> None:
        """Write ``classes.csv`` (index, name, r, g, b, title)."""
        with path.open("w", newline="", encoding="utf-8") as stream:
            write_rows(stream, [["index", "name", "r", "g", "b", "title"]])
            write_rows(stream, ([t.index, t.name, *t.rgb, t.title] for t in self.tissues))


def pixel_counts(mask: IndexMask, classes: int) -> Counts:
    """Pixels per class, and as the last entry those that are ignored; refuses a mask with values that no class has.

    >>> pixel_counts(np.array([[0, 1, 1, 255]]), classes=3).tolist()
    [1, 2, 0, 1]
    """
    mask = np.asarray(mask)
    strange: list[Any] = [] if np.issubdtype(mask.dtype, np.integer) else [mask.dtype]
    if not strange:
        strange = [value for value in (mask.min(initial=0), mask.max(initial=0)) if not 0 <= value <= IGNORE]
    counts = np.bincount(mask.ravel() if not strange else [], minlength=IGNORE + 1).astype(np.int64)
    if strange := strange or [value for value in np.flatnonzero(counts) if classes <= value != IGNORE]:
        raise DataError(
            "the mask holds indices that are no class",
            got=", ".join(map(str, strange[:5])),
            expected=f"0 to {classes - 1}, or {IGNORE} for ignore",
            hint="use the schema that the mask was written with",
        )
    return np.append(counts[:classes], counts[IGNORE])


def boundary_counts(mask: IndexMask, classes: int, x: float = 1, y: float = 1) -> NDArray[Any]:
    """How often each pair of classes meets: all 4-neighbour pixel pairs with different labels, ignore left out.

    Returns a symmetric (K, K) array with an empty diagonal; a pair of pixels counts once in ``[a, b]`` and
    once in ``[b, a]``, so that a row holds everything its class borders on. With the sides of a pixel along ``x`` and
    ``y``, it is the length of the boundary.

    >>> boundary_counts(np.array([[0, 0, 1], [0, 2, 255]]), classes=3).tolist()
    [[0, 1, 2], [1, 0, 0], [2, 0, 0]]
    >>> boundary_counts(np.array([[0, 0, 1], [0, 1, 255]]), 2, x=2.0, y=5.0).tolist()
    [[0.0, 12.0], [12.0, 0.0]]
    """
    counts: Any = 0
    for here, there, side in ((mask[:, :-1], mask[:, 1:], y), (mask[:-1], mask[1:], x)):
        border = (here != there) & (here < classes) & (there < classes)
        code = here[border].astype(np.int64) * classes + there[border]
        counts = counts + np.bincount(code, minlength=classes * classes).reshape(classes, classes) * side
    return np.asarray(counts + counts.T)


def boundary_share(pairs: Counts) -> NDArray[np.float64]:
    """Row-normalised boundary counts; the row of a class without any boundary is all 0.

    >>> boundary_share(np.array([[0, 1, 3], [1, 0, 0], [3, 0, 0]])).tolist()
    [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    return np.asarray(pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1))


def _check_tissues(tissues: Sequence[Tissue]) -> None:
    if not 1 <= len(tissues) <= IGNORE:
        raise UsageError("wrong number of classes", got=len(tissues), expected=f"1 to {IGNORE}")
    got, expected = [t.index for t in tissues], list(range(len(tissues)))
    if got != expected:
        hint = "number the rows of classes.csv 0, 1, 2, … without gaps"
        raise DataError("class indices must count up from 0", got=got, expected=expected, hint=hint)
    for what, values in (("name", [t.name for t in tissues]), ("colour", [str(t.rgb) for t in tissues])):
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise DataError(f"two classes share a {what}", got=", ".join(twice), hint=f"give each its own {what}")
    for tissue in tissues:
        if not re.fullmatch(r"[^,]{1,64}", tissue.name) or tissue.name != tissue.name.strip():
            raise DataError("unusable class name", got=repr(tissue.name), expected="1 to 64 characters, no comma")
        # They go into tables, pages and images, which other programs show.
        if strange := [text for text in (tissue.name, tissue.title) if not text.isprintable()]:
            printable = "printable characters: no control characters, no change of writing direction"
            raise DataError("unusable class name or title", got=repr(strange[0]), expected=printable)
        if len(tissue.rgb) != 3 or not all(isinstance(c, int) and 0 <= c <= 255 for c in tissue.rgb):
            whole = "three whole numbers from 0 to 255"
            raise DataError(f"impossible colour of {tissue.name}", got=tissue.rgb, expected=whole)


def read_schema(path: Path, open_file: Open | None = None) -> LabelSchema:
    """Schema from a ``classes.csv`` with columns index, name, r, g, b and optionally title."""
    _, rows = read_columns(path, ("index", "name", "r", "g", "b"), open_file=open_file)
    try:
        tissues = tuple(
            Tissue(int(row["index"]), row["name"], row.get("title") or row["name"], rgb_of(row[c] for c in "rgb"))
            for row in rows
        )
    except ValueError as error:
        expected, hint = "whole numbers in index, r, g and b", "compare with the table in docs/data.md"
        raise DataError(f"cannot understand {path}", got=error, expected=expected, hint=hint) from error
    return LabelSchema(tissues, _background([tissue.name for tissue in tissues]), name=path.parent.name or "custom")


def as_schema(classes: LabelSchema | Sequence[str]) -> LabelSchema:
    """A schema as it is, or one of class names in index order, with a colour for each.

    A class called background, bg or bkg is the background.

    >>> as_schema(["stroma", "tumour", "background"]).background_index
    2
    """
    if isinstance(classes, LabelSchema):
        return classes
    given: object = classes
    names = list(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise UsageError(
            "the classes are no label schema",
            got=repr(given)[:200],
            expected='names in index order, such as ["stroma", "tumour"], or an ntrm.LabelSchema',
        )
    tissues = (Tissue(k, name, name, (k * 37 % 256, k * 91 % 256, k % 256)) for k, name in enumerate(names))
    return LabelSchema(tuple(tissues), _background(names))


def _background(names: Iterable[str]) -> str | None:
    return next((name for name in names if name.lower() in {"bkg", "background", "bg"}), None)


SKIN = LabelSchema(
    tissues=tuple(
        Tissue(index, name, title, rgb)
        for index, (name, title, rgb) in enumerate(
            [
                ("EPI", "epidermis", (73, 0, 106)),
                ("GLD", "glands", (108, 0, 115)),
                ("INF", "inflammation", (145, 1, 122)),
                ("RET", "reticular dermis", (181, 9, 130)),
                ("FOL", "hair follicle", (216, 47, 148)),
                ("PAP", "papillary dermis", (236, 85, 157)),
                ("HYP", "hypodermis", (254, 246, 242)),
                ("KER", "keratin", (248, 123, 168)),
                ("BKG", "background", (0, 0, 0)),
                ("BCC", "basal cell carcinoma", (127, 255, 255)),
                ("SCC", "squamous cell carcinoma", (127, 255, 142)),
                ("IEC", "intra-epidermal carcinoma", (255, 127, 127)),
            ]
        )
    ),
    background="BKG",
    name="skin",
)
"""The 12 tissues of the Queensland non-melanoma skin cancer dataset, in its order."""

CANCERS = ("BCC", "SCC", "IEC")  # The cancer types among the skin tissues

SAFE_COLOURS: tuple[RGB, ...] = (
    *((0, 34, 119), (136, 0, 221), (102, 0, 0), (34, 119, 136), (170, 119, 255), (85, 187, 187)),
    *((238, 255, 136), (204, 119, 34), (0, 0, 0), (0, 255, 255), (221, 187, 0), (170, 51, 17)),
)
"""Colours that colour-blind readers can distinguish, by the index of the class; the ninth is the skin's background.

From a search over sRGB for the largest smallest distance in OKLab, as seen with normal, red-, green- and blue-blind
eyes (Machado et al. 2009, full strength): 0.15 for any two, against 0.016 in the skin dataset's own palette.
"""


def safe_palette(schema: LabelSchema) -> tuple[RGB, ...] | None:
    """A colour for each class, or None where there are more classes than distinguishable colours."""
    return SAFE_COLOURS[: len(schema)] if len(schema) <= len(SAFE_COLOURS) else None


@dataclass(frozen=True)
class CancerFinding:
    """What a section or a piece says about one cancer; ``present`` and ``confidence`` are None where not assessed."""

    name: str
    present: bool | None
    area_mm2: float  # Of the regions that count
    regions: int  # Regions that count: no specks
    confidence: float | None  # Of presence, 0 to 1; an absent cancer is absent with one minus this
    reason: str  # The finding in plain words, or why it was not assessed
