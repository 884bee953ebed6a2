"""Tiles of the slide itself, read on demand in limited child processes that are closed when others are needed."""

from __future__ import annotations

import io
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ntrm.core.errors import DataError
from ntrm.service.core.problems import busy
from ntrm.service.tiles.geometry import TILE, Box, DeepZoom
from ntrm.wsi.grid import best_level, box_weights, resample
from ntrm.wsi.isolated import Limits, ReadingProcess
from ntrm.wsi.readers.array_cache import ArrayCache
from ntrm.wsi.readers.reader import Pixels, SlideInfo, check_request

QUALITY = 85
MOST_PIXELS = 2**23
"""Read for one tile; where a slide lacks the coarse level, a tile is put together from finer ones instead."""


class SlideTiles:
    """The tiles of one slide; the coarse ones of slides without a pyramid are kept, since they cost the whole slide."""

    def __init__(self, slide: OpenSlide, cache: ArrayCache, key: tuple[Hashable, ...]) -> None:
        self._slide = slide
        self._cache = cache
        self._key = key
        _, _, width, height = slide.info.area
        self.zoom = DeepZoom(width, height)

    def jpeg(self, level: int, column: int, row: int, seconds: float) -> bytes:
        """A tile as a file."""
        return encode_jpeg(self.pixels(level, column, row, time.monotonic() + seconds))

    def pixels(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """(height, width, 3): each pixel is the mean over those of the full resolution that it stands for."""
        box = self.zoom.tile(level, column, row)
        scale = self.zoom.scale(level)
        info = self._slide.info
        best = best_level(info, scale, scale)
        sx, sy = info.scale(best)
        if (box.width * scale / sx) * (box.height * scale / sy) > MOST_PIXELS and scale > 1:
            return self._cache.get((*self._key, level, column, row), lambda: self._joined(level, column, row, deadline))
        left0, top0, wide0, tall0 = info.area
        this = info.levels[best]
        down = box_weights(box.top, box.top + box.height, scale / sy, top0 / sy, tall0 / sy, this.height)
        across = box_weights(box.left, box.left + box.width, scale / sx, left0 / sx, wide0 / sx, this.width)
        x, y = round(across.start * this.downsample), round(down.start * this.downsample)
        return resample(self._slide.read(x, y, across.length, down.length, best), down, across)

    def _joined(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """A tile from the up to four tiles of the next finer level."""
        if time.monotonic() > deadline:
            # What was put together so far is kept: the next request goes on from there.
            raise busy("the slide has no overview, and making one takes a while")
        box = self.zoom.tile(level, column, row)
        wide, tall = self.zoom.size(level + 1)
        finer = Box(2 * box.left, 2 * box.top, min(2 * box.width, wide - 2 * box.left), 0)
        height = min(2 * box.height, tall - 2 * box.top)
        whole = np.empty((height, finer.width, 3), dtype=np.uint8)
        columns, rows = self.zoom.grid(level + 1)
        for r in range(2 * row, min(2 * row + 2, rows)):
            for c in range(2 * column, min(2 * column + 2, columns)):
                part = self.pixels(level + 1, c, r, deadline)
                top, left = r * TILE - finer.top, c * TILE - finer.left
                whole[top : top + part.shape[0], left : left + part.shape[1]] = part
        down = box_weights(0, box.height, 2.0, 0, height, height)
        across = box_weights(0, box.width, 2.0, 0, finer.width, finer.width)
        return resample(whole, down, across)

    def overview(self, side: int, seconds: float) -> Pixels:
        """The whole scanned part, with at most ``side`` pixels on its longer side and more than half as many."""
        deadline = time.monotonic() + seconds
        level = max(level for level in range(self.zoom.top + 1) if max(self.zoom.size(level)) <= side)
        width, height = self.zoom.size(level)
        whole = np.empty((height, width, 3), dtype=np.uint8)
        columns, rows = self.zoom.grid(level)
        for row in range(rows):
            for column in range(columns):
                box = self.zoom.tile(level, column, row)
                part = self.pixels(level, column, row, deadline)
                whole[box.top : box.top + box.height, box.left : box.left + box.width] = part
        return whole


def encode_jpeg(pixels: Pixels) -> bytes:
    """Pixels as a JPEG file, with nothing else in it."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=QUALITY)
    return stream.getvalue()


# Original slides that are being looked at: a few reading processes each, closed when others need the room.


PER_SLIDE = 2
"""Processes that read one slide."""
_Key = tuple[str, int, int, bool]


class OpenSlide:
    """A slide and the processes that read it; safe to use from several threads."""

    def __init__(self, path: Path, pool: Readers, *, alone: bool) -> None:
        self._path, self._alone = path, alone
        self._pool = pool
        self._idle: list[ReadingProcess] = []
        self._started = 0
        self._changed = threading.Condition()
        self.users = 0
        self.used = time.monotonic()
        self.info: SlideInfo
        try:
            with self._process() as (_, info):
                self.info = info
        except BaseException:
            self.close()
            raise

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``."""
        check_request(self.info, width, height, level)
        with self._process() as (process, _):
            return process.read(x, y, width, height, level)

    @contextmanager
    def _process(self) -> Iterator[tuple[ReadingProcess, SlideInfo]]:
        """A process that has the slide open and does nothing else meanwhile."""
        with self._changed:
            while not self._idle and self._started >= PER_SLIDE:
                self._changed.wait()
            process = self._idle.pop() if self._idle else None
            self._started += process is None
        try:
            if process is None:
                process = self._pool.fresh()
                info = process.open(self._path, alone=self._alone)
            else:
                info = self.info
            yield process, info
        finally:
            with self._changed:
                if process is not None and process.alive:
                    self._idle.append(process)
                else:
                    self._started -= 1
                self._changed.notify()

    def close(self) -> None:
        """End the processes; nobody may be reading."""
        with self._changed:
            for process in self._idle:
                process.close()
            self._started -= len(self._idle)
            self._idle.clear()


class Readers:
    """Slides by path, as many as stated; the one unused longest goes first."""

    def __init__(self, slides: int, limits: Limits) -> None:
        self._most = slides
        self._limits = limits
        self._open: OrderedDict[_Key, OpenSlide] = OrderedDict()
        self._opening: dict[_Key, threading.Lock] = {}
        self._lock = threading.Lock()
        self._spare: ReadingProcess | None = None
        self._closed = False

    def warm_up(self) -> None:
        """Start a process that waits for the next slide: starting one takes longer than reading."""
        with self._lock:
            wanted = self._spare is None and not self._closed
        if wanted:
            process = ReadingProcess(self._limits)
            with self._lock:
                if self._spare is None and not self._closed:
                    self._spare, process = process, None  # type: ignore[assignment]
            if process is not None:
                process.close()

    def fresh(self) -> ReadingProcess:
        """A process that has no slide open."""
        with self._lock:
            spare, self._spare = self._spare, None
        threading.Thread(target=self.warm_up, daemon=True).start()
        return spare if spare is not None and spare.alive else ReadingProcess(self._limits)

    @contextmanager
    def using(self, path: Path, *, alone: bool = True) -> Iterator[OpenSlide]:
        """The slide, opened if it was not, with no other file where ``alone``; it stays open until the block ends."""
        slide = self._enter(path, alone=alone)
        try:
            yield slide
        finally:
            with self._lock:
                slide.users -= 1
                slide.used = time.monotonic()
            self._close_some(self._most)

    def _enter(self, path: Path, *, alone: bool) -> OpenSlide:
        key = _key(path, alone=alone)
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                found = self._open.get(key)
                if found is not None:
                    self._open.move_to_end(key)
                    found.users += 1
                    return found
            try:
                made = OpenSlide(path, self, alone=alone)
            finally:
                with self._lock:
                    self._opening.pop(key, None)
            with self._lock:
                made.users = 1
                self._open[key] = made
        return made

    def _close_some(self, most: int, older_than: float = 0.0) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [key for key, slide in self._open.items() if not slide.users and now - slide.used >= older_than]
            going = [self._open.pop(key) for key in idle[: max(0, len(self._open) - most)]]
        for slide in going:
            slide.close()

    def close_idle(self, seconds: float) -> None:
        """Close what nobody has looked at for a while."""
        self._close_some(0, older_than=seconds)

    def forget(self, path: Path) -> None:
        """Close a slide that is about to be deleted, unless somebody is reading it just now."""
        with self._lock:
            keys = [key for key, slide in self._open.items() if key[0] == str(path) and not slide.users]
            going = [self._open.pop(key) for key in keys]
        for slide in going:
            slide.close()

    def close(self) -> None:
        """End every process."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        self._close_some(0)


def _key(path: Path, *, alone: bool) -> _Key:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError("the slide's file is not there any more", hint="put it back, or delete the slide") from error
    return str(path), status.st_mtime_ns, status.st_size, alone
