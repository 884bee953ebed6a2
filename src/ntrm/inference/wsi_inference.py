"""One slide from its windows to finished rows on disk: reading, network and writing at the same time, memory bounded.

Windows are read ahead by one thread and rows are written by another, while the network works on those between. What is
held is what can still change, some windows ahead and some blocks behind, however large the slide. Between two rows of
windows that can be saved as a checkpoint, too, so that a killed run continues from there; the writing thread does its
tasks in order, so that a checkpoint is written after all rows that it takes for finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby
from threading import Event
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.data.tiles import Window
from ntrm.inference.blending import Block, Carry
from ntrm.inference.checkpoints import Checkpoint
from ntrm.inference.mask_store import COARSE, CONFIDENCE, FULL, LABELS, BandStore
from ntrm.inference.network_runner import GLASS, Image, NetworkRunner
from ntrm.inference.sliding_window import RowEnd, Stitching, blended_blocks, most_probable, strongest
from ntrm.models.base import TissueGraph
from ntrm.wsi.grid import CACHE_BYTES, SlideGrid

BATCHES_AHEAD = 2
"""Batches of tiles that wait for the network."""
MOST_WAITING = 8
"""Tasks that may wait: more would only fill the memory if the disk is the slowest."""

CARRY, RELATIONS, OBSERVED, PENDING = "carry/", "relations", "observed", "pending/"
"""Names of the arrays in a checkpoint."""

Relabel = Callable[[int, Image], None]
"""Changes the labels of finished rows, as they are stored, from a row of the slide on."""


class BlockSink(Protocol):
    """Takes the probabilities of every block, from the top down and in a row of blocks from the left."""

    def put(self, top: int, left: int, height: int, width: int, values: Image | None) -> None:
        """(K, height, width), or None where there is nothing."""

    def finish(self) -> None:
        """There is no more."""

    def state(self) -> dict[str, Image]:
        """What it holds in memory."""

    def restore(self, state: Mapping[str, Image] | None) -> None:
        """Continue from there, or begin."""


class Sums(Protocol):
    """Sums over the tissue graphs of the windows, on the device where they are."""

    def add_graphs(self, graphs: TissueGraph, first: int) -> None:
        """Add those of some windows; ``first`` is the number of the first of them."""

    def state(self) -> Tensor:
        """A copy of the sums so far."""

    def restore(self, state: Tensor) -> None:
        """Continue from such a copy."""


class Observer(Protocol):
    """Looks at the windows as they are predicted (``sliding_window.Observe``), and keeps what it saw."""

    def __call__(self, windows: Sequence[Window], pixels: Tensor, probabilities: Tensor) -> None:
        """Take some windows in, in their order."""

    def state(self) -> Tensor:
        """What it has kept so far."""

    def restore(self, state: Tensor) -> None:
        """Continue from there."""


class _Packed(NamedTuple):
    """A block in bytes, still on the device."""

    block: Block
    maps: Tensor | None
    """(maps and perhaps K, height, width)."""
    finite: Tensor | None
    """Whether all values are finite."""


class Writer:
    """Puts blocks into ``store`` as whole rows, after ``relabel``, and their probabilities into ``sink``."""

    def __init__(
        self, store: BandStore, predictor: NetworkRunner, sink: BlockSink | None, relabel: Relabel | None = None
    ) -> None:
        self._store, self._predictor, self._sink, self._relabel = store, predictor, sink, relabel
        self._band: dict[str, Image] = {}

    def pack(self, block: Block) -> _Packed:
        """To be called in the network's thread: nothing here waits for the device."""
        if block.values is None:
            return _Packed(block, None, None)
        classes = self._predictor.config.classes
        final, coarse = block.values[:classes], block.values[classes:]
        highest, chosen = strongest(final)
        # 255 + 1 overflows to 0 in a byte: just what nothing is stored as.
        maps = {LABELS: chosen + 1, CONFIDENCE: _as_bytes(highest)}
        if len(coarse):
            maps[COARSE] = most_probable(coarse) + 1
        layers = torch.stack([maps[name] for name in self._store.names])
        if self._sink is not None:
            layers = torch.cat([layers, _as_bytes(final)])
        return _Packed(block._replace(values=None), layers, torch.isfinite(highest.sum()))

    def put(self, packed: _Packed) -> None:
        """To be called in the writing thread: write the rows once the block at their end is there."""
        block, names = packed.block, self._store.names
        if packed.finite is not None and not bool(packed.finite):
            raise self._predictor.broken_network()
        layers = None if packed.maps is None else packed.maps.cpu().numpy()
        if block.left == 0:
            self._band = {name: np.zeros((block.height, self._store.width), dtype=np.uint8) for name in names}
        if layers is not None:
            for name, layer in zip(names, layers, strict=False):
                self._band[name][:, block.left : block.left + block.width] = layer
        if self._sink is not None:
            probabilities = None if layers is None else layers[len(names) :]
            self._sink.put(block.top, block.left, block.height, block.width, probabilities)
        if block.left + block.width == self._store.width:
            if self._relabel is not None:
                self._relabel(block.top, self._band[LABELS])
            self._store.append(block.top, self._band)
            self._band = {}

    def save(self, end: RowEnd, kept: Mapping[str, Tensor]) -> None:
        """To be called in the writing thread: write a checkpoint."""
        arrays = {f"{CARRY}{number}": block.cpu().numpy() for number, block in end.carry.blocks.items()}
        arrays |= {name: values.cpu().numpy() for name, values in kept.items()}
        if self._sink is not None:
            if end.carry.top == self._store.height:
                self._sink.finish()
            arrays |= {f"{PENDING}{name}": array for name, array in self._sink.state().items()}
        self._store.checkpoints.save(Checkpoint(end.carry.top, end.first, arrays))


