"""Reading processes started ahead: a child takes longer to start than to open a slide."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ntrm.wsi.isolated import IsolatedReader, Limits, ReadingProcess


class ReaderPool:
    """Opens slides as ``open_isolated`` does, each in a child of its own; the next child is already there.

    Args:
        slides: how many will be opened at most; no child is started ahead for more.
        limits: what one slide may cost.

    ``waiting`` is the child that was started ahead, if there is one.
    """

    def __init__(self, slides: int, limits: Limits | None = None) -> None:
        self._left = slides
        self._limits = limits
        self.waiting: ReadingProcess | None = None
        self._prepare()

    def open(self, path: Path, *, alone: bool = False) -> IsolatedReader:
        """Open a slide, and start the child of the next one."""
        ready, self.waiting = self.waiting, None
        self._left -= 1
        # One that was killed while it waited is no fault of the slide.
        reader = IsolatedReader(path, self._limits, ready if ready is not None and ready.alive else None, alone=alone)
        self._prepare()
        return reader

    def close(self) -> None:
        """End the child that waits; twice does no harm."""
        if self.waiting is not None:
            self.waiting.close()
        self.waiting, self._left = None, 0

    def _prepare(self) -> None:
        if self._left > 0 and self.waiting is None:
            # Where none can be started now, the slide that needs one will tell.
            with suppress(OSError):
                self.waiting = ReadingProcess(self._limits)
