"""One slide from its windows to finished rows on disk: reading, network and writing at the same time, memory bounded.

Windows are read ahead by one thread and rows are written behind by another, while the network works on those between.
What is held is one row of windows on the device, some windows ahead and some rows behind, however tall the slide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ntrm.data.tiles import GLASS, Window
from ntrm.predictor import Image, Predictor
from ntrm.slide.bands import BandStore
from ntrm.stitching import Rows, Stitching, blended_rows, most_probable

BEHIND = 2
"""Bands that may wait to be written: more would only fill the memory if the disk is the slowest."""

FULL = 255
"""Confidence of 1 in a byte."""


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
) -> Iterator[int]:
    """Predict what ``store`` does not have yet, and put it there; yields every row of the slide once it is predicted.

    ``windows`` are some of ``stitching.windows``, in their order; where none is, labels are 255 and confidences 0.
    """
    done = store.done
    yield from range(done)
    if store.complete:
        return
    todo = windows[first_window(windows, done, predictor.batch) :]
    with _reading_ahead(grid, todo, 2 * predictor.batch) as read, _writing_behind(store) as write:
        for rows in blended_rows(predictor, grid.height, grid.width, read, stitching=stitching, windows=todo):
            bottom = rows.slice.stop
            if bottom > done:
                write(rows.top, *_as_bytes(rows, predictor))
                yield from range(max(rows.top, done), bottom)


def first_window(windows: Sequence[Window], done: int, batch: int) -> int:
    """Where to start again if ``done`` rows are finished.

    At the first window that shows a later row, or at most a batch before: batches must be cut where they were the
    first time, since a network's rounding may depend on how many windows it is given at once.
    """
    needed = next((at for at, window in enumerate(windows) if window.top + window.height > done), len(windows))
    return needed - needed % batch


def _as_bytes(rows: Rows, predictor: Predictor) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(rows, W) labels and confidences."""
    highest = rows.final.amax(dim=0)
    if not torch.isfinite(highest).all():
        raise predictor.broken_network()
    confidence = (highest.clamp(0, 1) * FULL).round().to(torch.uint8)
    return most_probable(rows.final).cpu().numpy(), confidence.cpu().numpy()


@contextmanager
def _reading_ahead(
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


@contextmanager
def _writing_behind(store: BandStore) -> Iterator[Callable[[int, NDArray[np.uint8], NDArray[np.uint8]], None]]:
    """A function that has rows appended by a thread; errors of it come out at the next call or at the end."""
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="ntrm-write") as pool:

        def put(top: int, labels: NDArray[np.uint8], confidence: NDArray[np.uint8]) -> None:
            while len(waiting) >= BEHIND:
                waiting.popleft().result()
            waiting.append(pool.submit(store.append, top, labels, confidence))

        yield put
        for each in waiting:
            each.result()
