"""Progress of long work, with the time left, for people (a bar) and for programs (JSON lines). Always on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ntrm.core.errors import UsageError, choices_error

T = TypeVar("T")
KINDS = ("bar", "json", "none")


class Progress:
    """What long-running functions accept; this one shows nothing."""

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items`` unchanged while showing how far they are."""
        yield from items


class JsonProgress(Progress):
    """One JSON object per line on stderr, at most a few per second, and always a last one."""

    interval_s = 0.25

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items``; report label, done, total, seconds elapsed and left."""
        start = last = time.monotonic()
        done = 0
        for done, item in enumerate(items, start=1):
            yield item
            now = time.monotonic()
            if now - last >= self.interval_s and done < total:
                self._report(label, done, total, now - start)
                last = now
        self._report(label, done, total, time.monotonic() - start)

    @staticmethod
    def _report(label: str, done: int, total: int, elapsed: float) -> None:
        left = round(elapsed / done * (total - done), 2) if done else None
        event = {"event": "progress", "label": label, "done": done, "total": total, "seconds": round(elapsed, 2)}
        sys.stderr.write(json.dumps(event | {"seconds_left": left}) + "\n")
        sys.stderr.flush()


class BarProgress(Progress):
    """Bars with count and time left; a bar within another one stands below it while it lasts."""

    def __init__(self) -> None:
        self._bars: Any = None  # What is shown now, by rich

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items`` under a bar."""
        if self._bars is not None:
            bars = self._bars
            task = bars.add_task(label, total=total)
            yield from bars.track(items, total=total, task_id=task)
            bars.remove_task(task)
            return
        from rich import progress as rich
        from rich.console import Console

        columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()]
        columns += [rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn()]
        # In a notebook rich would want widgets; one line that is written again and again needs none.
        notebook: dict[str, Any] = {"force_jupyter": False, "force_terminal": True} if _in_notebook() else {}
        try:
            with rich.Progress(*columns, console=Console(stderr=True, **notebook)) as self._bars:
                yield from self._bars.track(items, total=total, description=label)
        finally:
            self._bars = None


SILENT = Progress()


def make_progress(kind: str) -> Progress:
    """Progress by name: ``bar``, ``json`` or ``none``. A bar needs a terminal or a notebook; elsewhere it is silent."""
    if kind not in KINDS:
        raise choices_error("unknown kind of progress", kind, KINDS)
    if kind == "json":
        return JsonProgress()
    return BarProgress() if kind == "bar" and (sys.stderr.isatty() or _in_notebook()) else SILENT


def as_progress(progress: Progress | bool) -> Progress:
    """What a caller from Python asked for: True is a bar where somebody may see it, False is silence."""
    if isinstance(progress, bool):
        return make_progress("bar" if progress else "none")
    if not hasattr(progress, "track"):
        raise UsageError("unknown kind of progress", got=repr(progress), expected="True, False or an object with track")
    return progress


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
