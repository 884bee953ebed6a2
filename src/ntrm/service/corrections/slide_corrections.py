"""What is known of a slide's corrections: its mask, the log as it is now, what it comes to, the region graph.

The log is the only truth, and others write it, too: it is read again whenever its file has changed. Reading costs
little, since steps that are known are not replayed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from ntrm.analysis.regions import Regions
from ntrm.core.arrays import Ints
from ntrm.core.errors import NtrmError
from ntrm.core.labels import Mask
from ntrm.correction.engine.graph import RegionGraph, is_kept
from ntrm.correction.engine.prepare import origin_of, region_graph_in
from ntrm.correction.log import Log, Place, read_log
from ntrm.correction.mask import SlideMask, open_mask, read_mask_log
from ntrm.correction.results import correction_in
from ntrm.correction.state import Corrections, corrections_of
from ntrm.correction.units import Units
from ntrm.results.paths import CORRECTED, CORRECTIONS, HIDDEN, REGION_GRAPH, REGIONS, SUMMARY, table_file
from ntrm.results.tables import FOOT, is_own_column, read_table
from ntrm.service.corrections.open_pool import OpenPool
from ntrm.service.tiles.region_finder import RegionFinder

OPEN_MASKS = 16
OPEN_GRAPHS = 4
"""One of 100,000 parts takes some 100 MB, most take a tenth of that."""
KNOWN = 64
"""Corrections that are kept, of all slides: those after earlier steps, too, so that an undo replays nothing."""
COUNTED = 10_000
"""Slides whose number of corrections is kept."""

MOST_TABLE = 2**28
"""Bytes of the table of a slide's regions."""

Key = tuple[Hashable, ...]
Stamp = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """Changes whenever a file does; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class KnownCorrections:
    """What steps of logs come to: the ``KNOWN`` kept last; safe to use from several threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[Key, tuple[int, ...]], Corrections] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: Key, corrections: Corrections) -> None:
        """Keep those of a slide; of too many, the oldest are dropped."""
        place = key, tuple(step.number for step in corrections.steps)
        with self._lock:
            self._held[place] = corrections
            self._held.move_to_end(place)
            while len(self._held) > KNOWN:
                self._held.popitem(last=False)

    def of(self, key: Key) -> list[Corrections]:
        """Those of a slide."""
        with self._lock:
            return [corrections for (known, _), corrections in self._held.items() if known == key]

    def forget(self, slide: str) -> None:
        """Drop those of a slide."""
        with self._lock:
            for place in [place for place in self._held if place[0][0] == slide]:
                del self._held[place]


class OpenedMask:
    """A slide's mask, and its regions, which are found when asked for."""

    def __init__(self, mask: SlideMask) -> None:
        self.mask = mask

    @cached_property
    def regions(self) -> Regions:
        """Connected regions of the network's mask, glass included."""
        return self.mask.regions()


