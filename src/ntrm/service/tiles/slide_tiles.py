"""Tiles of the slide itself, read on demand in limited child processes, which are closed when others are needed."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from ntrm.core.errors import DataError
from ntrm.data.area_mean import box_means
from ntrm.service.core.problems import busy
from ntrm.service.tiles.caches import OpenPool
from ntrm.service.tiles.geometry import DeepZoom
from ntrm.wsi.grid import best_level, box_weights, read_area
from ntrm.wsi.isolated import ReadingLimits, ReadingProcess
from ntrm.wsi.readers.reader import ArrayCache, Pixels, SlideInfo, check_request

QUALITY = 85
MOST_PIXELS = 2**23
"""Read for one tile; where a slide lacks the coarse level, a tile is made from finer tiles instead."""
PER_SLIDE = 2
"""Processes that read one slide."""


class SlideTiles:
    """The tiles of one slide; coarse ones of slides without a pyramid are cached: making one reads the whole slide."""

    def __init__(self, slide: OpenSlide, cache: ArrayCache, key: tuple[Hashable, ...]) -> None:
        self._slide, self._cache, self._key = slide, cache, key
        _, _, width, height = slide.info.area
        self.zoom = DeepZoom(width, height)

    def jpeg(self, level: int, column: int, row: int, seconds: float) -> bytes:
        """A tile as a file."""
        return encode_jpeg(self.pixels(level, column, row, time.monotonic() + seconds))

    def pixels(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """(height, width, 3): each pixel is the mean over the pixels of the full resolution that it covers."""
        box, scale, info = self.zoom.tile(level, column, row), self.zoom.scale(level), self._slide.info
        best = best_level(info, scale, scale)
        sx, sy = info.scale(best)
        if (box.width * scale / sx) * (box.height * scale / sy) > MOST_PIXELS and scale > 1:
            return self._cache.get((*self._key, level, column, row), lambda: self._joined(level, column, row, deadline))
        rows, columns = range(box.top, box.top + box.height), range(box.left, box.left + box.width)
        return read_area(self._slide, best, (scale, scale), rows, columns)

    def _joined(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """A tile from the up to four tiles of the next finer level."""
        if time.monotonic() > deadline:
            # Finer tiles made so far are cached: the next request continues from there.
            raise busy("the slide has no overview, and making one takes a while")
        columns, rows = self.zoom.grid(level + 1)
        finer_columns = range(2 * column, min(2 * column + 2, columns))
        finer_rows = range(2 * row, min(2 * row + 2, rows))
        finer = self._mosaic(level + 1, finer_columns, finer_rows, deadline)
        box, (height, width) = self.zoom.tile(level, column, row), finer.shape[:2]
        down, across = (
            box_weights(0, length, 2.0, 0, total, total) for length, total in ((box.height, height), (box.width, width))
        )
        return box_means(finer, down, across)

    def overview(self, side: int, seconds: float) -> Pixels:
        """The whole scanned area, with at most ``side`` pixels on its longer side and more than half as many."""
        level = max(level for level in range(self.zoom.top + 1) if max(self.zoom.size(level)) <= side)
        columns, rows = self.zoom.grid(level)
        return self._mosaic(level, range(columns), range(rows), time.monotonic() + seconds)

    def _mosaic(self, level: int, columns: range, rows: range, deadline: float) -> Pixels:
        tiles = [[self.pixels(level, column, row, deadline) for column in columns] for row in rows]
        return np.concatenate([np.concatenate(line, axis=1) for line in tiles])


def encode_jpeg(pixels: Pixels) -> bytes:
    """Pixels as a JPEG file, with nothing else in it."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=QUALITY)
    return stream.getvalue()


class OpenSlide:
    """A slide and the processes that read it; safe to use from several threads."""

    def __init__(self, path: Path, readers: Readers, *, alone: bool) -> None:
        self._path, self._alone, self._readers = path, alone, readers
        self._idle: list[ReadingProcess] = []
        self._started = 0
        self._changed = threading.Condition()
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
        """A process that has the slide open, for this thread alone."""
        with self._changed:
            while not self._idle and self._started >= PER_SLIDE:
                self._changed.wait()
            process = self._idle.pop() if self._idle else None
            self._started += process is None
        try:
            if process is None:
                process = self._readers.new_process()
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


class Readers(OpenPool[OpenSlide]):
    """Slides by path, each with its reading processes, and one process in reserve."""

    def __init__(self, slides: int, limits: ReadingLimits) -> None:
        super().__init__(slides, OpenSlide.close)
        self._limits = limits
        self._spare: ReadingProcess | None = None
        self._closed = False

    def warm_up(self) -> None:
        """Start a process for the next slide: starting one takes longer than reading."""
        process = ReadingProcess(self._limits) if self._spare is None and not self._closed else None
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare, process = process, None
        if process is not None:
            process.close()

    def new_process(self) -> ReadingProcess:
        """A process that has no slide open."""
        with self._lock:
            spare, self._spare = self._spare, None
        threading.Thread(target=self.warm_up, daemon=True).start()
        return spare if spare is not None and spare.alive else ReadingProcess(self._limits)

    def using(self, path: Path, *, alone: bool = True) -> AbstractContextManager[OpenSlide]:
        """The slide, opened if it was not; where ``alone``, no other file may be read with it."""
        try:
            status = path.stat()
        except OSError as error:
            raise DataError("the slide's file no longer exists", hint="put it back, or delete the slide") from error
        key = (path, status.st_mtime_ns, status.st_size, alone)
        return self.hold(key, lambda: OpenSlide(path, self, alone=alone))

    def forget(self, path: Path) -> None:
        """Close a slide that is about to be deleted, unless somebody is reading it just now."""
        self.close_unused(which=lambda key: key[0] == path)

    def close(self) -> None:
        """End every process."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        self.close_unused()
