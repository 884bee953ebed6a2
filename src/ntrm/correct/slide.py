"""``SlideCorrections``: all that is known of a slide's corrections, for the service, the command and the tour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ntrm.core.arrays import Floats
from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE
from ntrm.correct.ask import Ask, Draw, Name
from ntrm.correct.classifier import Classifier
from ntrm.correct.drawing import area, split_by_line, stroke
from ntrm.correct.engine import ENGINE, Engine, Proposal, Suggestion
from ntrm.correct.log import Log, Place, Stamp, Step, append, read_log, stamp_of
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet, union
from ntrm.correct.results import is_current, write_corrected
from ntrm.correct.state import State, state_of
from ntrm.correct.units import Units
from ntrm.results.mask_file import colours_in, opened_mask
from ntrm.results.paths import CORRECTED, CORRECTIONS

RADIUS = 3  # Of what a click names, in pixels of the mask
DEFAULT = "texture"  # What logs call this way to carry names on
KEPT_STATES = 16  # Of each slide, those after earlier steps too, so that an undo replays nothing


class Part(NamedTuple):
    """What a click at a point would name."""

    tissue: int  # What it is called now
    network: int
    by_hand: bool
    pixels: PixelSet
    place: Place


class SlideCorrections:
    """A slide's corrections: its mask, its log as it is now, what it comes to, and what an engine proposes.

    The log is the only truth, and others write it, too: it is read again whenever its file has changed. Several threads
    may use it: whatever is kept is replaced whole.
    """

    def __init__(self, folder: Path, engine: Engine = ENGINE) -> None:
        self.mask, self.engine = open_mask(folder), engine
        self._read: tuple[Stamp, Log] | None = None
        self._states: list[State] = []

    @property
    def log(self) -> Log:
        """The steps so far."""
        stamp, read = stamp_of(self.mask.folder / CORRECTIONS), self._read
        if read is None or read[0] != stamp:
            self._read = read = (stamp, read_log(self.mask.folder).check(self.mask.record))
        return read[1]

    def state(self, version: int | None = None) -> State:
        """What the steps come to: all, or those up to a version."""
        state = state_of(self.log.at(version), self.mask.schema, self.mask.shape, self._states)
        self._states = [*(each for each in self._states if each.steps != state.steps), state][-KEPT_STATES:]
        return state

    @property
    def is_ready(self) -> bool:
        """Whether its texture has been read, so that names can be carried on."""
        return self.engine.is_ready(self.mask)

    @property
    def is_written(self) -> bool:
        """Whether ``corrected/`` is made from the log as it is now, and in the present colours."""
        folder, schema, current = self.mask.folder, self.mask.schema, is_current(self.mask.folder, self.log)
        if not current or schema.unnamed is None or not self.log.active:
            return current
        with opened_mask(folder / CORRECTED) as stored:
            return colours_in(stored)[: len(schema)] == [tissue.rgb for tissue in schema.tissues]

    @property
    def scale(self) -> tuple[float, float]:
        """Pixels of the full resolution along a pixel of the mask, as x and y."""
        return self.mask.summary.grid.to_level0[:2]

    @property
    def pixel_mm2(self) -> float:
        """Area of a pixel of the mask."""
        return self.mask.resolution.pixel_area_um2 / 1e6

    def place(self, point: tuple[float, float]) -> Place:
        """The pixel of the mask under a point of the full resolution."""
        (x, y), (sx, sy) = point, self.scale
        return int(y // sy), int(x // sx)

    def point(self, place: Place) -> tuple[float, float]:
        """The middle of a pixel of the mask."""
        (row, column), (sx, sy) = place, self.scale
        return (column + 0.5) * sx, (row + 0.5) * sy

    def part(self, point: tuple[float, float], *, whole_region: bool) -> Part:
        """What a click would name: the pixels around a point, or the network's region."""
        place, state = self.place(point), self.state()
        units, at = self.units, np.array([place[0] * self.mask.shape[1] + place[1]])
        unit = units.at(place)
        now, by_hand = state.names_at(at, units.tissue[[unit]])[0], bool(state.by_hand.holds(at)[0])
        pixels = units.pixels(np.array([unit])) if whole_region else self.around([place])
        return Part(int(now), int(units.tissue[unit]), by_hand, pixels, units.place(unit) if whole_region else place)

    @property
    def units(self) -> Units:
        """The regions of the network's mask."""
        return Units.in_mask(self.mask.regions)

    def around(self, places: Sequence[Place]) -> PixelSet:
        """What clicks name: discs, as far as something is known there, and without glass unless that was clicked on."""
        height, width = self.mask.shape
        side = np.arange(-RADIUS, RADIUS + 1)
        rows, columns = (each.ravel() for each in np.meshgrid(side, side, indexing="ij"))
        near = rows**2 + columns**2 <= RADIUS**2
        every = np.array(places, dtype=np.int64).reshape(-1, 1, 2) + np.stack([rows, columns], axis=1)[near]
        row, column = every.transpose(2, 0, 1)  # (places, pixels of a disc) each
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        at, runs = np.where(inside, row * width + column, 0), self.mask.regions.runs
        called = runs.value[runs.at(at.ravel())].reshape(at.shape)
        on_glass = np.array(self.network_at(places)).reshape(-1, 1) == self.background
        named = inside & (called != IGNORE) & (on_glass | (called != self.background))
        return union(PixelSet(pixel, pixel + 1) for pixel in at[named][:, None])

    def area_by_tissue(self, pixels: PixelSet) -> dict[int, float]:
        """mm² of pixels by the class that they have now, the largest first."""
        changed = {tissue: pixels & called for tissue, called in self.state().tissue.items()}
        rest = self.units.pixels_of(pixels - union(changed.values()))
        count = np.bincount(self.units.tissue, rest, len(self.mask.schema))
        for tissue, moved in changed.items():
            count[tissue] += moved.pixels
        order = np.argsort(-count, kind="stable")
        return {int(tissue): float(count[tissue]) * self.pixel_mm2 for tissue in order if count[tissue]}

    def click(self, ask: Name) -> tuple[Step, PixelSet]:
        """What a person says, and the pixels that it is about: discs around points, what a lasso holds, or regions."""
        self.mask.schema.check_nameable(ask.tissue)
        units, places = self.units, [self.place(point) for point in ask.points]
        if ask.whole_regions:
            chosen = np.unique([units.at(place) for place in places])
            if ask.lasso is not None:
                drawn = area(self._in_mask(ask.lasso), self.mask.shape)
                chosen = units.inside(drawn, self.state().names_at(units.first, units.tissue) == self.background)
                places = [units.place(unit) for unit in chosen.tolist()]
            named = units.pixels(chosen)
        elif ask.lasso is None:
            places = [place for place in dict.fromkeys(places) if units.at(place) >= 0]
            named = self.around(places)
        else:
            named = self._inside(area(self._in_mask(ask.lasso), self.mask.shape))
            places = [(int(at) // self.mask.shape[1], int(at) % self.mask.shape[1]) for at in named.start[:1]]
        if not named:
            raise UsageError("nothing is chosen", expected="at least one place", hint="choose a region first")
        step = Step(
            action="name",
            tissue=ask.tissue,
            places=tuple(places),
            whole_regions=ask.whole_regions,
            left_out=tuple(self.place(point) for point in ask.left_out),
            spread=DEFAULT if ask.spread else None,
            reach=ask.reach if ask.spread else None,
        )
        return step, named

    @property
    def background(self) -> int:
        """Index of the class of glass; -1 where there is none."""
        index = self.mask.schema.background_index
        return -1 if index is None else index

    def _inside(self, drawn: PixelSet) -> PixelSet:
        """The tissue in a lasso, or the glass where it holds nothing else: who draws around tissue means the tissue."""
        runs = self.mask.regions.runs
        glass = (PixelSet.of_runs(runs, runs.value == self.background) - union(self.state().tissue.values())) | (
            self.state().tissue.get(self.background, PixelSet.empty())
        )
        drawn = drawn - PixelSet.of_runs(runs, runs.value == IGNORE)
        return drawn - glass or drawn

    def propose(self, ask: Name) -> Proposal:
        """What a click would change; needs a prepared engine unless the name is not carried on."""
        self.log.check(self.mask.record, ask.version)
        step, named = self.click(ask)
        if not ask.spread:
            return Proposal(step, named)
        return self.engine.propose(self.mask, self.state(ask.version), step, named, revise=ask.revise)

    def suggestions(self) -> list[Suggestion]:
        """Where to look next."""
        return self.engine.order(self.mask, self.state())

    def network_at(self, places: Sequence[Place]) -> list[int]:
        """What the network called these places."""
        at = np.array([row * self.mask.shape[1] + column for row, column in places], dtype=np.int64)
        runs = self.mask.regions.runs
        return [int(each) for each in runs.value[runs.at(at)]]

    def apply(self, classifier: Classifier, reach: float = 1.0) -> Proposal:
        """What a classifier that was learned elsewhere would change here, in the words of this slide's classes."""
        step = Step(action="name", tissue=classifier.about.named[0], spread=DEFAULT, reach=reach)
        state = self.state()
        return self.engine.propose(self.mask, state, step, PixelSet.empty(), classifier=classifier)

    def take(self, ask: Ask, *, origin: str) -> Step:
        """Do what a person asks for; the step is on the disk when this returns.

        A step whose key is known was taken before: it is that one that is returned.
        """
        if (known := self.log.with_key(ask.key)) is not None:
            return known
        if isinstance(ask, Name):
            step = self.propose(ask).step(self.mask.schema, self.pixel_mm2)
        elif isinstance(ask, Draw):
            step = self.drawn(self._drawing(ask), ask.tissue)
        else:
            step = Step(action=ask.action)
        return self.record(replace(step, origin=origin, by=ask.by, key=ask.key), after=ask.version)

    def record(self, step: Step, *, after: int | None = None, preview: bool = False) -> Step:
        """Write a step down; ``ConflictError`` where others were faster than who saw version ``after``."""
        if preview:
            log = self.log.with_step(self.mask.record, step)
            self._read = (stamp_of(self.mask.folder / CORRECTIONS), log)
        else:
            log = append(self.mask.folder, self.mask.record, step, after=after)
        return log.with_key(step.key) or log.steps[-1]

    def drawn(self, pixels: PixelSet, tissue: str) -> Step:
        """Names pixels that a person has drawn."""
        self.mask.schema.check_nameable(tissue)
        return Step(action="draw", tissue=tissue, named=pixels.text, area_mm2=pixels.pixels * self.pixel_mm2)

    def write(self) -> None:
        """Make ``corrected/`` from the log, whole or not at all."""
        write_corrected(self.mask)

    def _drawing(self, ask: Draw) -> PixelSet:
        points, mask = self._in_mask(ask.points), self.mask
        if ask.kind == "brush":
            named = stroke(points, ask.width_um, mask.shape, mask.resolution)
        elif ask.kind == "area":
            named = area(points, mask.shape)
        elif ask.side is None:
            raise UsageError("the side of the line that gets the name is missing", expected="side: [x, y]")
        else:
            named = split_by_line(self.state().paint(mask.labels()), points, self.place(ask.side), mask.resolution)
        if not named:
            raise UsageError("nothing of the drawing lies on the section", hint="draw on the section")
        return named

    def _in_mask(self, points: Sequence[tuple[float, float]]) -> Floats:
        """(n, 2) in pixels of the mask."""
        return np.asarray(np.array(points, dtype=np.float64).reshape(-1, 2) / np.array(self.scale))
