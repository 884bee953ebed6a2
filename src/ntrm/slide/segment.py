"""One slide from its windows to finished rows on disk: reading, network and writing at the same time, memory bounded.

Windows are read ahead by one thread and rows are written behind by another, while the network works on those between.
What is held is what can still change, some windows ahead and some blocks behind, however large the slide. Between two
rows of windows that can be put on disk, too, so that a killed run goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.blending import Block, Carry
from ntrm.data.tiles import GLASS, Window
from ntrm.gathering import Context
from ntrm.models.output import TissueGraph
from ntrm.predictor import Image, Predictor
from ntrm.slide.bands import INITIAL, BandStore
from ntrm.slide.checkpoints import Checkpoint
from ntrm.slide.writing import CARRY, FULL, PENDING, RELATIONS, BlockSink, Writer, part_of, working_behind
from ntrm.stitching import RowEnd, Stitching, blended_blocks

__all__ = ["FULL", "PixelGrid", "Sums", "read_tile", "reading_ahead", "stream"]


class Sums(Protocol):
    """What is added up over the tissue graphs of the windows, on the device where they are."""

    def add_graphs(self, graphs: TissueGraph) -> None:
        """Take those of some windows in."""
        ...

    def state(self) -> Tensor:
        """A copy of the sums so far."""
        ...

    def restore(self, state: Tensor) -> None:
        """Go on from such a copy."""
        ...


class PixelGrid(Protocol):
    """What streaming needs of a slide: its size at the model's resolution, and pixels."""

    @property
    def height(self) -> int:
        """Rows."""
        ...

    @property
    def width(self) -> int:
        """Columns."""
        ...

    def read(self, top: int, left: int, height: int, width: int) -> Image:
        """Pixels (h, w, 3) of a rectangle inside."""
        ...


def stream(
    predictor: Predictor,
    grid: PixelGrid,
    store: BandStore,
    *,
    stitching: Stitching,
    windows: Sequence[Window],
    sums: Sums | None = None,
    sink: BlockSink | None = None,
    context: Context | None = None,
) -> Iterator[int]:
    """Predict what ``store`` does not have yet, and put it there; yields every row of the slide once it is predicted.

    ``windows`` are some of ``stitching.windows``, in their order; where none is, every map is 0. ``sums`` and ``sink``
    end as if everything had been predicted in one go. ``context`` is what the slide adds up to (``gather_slide``).
    """
    last = store.checkpoints.load(store.done)
    begin = _restored(last, sums, sink)
    done = 0 if begin is None else begin.carry.top
    yield from range(done)
    if done == grid.height:
        return
    todo = windows[0 if begin is None else begin.first :]
    writer = Writer(store, predictor, sink)
    with reading_ahead(grid, todo, 2 * predictor.batch) as read, working_behind() as behind:
        events = blended_blocks(
            predictor,
            grid.height,
            grid.width,
            read,
            stitching=stitching,
            windows=windows,
            initial=INITIAL in store.names,
            graphs=None if sums is None else sums.add_graphs,
            begin=begin,
            context=context,
        )
        for event in events:
            if isinstance(event, Block):
                behind(writer.put, writer.pack(event))
                if event.left + event.width == grid.width:
                    yield from range(event.top, event.top + event.height)
            elif store.checkpoints.due():
                behind(writer.save, event, None if sums is None else sums.state())
        end = RowEnd(Carry(grid.height, {}), len(windows))
        behind(writer.save, end, None if sums is None else sums.state())


def _restored(last: Checkpoint | None, sums: Sums | None, sink: BlockSink | None) -> RowEnd | None:
    """Where to go on, with ``sums`` and ``sink`` as they were then."""
    if last is None:
        if sink is not None:
            sink.restore(None)
        return None
    if sums is not None:
        sums.restore(torch.from_numpy(last.arrays[RELATIONS]))
    if sink is not None:
        sink.restore(part_of(last.arrays, PENDING))
    carried = part_of(last.arrays, CARRY)
    blocks = {int(number): torch.from_numpy(array) for number, array in carried.items()}
    return RowEnd(Carry(last.top, blocks), last.first)


@contextmanager
def reading_ahead(
    grid: PixelGrid, windows: Sequence[Window], ahead: int
) -> Iterator[Callable[[Window], NDArray[np.uint8]]]:
    """A function that gives the windows' tiles in their order, read by a thread before they are asked for."""
    waiting: deque[Future[Image]] = deque()
    left = iter(windows)
    with ThreadPoolExecutor(1, thread_name_prefix="ntrm-read") as pool:

        def take(_: Window) -> Image:
            while len(waiting) <= ahead and (following := next(left, None)) is not None:
                waiting.append(pool.submit(read_tile, grid, following))
            return waiting.popleft().result()

        try:
            yield take
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def read_tile(grid: PixelGrid, window: Window) -> Image:
    """The tile of a window, with glass where it exceeds the slide."""
    pixels = grid.read(window.top, window.left, window.height, window.width)
    if not (window.pad_bottom or window.pad_right):
        return pixels
    tile: Image = np.empty((*window.tile_shape, 3), dtype=np.uint8)
    tile[:] = GLASS
    tile[: window.height, : window.width] = pixels
    return tile
