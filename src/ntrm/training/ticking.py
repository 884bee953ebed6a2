"""Progress for work whose loop belongs to somebody else: every tick is one item done."""

from __future__ import annotations

from collections.abc import Iterator

from ntrm.core.progress import Progress


class Ticker:
    """Drives ``Progress.track`` from outside.

    >>> from ntrm.core.progress import SILENT
    >>> ticker = Ticker(SILENT, total=2, label="steps")
    >>> ticker.tick(); ticker.close()
    """

    def __init__(self, progress: Progress, total: int, label: str) -> None:
        self._track = progress.track(_items(total), total=total, label=label)
        next(self._track, None)

    def tick(self) -> None:
        """One more item is done."""
        next(self._track, None)

    def close(self) -> None:
        """No more items come, whether or not all were done."""
        close = getattr(self._track, "close", None)  # a generator has it, another iterator need not
        if close is not None:
            close()


def _items(total: int) -> Iterator[None]:
    for _ in range(total):
        yield None
