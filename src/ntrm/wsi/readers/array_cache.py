"""Arrays that may be wanted again, as many as fit into a stated number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from ntrm.wsi.readers.reader import Pixels


class ArrayCache:
    """The arrays used last; safe to use from several threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Bytes. The array used last stays even if it alone is larger."""
        self._held: OrderedDict[Hashable, Pixels] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Pixels]) -> Pixels:
        """The array of ``key``, made if it is not held. Nobody may write into it."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                return found
        # Without the lock: two threads may make the same array, which costs time and nothing else.
        made = make()
        made.setflags(write=False)
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self._bytes += made.nbytes
            while self._bytes > self.capacity and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].nbytes
        return made

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._bytes

    def clear(self) -> None:
        """Give everything back."""
        with self._lock:
            self._held.clear()
            self._bytes = 0
