"""One slide from its windows to its maps: windows are read ahead by threads while the network works.

What is held beside the maps is what can still change: some windows ahead and some blocks behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ntrm.data.tiles import Window
from ntrm.inference.blending import Block
from ntrm.inference.maps import FULL, Maps
from ntrm.inference.network_runner import GLASS, Image, NetworkRunner
from ntrm.inference.sliding_window import Observe, Stitching, blended_blocks, most_probable, strongest
from ntrm.models.base import TissueGraph
from ntrm.wsi.grid import SlideGrid

BATCHES_AHEAD = 2
"""Batches of tiles that wait for the network."""


class BlockSink(Protocol):
    """Takes the probabilities of every block, from the top down and in a row of blocks from the left."""

    def put(self, top: int, left: int, height: int, width: int, values: Image | None) -> None:
        """(K, height, width), or None where there is nothing."""


def predict_maps(
    predictor: NetworkRunner,
    grid: SlideGrid,
    maps: Maps,
    *,
    stitching: Stitching,
    windows: Sequence[Window],
    graphs: Callable[[TissueGraph, int], None] | None = None,
    observe: Observe | None = None,
    sink: BlockSink | None = None,
) -> Iterator[int]:
    """Predict a slide into new ``maps``; yields every row of it once it is predicted.

    ``windows`` are some of ``stitching.windows``, in their order; where there is none, the maps stay as they are.
    ``graphs`` and ``observe`` are called as by ``blended_blocks``; ``sink`` takes the probabilities.
    """
    with reading_ahead(grid, windows, predictor.batch) as read:
        blocks = blended_blocks(
            predictor,
            grid.height,
            grid.width,
            read,
            stitching=stitching,
            windows=windows,
            coarse=maps.coarse is not None,
            graphs=graphs,
            observe=observe,
        )
        for block in blocks:
            final = None if block.values is None else block.values[: predictor.config.classes]
            if block.values is not None and final is not None:
                _fill(maps, block, final, block.values[len(final) :], predictor)
            if sink is not None:
                values = None if final is None else _as_bytes(final).cpu().numpy()
                sink.put(block.top, block.left, block.height, block.width, values)
            if block.left + block.width == grid.width:
                yield from range(block.top, block.top + block.height)


def _fill(maps: Maps, block: Block, final: Tensor, coarse: Tensor, predictor: NetworkRunner) -> None:
    place = slice(block.top, block.top + block.height), slice(block.left, block.left + block.width)
    highest, chosen = strongest(final)
    if not bool(torch.isfinite(highest.sum())):
        raise predictor.broken_network()
    maps.labels[place] = chosen.cpu().numpy()
    maps.confidence[place] = _as_bytes(highest).cpu().numpy()
    if maps.coarse is not None:
        maps.coarse[place] = most_probable(coarse).cpu().numpy()


def _as_bytes(probabilities: Tensor) -> Tensor:
    return (probabilities.clamp(0, 1) * FULL).round().to(torch.uint8)


@contextmanager
def reading_ahead(
    grid: SlideGrid, windows: Sequence[Window], batch: int
) -> Iterator[Callable[[Sequence[Window]], Image]]:
    """A function that returns the tiles (B, S, S, 3) of the next windows, read ahead by a thread.

    It is quickest for ``batch`` windows each time.
    """
    waiting: deque[Future[Image]] = deque()
    starts, held = iter(range(0, len(windows), batch)), [np.empty((0, 0, 0, 3), dtype=np.uint8)]
    pool = ThreadPoolExecutor(1, thread_name_prefix="ntrm-read")

    def read(start: int) -> Image:
        return np.stack([read_tile(grid, window) for window in windows[start : start + batch]])

    def following() -> Image:
        while len(waiting) <= BATCHES_AHEAD and (start := next(starts, None)) is not None:
            waiting.append(pool.submit(read, start))
        return waiting.popleft().result()

    def take(asked: Sequence[Window]) -> Image:
        tiles = held.pop()
        while len(tiles) < len(asked):
            more = following()
            tiles = np.concatenate([tiles, more]) if len(tiles) else more
        held.append(tiles[len(asked) :])
        return tiles[: len(asked)]

    try:
        yield take
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def read_tile(grid: SlideGrid, window: Window) -> Image:
    """The tile of a window, with glass where it exceeds the slide."""
    pixels = grid.read(window.top, window.left, window.height, window.width)
    padding = ((0, window.pad_bottom), (0, window.pad_right), (0, 0))
    return np.pad(pixels, padding, constant_values=GLASS) if window.pad_bottom or window.pad_right else pixels
