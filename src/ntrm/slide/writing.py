"""Finished blocks to disk, behind the network: bytes leave the device in a thread of their own.

Tasks are done one after the other, so that a checkpoint is written after all rows that it takes for finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.blending import Block
from ntrm.predictor import Predictor
from ntrm.slide.bands import CONFIDENCE, INITIAL, LABELS, BandStore
from ntrm.slide.checkpoints import Checkpoint
from ntrm.stitching import RowEnd, most_probable, strongest

BEHIND = 8
"""Tasks that may wait: more would only fill the memory if the disk is the slowest."""

FULL = 255
"""Confidence or probability of 1 in a byte."""

CARRY, RELATIONS, PENDING = "carry/", "relations", "pending/"
"""Names of the arrays in a checkpoint."""

Bytes = NDArray[np.uint8]


class BlockSink(Protocol):
    """Takes the probabilities of every block, from the top down and in a row of blocks from the left."""

    def put(self, top: int, left: int, height: int, width: int, values: Bytes | None) -> None:
        """(K, height, width), or None where there is nothing."""
        ...

    def finish(self) -> None:
        """There is no more."""
        ...

    def state(self) -> dict[str, Bytes]:
        """What it holds in memory."""
        ...

    def restore(self, state: Mapping[str, Bytes] | None) -> None:
        """Go on from there, or begin."""
        ...


class _Packed(NamedTuple):
    """A block in bytes, still on the device."""

    block: Block
    maps: Tensor | None
    """(maps and perhaps K, height, width)."""
    sound: Tensor | None
    """Whether all numbers are numbers."""


class Writer:
    """Puts blocks into ``store`` as whole rows, and their probabilities into ``sink``."""

    def __init__(self, store: BandStore, predictor: Predictor, sink: BlockSink | None) -> None:
        self._store, self._predictor, self._sink = store, predictor, sink
        self._band: dict[str, Bytes] = {}

    def pack(self, block: Block) -> _Packed:
        """To be called where the network runs: nothing here waits for the device."""
        if block.values is None:
            return _Packed(block._replace(values=None), None, None)
        classes = self._predictor.config.classes
        final, initial = block.values[:classes], block.values[classes:]
        highest, chosen = strongest(final)
        # 255 + 1 overflows to 0 in a byte: just what nothing is stored as.
        maps = {LABELS: chosen + 1, CONFIDENCE: _as_bytes(highest)}
        if len(initial):
            maps[INITIAL] = most_probable(initial) + 1
        layers = torch.stack([maps[name] for name in self._store.names])
        if self._sink is not None:
            layers = torch.cat([layers, _as_bytes(final)])
        return _Packed(block._replace(values=None), layers, torch.isfinite(highest.sum()))

    def put(self, packed: _Packed) -> None:
        """To be called behind: write the rows once the block at their end is there."""
        block, names = packed.block, self._store.names
        if packed.sound is not None and not bool(packed.sound):
            raise self._predictor.broken_network()
        layers = None if packed.maps is None else packed.maps.cpu().numpy()
        if block.left == 0:
            self._band = {name: np.zeros((block.height, self._store.width), dtype=np.uint8) for name in names}
        if layers is not None:
            for name, layer in zip(names, layers, strict=False):
                self._band[name][:, block.left : block.left + block.width] = layer
        if self._sink is not None:
            rest = None if layers is None else layers[len(names) :]
            self._sink.put(block.top, block.left, block.height, block.width, rest)
        if block.left + block.width == self._store.width:
            self._store.append(block.top, self._band)
            self._band = {}

    def save(self, end: RowEnd, relations: Tensor | None) -> None:
        """To be called behind: write a checkpoint."""
        arrays = {f"{CARRY}{number}": part.cpu().numpy() for number, part in end.carry.blocks.items()}
        if relations is not None:
            arrays[RELATIONS] = relations.cpu().numpy()
        if self._sink is not None:
            if end.carry.top == self._store.height:
                self._sink.finish()
            arrays |= {f"{PENDING}{name}": array for name, array in self._sink.state().items()}
        self._store.checkpoints.save(Checkpoint(end.carry.top, end.first, arrays))


def _as_bytes(probabilities: Tensor) -> Tensor:
    return (probabilities.clamp(0, 1) * FULL).round().to(torch.uint8)


def part_of(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@contextmanager
def working_behind() -> Iterator[Callable[..., None]]:
    """A function that has calls made by a thread, one after the other; errors come out at the next call or the end."""
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
            while len(waiting) >= BEHIND or (waiting and waiting[0].done()):
                waiting.popleft().result()
            waiting.append(pool.submit(work, function, *arguments))

        # Where reading or the network fails, the pool still does what is waiting: it need not be done again.
        yield call
        for each in waiting:
            each.result()
