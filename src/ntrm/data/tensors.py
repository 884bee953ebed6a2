"""Tiles as tensors: random access from the cache, without decoding anything, in any number of worker processes."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as torch_data

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.core.wording import short_repr
from ntrm.data.cache import CachedSection, SectionCache
from ntrm.data.dataset import Case, Dataset
from ntrm.data.tiles import GLASS, TILE_SIZE, Window, cut, foreground_windows, tile_windows


class Tile(NamedTuple):
    """One tile. Torch's default collation stacks tiles into a ``Tile`` of batches."""

    image: Tensor  # uint8, (3, S, S); glass where the section ends. Bytes travel: batches are normalised on the device.
    mask: Tensor  # uint8, (S, S); 255 is ignore, also where the section ends
    source: int | Tensor  # Where the tile comes from: the index in ``TileDataset.sources``.

    def __repr__(self) -> str:
        return short_repr(self)


class TileSource(NamedTuple):
    """Where a tile comes from."""

    case: Case
    section: CachedSection
    window: Window


class TileDataset(torch_data.Dataset[Tile]):
    """All tiles of the cases of a dataset, in a stable order.

    With ``schema`` the masks speak that schema, whatever order the dataset has its classes in: they are matched by
    name, and ``names`` renames the dataset's classes first (to the empty string for ignore).

    Making it decodes what the cache does not hold yet. It carries paths and numbers only: a worker process, forked or
    spawned, opens its own memory maps when it first touches a section.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        size: int = TILE_SIZE,
        overlap: int = 0,
        drop_background: bool = False,
        drop_unknown: bool = False,
        schema: LabelSchema | None = None,
        names: dict[str, str] | None = None,
        cache: SectionCache | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self.schema = schema or dataset.schema
        self._remap = self.schema.remap_table(dataset.schema, names)
        self.size = size
        cache = cache or SectionCache()
        sources: list[TileSource] = []
        self.unknown = 0
        """How many windows ``drop_unknown`` left out."""
        for case in progress.track(dataset, total=len(dataset), label="sections"):
            section = cache.open(case, dataset.schema)
            windows = tile_windows(*section.shape, size=size, overlap=overlap)
            if drop_background:
                windows = foreground_windows(section.mask, windows, dataset.schema.background_index)
            if drop_unknown:
                every, windows = len(windows), foreground_windows(section.mask, windows, None)
                self.unknown += every - len(windows)
            sources += [TileSource(case, section, window) for window in windows]
        if not sources:
            got = f"{len(dataset)} cases" + (", in which nothing is annotated" if self.unknown else "")
            hint = "look at the dataset with `ntrm data stats`"
            raise DataError(f"no tiles in {dataset.root}", got=got, expected="a section with tissue", hint=hint)
        self.sources = tuple(sources)

    def joined(self, other: TileDataset, times: int = 1) -> TileDataset:
        """These tiles and those of another dataset of the same classes, each of which occurs ``times``."""
        both = copy(self)
        both.sources = self.sources + other.sources * times
        both.unknown = self.unknown + other.unknown
        return both

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Tile:
        _, section, window = self.sources[index]
        image = cut(section.image, window, fill=GLASS)  # (S, S, 3)
        mask = self._remap[cut(section.mask, window, fill=IGNORE)]  # (S, S)
        # Copied by numpy: torch would share this little work among threads, and waiting for them costs more.
        channels_first = np.ascontiguousarray(image.transpose(2, 0, 1))  # (3, S, S)
        return Tile(torch.from_numpy(channels_first), torch.from_numpy(mask), index)


class LoadedTiles(NamedTuple):
    """Tiles held in memory as two tensors, to be moved to a device at once."""

    images: Tensor  # uint8, (N, 3, S, S)
    masks: Tensor  # uint8, (N, S, S)