def _as_bytes(probabilities: Tensor) -> Tensor:
    return (probabilities.clamp(0, 1) * FULL).round().to(torch.uint8)


def _with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@contextmanager
def background_writer() -> Iterator[Callable[..., None]]:
    """A function that has calls made by a thread, in order; their errors are raised at the next call or at the end."""
    waiting: deque[Future[Any]] = deque()
    failed = Event()

    def work(function: Callable[..., None], *arguments: Any) -> None:
        # What comes after a failure must not be written: it would not follow.
        if not failed.is_set():
            failed.set()
            function(*arguments)
            failed.clear()

    with ThreadPoolExecutor(1, thread_name_prefix="ntrm-write") as pool:

        def call(function: Callable[..., None], *arguments: Any) -> None:
            while len(waiting) >= MOST_WAITING or (waiting and waiting[0].done()):
                waiting.popleft().result()
            waiting.append(pool.submit(work, function, *arguments))

        # Where reading or the network fails, the pool still does what is waiting: it need not be done again.
        yield call
        for task in waiting:
            task.result()


def stream(
    predictor: NetworkRunner,
    grid: SlideGrid,
    store: BandStore,
    *,
    stitching: Stitching,
    windows: Sequence[Window],
    sums: Sums | None = None,
    observer: Observer | None = None,
    sink: BlockSink | None = None,
    relabel: Relabel | None = None,
) -> Iterator[int]:
    """Predict what ``store`` does not have yet, and put it there; yields every row of the slide once it is predicted.

    ``windows`` are some of ``stitching.windows``, in their order; where there is none, every map is 0. ``sums``,
    ``observer`` and ``sink`` end as if everything had been predicted in one run. ``relabel`` changes the labels in the
    store; everything else is what the network says.
    """
    last = store.checkpoints.load(store.done)
    keepers = {name: keeper for name, keeper in ((RELATIONS, sums), (OBSERVED, observer)) if keeper is not None}
    begin = _restored(last, keepers, sink)
    done = 0 if begin is None else begin.carry.top
    yield from range(done)
    if done == grid.height:
        return
    todo = windows[0 if begin is None else begin.first :]
    writer = Writer(store, predictor, sink, relabel)
    with reading_ahead(grid, todo, predictor.batch) as read, background_writer() as write:
        events = blended_blocks(
            predictor,
            grid.height,
            grid.width,
            read,
            stitching=stitching,
            windows=windows,
            coarse=COARSE in store.names,
            graphs=None if sums is None else sums.add_graphs,
            observe=observer,
            begin=begin,
        )
        for event in events:
            if isinstance(event, Block):
                write(writer.put, writer.pack(event))
                if event.left + event.width == grid.width:
                    yield from range(event.top, event.top + event.height)
            elif store.checkpoints.due():
                write(writer.save, event, {name: keeper.state() for name, keeper in keepers.items()})
        end = RowEnd(Carry(grid.height, {}), len(windows))
        write(writer.save, end, {name: keeper.state() for name, keeper in keepers.items()})


