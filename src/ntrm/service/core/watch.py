"""Work of threads that must go on, whatever happens in it; ``/healthz`` tells what failed, until it goes well again."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Watch:
    """Does pieces of work by their names, and knows which of them failed the last time."""

    def __init__(self) -> None:
        self.failing: dict[str, str] = {}  # By name: why

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Do it; an error is logged once for as long as it stays the same."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread that has died looks like one that has nothing to do
            if self.failing.get(name) != repr(error):
                _log.exception("%s failed", name)
            self.failing[name] = repr(error)
        else:
            self.failing.pop(name, None)