@dataclass(frozen=True, eq=False)
class SlideCorrections:
    """A slide's corrections at one moment."""

    opened: OpenedMask
    log: Log
    now: Corrections
    graph: RegionGraph | None
    """None where it was not made, or where nobody asked for it."""

    @property
    def mask(self) -> SlideMask:
        """The network's mask."""
        return self.opened.mask

    @property
    def scale(self) -> tuple[float, float]:
        """Pixels of the full resolution along a pixel of the mask, as x and y."""
        sx, sy = self.mask.summary.grid.to_level0[:2]
        return sx, sy

    @property
    def pixel_mm2(self) -> float:
        """Area of a pixel of the mask."""
        return self.mask.resolution.pixel_area_um2 / 1e6

    def place(self, point: tuple[float, float]) -> Place:
        """The pixel of the mask under a point of the full resolution."""
        (x, y), (sx, sy) = point, self.scale
        return int(y // sy), int(x // sx)

    def flat(self, place: Place) -> Ints:
        """(1,) its flattened index."""
        return np.array([place[0] * self.mask.shape[1] + place[1]])

    def point(self, place: Place) -> tuple[float, float]:
        """The middle of a pixel of the mask."""
        (row, column), (sx, sy) = place, self.scale
        return (column + 0.5) * sx, (row + 0.5) * sy

    def units(self, *, whole_regions: bool) -> Units | None:
        """Regions, or the parts; None where these are not known."""
        if self.graph is not None:
            return self.graph.regions if whole_regions else self.graph.parts
        return Units.in_mask(self.opened.regions) if whole_regions else None

    def labels(self) -> Mask:
        """(H, W) classes as they are now."""
        return self.now.paint(self.mask.labels())

    def names_at(self, first: Ints, network: Ints) -> Ints:
        """(n,) classes now at flattened pixels, of which the network said ``network``."""
        names = network.copy()
        for index, pixels in self.now.tissue.items():
            names[pixels.holds(first)] = index
        return names


class CorrectionStore:
    """Masks, logs and region graphs of the slides that people correct; safe to use from several threads.

    The first part of a ``key`` is the slide's id; the rest changes with its results.
    """

    def __init__(self) -> None:
        self._masks: OpenPool[OpenedMask] = OpenPool(OPEN_MASKS)
        self._graphs: OpenPool[RegionGraph | None] = OpenPool(OPEN_GRAPHS)
        self._logs: OpenPool[tuple[Log, Corrections]] = OpenPool(OPEN_MASKS)
        self._regions: OpenPool[RegionFinder | None] = OpenPool(OPEN_MASKS)
        self._known = KnownCorrections()
        self._damaged: set[Key] = set()
        """Region graphs that could not be read, although their first lines say what they were made of."""

    def of(self, key: Key, folder: Path, *, graph: bool = False) -> SlideCorrections:
        """The corrections of a slide now; on request with its region graph."""
        opened = self._opened(key, folder)
        stamp = stamp_of(folder / CORRECTIONS)
        with self._logs.hold((*key, stamp), lambda: self._read(key, opened.mask)) as (log, now):
            return SlideCorrections(opened, log, now, self._graph(key, opened.mask) if graph else None)

    def at_version(self, key: Key, folder: Path, version: int | None) -> tuple[int, Corrections]:
        """The corrections after a step of the log, or after the last one, and its number."""
        current = self.of(key, folder)
        if version is None or version >= current.log.version:
            return current.log.version, current.now
        mask = current.mask
        then = corrections_of(current.log.at(version), mask.schema, mask.shape, self._known.of(key))
        self._known.keep(key, then)
        return version, then

    def regions(self, key: Key, folder: Path, version: int) -> RegionFinder | None:
        """The regions of the corrected mask of this version; None where its files are of another, or not there."""
        steps = self.of(key, folder).log.at(version).fingerprint
        stamped = (*key, steps, stamp_of(folder / CORRECTED / SUMMARY))
        with self._regions.hold(stamped, lambda: _read_regions(folder, steps)) as regions:
            return regions

    def has_graph(self, key: Key, folder: Path) -> bool:
        """Whether the region graph is there; it is read when it is needed."""
        path = folder / HIDDEN / REGION_GRAPH
        return (*key, stamp_of(path)) not in self._damaged and is_kept(path, origin_of(self._opened(key, folder).mask))

    def count(self, folder: Path) -> int | None:
        """Corrections of a slide that were not undone; None where the log cannot be read."""
        stamp = stamp_of(folder / CORRECTIONS)
        return 0 if stamp is None else _count(folder, stamp)

    def close_unused(self, idle_seconds: float) -> None:
        """Drop what nobody has asked for in a while."""
        for pool in (self._masks, self._graphs, self._logs, self._regions):
            pool.close_unused(idle_seconds=idle_seconds)

    def forget(self, slide: str) -> None:
        """Drop what is kept of a slide."""
        for pool in (self._masks, self._graphs, self._logs, self._regions):
            pool.close_unused(which=lambda key: key[0] == slide)
        self._known.forget(slide)

    def _opened(self, key: Key, folder: Path) -> OpenedMask:
        with self._masks.hold(key, lambda: OpenedMask(open_mask(folder))) as opened:
            return opened

    def _graph(self, key: Key, mask: SlideMask) -> RegionGraph | None:
        stamped = (*key, stamp_of(mask.folder / HIDDEN / REGION_GRAPH))
        if stamped[-1] is None:
            return None
        with self._graphs.hold(stamped, lambda: region_graph_in(mask)) as graph:
            if graph is None:
                self._damaged.add(stamped)
            return graph

    def _read(self, key: Key, mask: SlideMask) -> tuple[Log, Corrections]:
        log = read_mask_log(mask)
        now = corrections_of(log, mask.schema, mask.shape, self._known.of(key))
        self._known.keep(key, now)
        return log, now


@lru_cache(COUNTED)
def _count(folder: Path, _changed: Stamp) -> int | None:
    """The log is read again when it has changed."""
    try:
        return len(read_log(folder).active)
    except NtrmError:
        return None


def _read_regions(folder: Path, steps: str) -> RegionFinder | None:
    made = correction_in(folder)
    if made is None or made.log != steps:
        return None
    table = read_table(folder / CORRECTED / table_file("regions"), most=MOST_TABLE)
    rows = [{name: cell for name, cell in row.items() if is_own_column(name) and name not in FOOT} for row in table]
    return RegionFinder(rows, folder / CORRECTED / REGIONS)