def _restored(last: Checkpoint | None, keepers: Mapping[str, Sums | Observer], sink: BlockSink | None) -> RowEnd | None:
    """Where to continue, with ``keepers`` and ``sink`` as they were then."""
    if last is None:
        if sink is not None:
            sink.restore(None)
        return None
    for name, keeper in keepers.items():
        keeper.restore(torch.from_numpy(last.arrays[name]))
    if sink is not None:
        sink.restore(_with_prefix(last.arrays, PENDING))
    blocks = {int(number): torch.from_numpy(array) for number, array in _with_prefix(last.arrays, CARRY).items()}
    return RowEnd(Carry(last.top, blocks), last.first)


@contextmanager
def reading_ahead(
    grid: SlideGrid, windows: Sequence[Window], batch: int
) -> Iterator[Callable[[Sequence[Window]], Image]]:
    """A function that returns the tiles (B, S, S, 3) of the next windows, read ahead by a thread.

    It is quickest for ``batch`` windows each time. Where several threads can read the slide, they read the blocks of
    which the tiles are made.
    """
    waiting: deque[Future[Image]] = deque()
    starts, held = iter(range(0, len(windows), batch)), [np.empty((0, 0, 0, 3), dtype=np.uint8)]
    with ExitStack() as stack:
        blocks = stack.enter_context(reading_blocks(grid, windows)) if grid.at_once > 1 else None
        pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="ntrm-read"))

        def read(start: int) -> Image:
            return np.stack([tile(start + number) for number in range(len(windows[start : start + batch]))])

        def tile(number: int) -> Image:
            if blocks is not None:
                blocks(number)
            return read_tile(grid, windows[number])

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


@contextmanager
def reading_blocks(grid: SlideGrid, windows: Sequence[Window]) -> Iterator[Callable[[int], None]]:
    """A function to be called before each window is read: has the blocks of those that follow read by threads.

    Blocks wait in the grid's cache, of which they take a quarter at most: what is still needed must stay in it.
    """
    most = max(1, CACHE_BYTES // 4 // grid.block_bytes)
    needed, ahead = _blocks_needed(grid, windows), deque[int]()
    reading: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(grid.at_once, thread_name_prefix="ntrm-block") as pool:

        def go_on(number: int) -> None:
            while reading and reading[0].done():
                reading.popleft().result()
            while ahead and ahead[0] <= number:
                ahead.popleft()
            while len(ahead) < most and (following := next(needed, None)) is not None:
                first, block = following
                if not grid.has_block(*block):
                    ahead.append(first)
                    reading.append(pool.submit(grid.block, *block))

        try:
            yield go_on
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _blocks_needed(grid: SlideGrid, windows: Sequence[Window]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Blocks in the order in which the windows need them, once for each row of windows, with the window's number."""
    numbered = enumerate(windows)
    for _, row in groupby(numbered, key=lambda item: item[1].top):
        seen: set[tuple[int, int]] = set()
        for number, window in row:
            under = (window.top, window.left, window.top + window.height, window.left + window.width)
            for block in grid.blocks_under(*under):
                if block not in seen:
                    seen.add(block)
                    yield number, block


def read_tile(grid: SlideGrid, window: Window) -> Image:
    """The tile of a window, with glass where it exceeds the slide."""
    pixels = grid.read(window.top, window.left, window.height, window.width)
    padding = ((0, window.pad_bottom), (0, window.pad_right), (0, 0))
    return np.pad(pixels, padding, constant_values=GLASS) if window.pad_bottom or window.pad_right else pixels
