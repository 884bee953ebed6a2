"""What a dataset consists of: sizes, fractions of tissues, which tissue borders on which, how mixed the tiles are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import Counts, IndexMask, LabelSchema, boundary_counts, boundary_share, pixel_counts
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import SPLITS, Case, Dataset
from ntrm.data.image_files import read_mask
from ntrm.data.layouts import section_of
from ntrm.data.tiles import TILE_SIZE, tile_windows


def tissues_per_tile(mask: IndexMask, classes: int, size: int = TILE_SIZE) -> Counts:
    """Histogram over the covering tiles: entry n counts those with n different classes; 0 is all ignore.

    >>> tissues_per_tile(np.array([[0, 1, 2, 2]]), classes=3, size=2).tolist()
    [0, 1, 1, 0]
    """
    height, width = mask.shape
    windows = tile_windows(height, width, size)
    present = [np.count_nonzero(pixel_counts(mask[window.slices], classes)[:-1]) for window in windows]
    return np.bincount(present, minlength=classes + 1).astype(np.int64)


class MaskCounts(NamedTuple):
    """Counts of one mask or, added up, of many."""

    pixels: Counts  # Pixels per class, ignored ones as the last entry: (K + 1,)
    pairs: Counts  # Boundary pairs: (K, K)
    tiles: Counts  # Tiles by number of tissues: (K + 1,)
    sizes: tuple[tuple[int, int], ...]  # Height and width of every mask


def count_mask(path: Path, schema: LabelSchema, tile: int = TILE_SIZE) -> MaskCounts:
    """All counts of one mask's file."""
    mask, classes = read_mask(path, schema).mask, len(schema)
    tiles, sizes = tissues_per_tile(mask, classes, tile), ((mask.shape[0], mask.shape[1]),)
    return MaskCounts(pixel_counts(mask, classes), boundary_counts(mask, classes), tiles, sizes)


@dataclass(frozen=True, eq=False)
class DatasetStats:
    """Statistics of a dataset at one resolution; ``as_dict`` is what ``ntrm data stats --json`` prints."""

    schema: LabelSchema
    counts: MaskCounts
    tile: int
    cases: tuple[Case, ...]  # The cases that were counted

    @cached_property
    def _by_section(self) -> dict[str, Case]:
        """One case of every section: tiles cut from one section count once."""
        return {section_of(case.name): case for case in self.cases}

    @property
    def sections(self) -> int:
        """Number of sections."""
        return len(self._by_section)

    @property
    def pixel_share(self) -> NDArray[np.float64]:
        """Fraction of each class in the pixels that are not ignored."""
        known = self.counts.pixels[:-1]
        return np.asarray(known / max(int(known.sum()), 1))

    @property
    def boundary_share(self) -> NDArray[np.float64]:
        """Fraction of the row's boundary that goes to the column, (K, K); 0 for a class without boundary."""
        return boundary_share(self.counts.pairs)

    @property
    def tissues_per_tile(self) -> dict[str, Any]:
        """Mean, maximum and histogram of the number of tissues in a tile, over tiles with a known pixel."""
        tiles = {number: int(count) for number, count in enumerate(self.counts.tiles) if number and count}
        total = sum(tiles.values())
        return {
            "mean": sum(number * count for number, count in tiles.items()) / total if total else 0.0,
            "max": max(tiles, default=0),
            "tiles": total,
            "tile_size": self.tile,
            "histogram": {str(number): count for number, count in tiles.items()},
        }

    @property
    def headline(self) -> str:
        """The dataset in one line."""
        masks, tiles = len(self.cases), self.tissues_per_tile
        mpp = {case.resolution.mean for case in self.cases if case.resolution}
        known, ignored = int(self.counts.pixels[:-1].sum()), int(self.counts.pixels[-1])
        facts = [
            f"{self.sections:,} sections",
            f"{masks:,} masks" if masks != self.sections else "",
            " to ".join(f"{value:g}" for value in sorted({min(mpp), max(mpp)})) + " µm/px" if mpp else "",
            f"{known:,} labelled pixels",
            f"{ignored / (known + ignored):.1%} of all ignored" if ignored else "",
            f"{tiles['mean']:.1f} tissues per tile of {self.tile} pixels, {tiles['max']} at most",
        ]
        return " · ".join(filter(None, facts))

    def as_dict(self) -> dict[str, Any]:
        """Everything as a JSON document; tissues by name."""
        names, heights, widths = self.schema.names, *zip(*self.counts.sizes, strict=True)
        mpp = [case.resolution.mean for case in self.cases if case.resolution is not None]
        return {
            "classes": list(names),
            "sections": self.sections,
            "masks": len(self.cases),
            "patients": len({case.group for case in self.cases}),
            "level": self.cases[0].level or None,
            "mpp": _spread(mpp) if mpp else None,
            "sizes": {"height": _spread(heights), "width": _spread(widths)},
            "splits": _tally((case.split for case in self._by_section.values()), SPLITS),
            "cancers": _tally(case.cancer for case in self._by_section.values()),
            "pixels": _by_name(names, self.counts.pixels[:-1]),
            "ignored_pixels": int(self.counts.pixels[-1]),
            "pixel_share": _by_name(names, self.pixel_share),
            "tissues_per_tile": self.tissues_per_tile,
            "boundary_pairs": _by_name(names, self.counts.pairs),
            "boundary_share": _by_name(names, self.boundary_share),
        }


def dataset_stats(
    dataset: Dataset, *, tile: int = TILE_SIZE, jobs: int = 1, progress: Progress = SILENT
) -> DatasetStats:
    """Count every mask of ``dataset``, one per job in memory at a time; cases without a mask are left out.

    A dataset with several resolutions is refused: a section would count once per resolution.
    """
    if len(dataset.levels) > 1:
        what, hint = "several resolutions of its sections", f"choose one, for example --resolution {dataset.levels[0]}"
        raise RefusedError(f"{dataset.root} holds {what}", got=", ".join(dataset.levels), expected="one", hint=hint)
    cases = tuple(case for case in dataset if case.mask is not None)
    if not cases:
        raise DataError(f"no mask to count in {dataset.root}", got=f"{len(dataset)} cases without a mask")
    work = partial(count_mask, schema=dataset.schema, tile=tile)
    results = parallel_map(work, [case.mask for case in cases if case.mask is not None], jobs)
    masks = list(progress.track(results, len(cases), "counting masks"))
    pixels, pairs, tiles = (np.sum(counts, axis=0) for counts in list(zip(*masks, strict=True))[:3])
    counts = MaskCounts(pixels, pairs, tiles, tuple(size for mask in masks for size in mask.sizes))
    return DatasetStats(dataset.schema, counts, tile, cases)


def _by_name(names: Sequence[str], values: NDArray[Any]) -> dict[str, Any]:
    if values.ndim > 1:
        return {name: _by_name(names, row) for name, row in zip(names, values, strict=True)}
    return dict(zip(names, values.tolist(), strict=True))


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def _tally(values: Iterable[str | None], order: Sequence[str] = ()) -> dict[str, int]:
    counts = Counter(value for value in values if value)
    return {value: counts[value] for value in order or sorted(counts) if counts[value]}
