"""Which windows make which step, and how they get to the device.

The order is a pure function of (seed, step): whoever knows the step a training stands at knows everything that is
still to come, so that a checkpoint holds no random state and an interrupted training goes on exactly.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from ntrm.core.errors import UsageError
from ntrm.core.labels import pixel_counts
from ntrm.core.processes import begin_worker
from ntrm.core.progress import SILENT, Progress
from ntrm.core.threads import cores_given
from ntrm.data.tensors import LoadedTiles, Tile, TileDataset
from ntrm.data.tiles import TILE_SIZE

CUDA_FRACTION = 0.3  # Of a GPU's free memory, that auto gives to windows: network and gradients need the rest
MOST_ON_HOST = 2 * 2**30  # Bytes of main memory, which other programs share, that auto gives to windows

_ORDER, _CHANCE, _DROP, _FILL = 0, 1, 2, 3  # what a seed is used for: streams of different use never coincide
_CHUNK = 64


@dataclass(frozen=True)
class StepPlan:
    """The windows of every step, for one of ``world`` processes that share each batch.

    Every epoch is a new order of all windows; what does not fill a last batch is left out of that epoch. Where there
    are fewer windows than a batch holds, every batch is an epoch, with the windows repeated as evenly as possible.

    >>> plan = StepPlan(tiles=10, batch=4, seed=0)
    >>> plan.steps_per_epoch, len({*plan.indices(0), *plan.indices(1)})
    (2, 8)
    """

    tiles: int
    batch: int  # Windows per step over all processes
    seed: int
    rank: int = 0
    world: int = 1
    fill: float = 0.0  # Probability that another window takes the place of the glass in a window

    def __post_init__(self) -> None:
        if self.batch % self.world:
            raise UsageError(
                "the batch cannot be shared evenly",
                got=f"batch {self.batch} over {self.world} processes",
                expected=f"a multiple of {self.world}",
                hint=f"set batch={-(-self.batch // self.world) * self.world}, or use another number of processes",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch, at least one."""
        return max(1, self.tiles // self.batch)

    def indices(self, step: int) -> list[int]:
        """Windows of this process in a step, counted from 0 over the whole training."""
        epoch, number = divmod(step, self.steps_per_epoch)
        order = _epoch_order(self.tiles, max(self.tiles, self.batch), self.seed, epoch)
        own: list[int] = order[number * self.batch : (number + 1) * self.batch][self.rank :: self.world].tolist()
        return own

    def fillings(self, step: int) -> dict[int, int]:
        """Places in the batch of this process that are filled in a step, and the window that fills each.

        It is any window of the training, not one of the batch: of that a process has only its share.
        """
        if not self.fill:
            return {}
        random = np.random.default_rng([self.seed, _FILL, step])
        filled, others = random.random(self.batch) < self.fill, random.integers(self.tiles, size=self.batch)
        own = slice(self.rank, None, self.world)
        return {int(place): int(others[own][place]) for place in np.flatnonzero(filled[own])}

    def windows(self, step: int) -> list[int]:
        """All windows that this process needs in a step: its own, then those that fill them."""
        return [*self.indices(step), *self.fillings(step).values()]

    def generator(self, step: int) -> torch.Generator:
        """Source of what is random in a step, on the CPU and the same in every process."""
        return torch.Generator().manual_seed(self._seed(_CHANCE, step))

    def dropout_seed(self, step: int) -> int:
        """Seed of dropout in a step, another one in every process."""
        return self._seed(_DROP, step, self.rank) >> 1

    def _seed(self, use: int, step: int, *more: int) -> int:
        return int(np.random.SeedSequence([self.seed, use, step, *more]).generate_state(1, np.uint64)[0])


@lru_cache(maxsize=4)
def _epoch_order(tiles: int, length: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """All windows in the order of one epoch, repeated up to ``length``; cached, since every step of the epoch asks."""
    order = np.random.default_rng([seed, _ORDER, epoch]).permutation(tiles)
    return np.resize(order, length)


class WindowStore:
    """Windows as batches of bytes on the device, cached in the device's memory or read as they are needed.

    ``resident`` is ``yes``, ``no`` or ``auto``: cached if they take less than ``CUDA_FRACTION`` of a GPU's free memory,
    or less than ``MOST_ON_HOST`` elsewhere. The pixels are the same either way.
    """

    def __init__(
        self, tiles: TileDataset, device: torch.device, *, resident: str, workers: int, progress: Progress = SILENT
    ) -> None:
        self.tiles = tiles
        self.device = device
        self.workers = min(workers, cores_given())
        room = CUDA_FRACTION * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else MOST_ON_HOST
        self.resident = resident == "yes" or (resident == "auto" and len(tiles) * 4 * tiles.size**2 < room)
        self._cached = self._load(progress) if self.resident else None

    def __len__(self) -> int:
        return len(self.tiles)

    def batches(self, plan: Sequence[Sequence[int]]) -> Generator[LoadedTiles, None, None]:
        """The batches of ``plan``, each a sequence of windows, in order; nothing waits for the device."""
        if self._cached is None:
            yield from self._stream(plan, self.workers)
            return
        # One transfer for the whole plan, from pinned memory: a transfer for each batch would make each step wait.
        flat = torch.tensor([index for batch in plan for index in batch])
        flat = flat.pin_memory() if self.device.type == "cuda" else flat
        flat = flat.to(self.device, non_blocking=True)
        for index in torch.split(flat, [len(batch) for batch in plan]):
            yield LoadedTiles(*(pixels.index_select(0, index) for pixels in self._cached))

    def _stream(self, plan: Sequence[Sequence[int]], workers: int) -> Generator[LoadedTiles, None, None]:
        loader = DataLoader(
            self.tiles,
            batch_sampler=[list(batch) for batch in plan],
            num_workers=workers,
            collate_fn=stack_tiles,
            worker_init_fn=_begin_reader,
            pin_memory=self.device.type == "cuda",
            prefetch_factor=4 if workers else None,
            generator=torch.Generator(),  # or the loader would use up numbers of torch's own generator
        )
        for tiles in loader:
            yield LoadedTiles(*(pixels.to(self.device, non_blocking=True) for pixels in tiles))

    def _load(self, progress: Progress) -> LoadedTiles:
        """Every window on the device, brought there in chunks: the main memory need not hold them all."""
        count, size = len(self.tiles), self.tiles.size
        images = torch.empty((count, 3, size, size), dtype=torch.uint8, device=self.device)
        masks = torch.empty((count, size, size), dtype=torch.uint8, device=self.device)
        chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
        workers = self.workers if len(chunks) > 1 + self.workers else 0  # a few are read before a process has started
        loaded = progress.track(self._stream(chunks, workers), total=len(chunks), label="windows")
        for chunk, tiles in zip(chunks, loaded, strict=True):
            images[chunk.start : chunk.stop] = tiles.images
            masks[chunk.start : chunk.stop] = tiles.masks
        return LoadedTiles(images, masks)


def validation_batches(windows: int, size: int, plan: StepPlan) -> list[list[int]]:
    """The validation windows of this process in batches, always the same; windows have a side of ``size`` pixels.

    >>> validation_batches(7, size=512, plan=StepPlan(tiles=9, batch=2, seed=0))
    [[0, 1, 2, 3], [4, 5, 6]]
    """
    # As many windows as 16 of TILE_SIZE have pixels, or as the training itself takes at a time.
    batch = max(min(16, max(1, 16 * TILE_SIZE**2 // size**2)), plan.batch // plan.world)
    own = range(plan.rank, windows, plan.world)
    return [list(own[start : start + batch]) for start in range(0, len(own), batch)]


def class_pixels(tiles: TileDataset) -> list[float]:
    """Pixels of each class in the sections of a dataset."""
    sections = {source.case.name: source.section for source in tiles.sources}
    counts = [pixel_counts(section.mask, len(tiles.schema))[:-1] for section in sections.values()]
    return [float(count) for count in np.sum(counts, axis=0)]


def stack_tiles(tiles: Sequence[Tile]) -> LoadedTiles:
    """Tiles as one batch."""
    return LoadedTiles(torch.stack([tile.image for tile in tiles]), torch.stack([tile.mask for tile in tiles]))


def _begin_reader(_number: int) -> None:
    """Let a signal to the whole process group stop the training alone, which still needs its windows to do so."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin_worker()
