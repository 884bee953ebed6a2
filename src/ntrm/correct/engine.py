"""What follows from a click: the texture around the pixels that a person named, found again elsewhere in the slide.

A slide's texture is read once, from the slide alone, and kept with the results; the network is not needed again, since
its mask and its confidences are there. Steps that count are examples. What follows from a new click are the pixels to
which the classifier, with it, gives another name than they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import BoolMask
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import holding
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.pixels import block_means
from ntrm.core.progress import SILENT, Progress
from ntrm.correct.classifier import Classifier
from ntrm.correct.learning import Asked, Seen, called, examples_of, learn, ranking
from ntrm.correct.log import Place, Stamp, Step, stamp_of
from ntrm.correct.mask import SlideMask
from ntrm.correct.pixels import PixelSet, union
from ntrm.correct.state import State
from ntrm.correct.texture import Texture, read_texture
from ntrm.regions.runs import RunLengths, components, runs_of
from ntrm.results.familiarity import FAMILIAR
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import HIDDEN, TEXTURE, TEXTURE_LOCK
from ntrm.slides.inputs import SlideInput, source_fingerprint

OPEN_SLIDES = 2  # Whose texture is held: up to 400 MB each
LEAST_PIXELS = 9  # Of a connected piece that follows: specks are noise
NONE, CLICKED, ALL = REVISE = ("none", "clicked", "all")
"""What a click may change of what was accepted: nothing, the followers among which it lies, or all followers."""
BLOCK = 32  # Side of the places that are suggested, in pixels of the mask


class NotReadyError(RefusedError):
    """The texture of the slide has not been read yet."""


class Piece(NamedTuple):
    """Connected pixels that follow."""

    place: Place  # Its first pixel
    tissue: int
    pixels: int
    why: str


@dataclass(frozen=True, eq=False)
class Proposal:
    """What would change if a person accepts."""

    click: Step  # What the person said, without what comes of it
    named: PixelSet
    followed: dict[int, PixelSet] = field(default_factory=dict)
    """By class: pixels that get it; none of them was named by hand or drawn before."""
    pieces: tuple[Piece, ...] = ()  # That follow, the largest first
    touched: dict[int, int] = field(default_factory=dict)
    """Pixels of what was accepted in earlier steps that would change, by the number of the step."""

    @property
    def regions(self) -> int:
        """Places that were named, and pieces that follow."""
        return len(self.click.places) + len(self.pieces)

    @property
    def pixels(self) -> int:
        """All that change."""
        return self.named.pixels + sum(each.pixels for each in self.followed.values())

    def step(self, schema: LabelSchema, pixel_mm2: float) -> Step:
        """The click with its pixels, for the log."""
        followed = {schema.names[index]: pixels.text for index, pixels in sorted(self.followed.items())}
        area_mm2 = self.pixels * pixel_mm2
        return replace(self.click, named=self.named.text, followed=followed, regions=self.regions, area_mm2=area_mm2)


class Suggestion(NamedTuple):
    """A place to look at."""

    place: Place
    tissue: int  # What it is called now
    pixels: int
    why: str = ""


def propose(
    seen: Seen,
    state: State,
    click: Step,
    named: PixelSet,
    *,
    revise: str = CLICKED,
    classifier: Classifier | None = None,
) -> Proposal:
    """What follows in a slide from a click that names these pixels, or without one from a ``classifier`` of others."""
    width = seen.texture.shape[1]
    if classifier is not None and classifier.about.classes != seen.schema.names:
        classes = ", ".join(seen.schema.names)
        raise RefusedError("the clicks know other tissues", got=", ".join(classifier.about.classes), expected=classes)
    asked = seen.schema.index(click.tissue or "")
    after = state if classifier else state.with_step(replace(click, named=named.text))
    classifier = classifier or learn([(seen, after)])
    if seen.sure is None and len(classifier.about.named) < 2:
        return Proposal(click, named)  # Everything is of one name until there is a second
    now = after.paint(seen.labels)
    new = called(seen, now, classifier, Asked(asked, click.reach or 1.0, len(after.steps)))
    kept = union([after.by_hand, state.followed - _revised(state, click.places, revise, width)])
    changed = (new != now) & (now != IGNORE) & seen.texture.is_known() & ~kept.rows(0, *now.shape)
    if seen.sure is None and not _glass_is_named(seen, after):
        changed &= seen.labels != seen.schema.background_index
    runs = runs_of(np.where(changed, new, np.uint8(IGNORE)))
    number, count = components(runs, runs.value != IGNORE)
    own = number >= 0
    pixels = np.bincount(number[own], runs.length[own], count)
    out = number[runs.at(np.array([row * width + column for row, column in click.left_out], dtype=np.int64))]
    stays = pixels >= LEAST_PIXELS
    if seen.trusted:  # What the network has right must not get lost far from the click
        near = np.repeat(number, runs.length).reshape(now.shape)[_beside(named.rows(0, *now.shape))]
        stays &= np.isin(np.arange(count), near)
    stays[out[out >= 0]] = False
    follows = own & np.append(stays, False)[number]
    followed = {int(k): PixelSet.of_runs(runs, follows & (runs.value == k)) for k in np.unique(runs.value[follows])}
    pieces = _pieces(seen, after, runs, np.where(follows, number, -1))
    return Proposal(click, named, followed, pieces, _touched(state, union(followed.values())))


def _revised(state: State, places: Sequence[Place], revise: str, width: int) -> PixelSet:
    """Followers of earlier steps that may change: all, or those of the steps among whose followers a click lies."""
    if revise != CLICKED:
        return state.followed if revise == ALL else PixelSet.empty()
    pixels = np.array([row * width + column for row, column in places], dtype=np.int64)
    return union(own for _, own in _accepted(state) if own.holds(pixels).any())


def _accepted(state: State) -> Iterator[tuple[int, PixelSet]]:
    """Of each step, the latest first, its number and what followed and was not changed since."""
    later = PixelSet.empty()
    for step, (named, followed) in zip(reversed(state.steps), reversed(state.changes), strict=True):
        yield step.number, followed - later
        later = union([later, named, followed])


def _touched(state: State, changed: PixelSet) -> dict[int, int]:
    if not changed & state.followed:
        return {}
    return {number: both.pixels for number, own in _accepted(state) if (both := own & changed)}


def _glass_is_named(seen: Seen, state: State) -> bool:
    """Whether a person found tissue where the program saw glass."""
    glass = seen.schema.background_index
    tissue = union(pixels & state.by_hand for index, pixels in state.tissue.items() if index != glass)
    return bool((seen.labels[tissue.rows(0, *seen.labels.shape)] == glass).any())


def _pieces(seen: Seen, state: State, runs: RunLengths, number: NDArray[np.integer[Any]]) -> tuple[Piece, ...]:
    """What follows, piece by piece, the largest first, and why."""
    own = np.flatnonzero(number >= 0)
    every, first, of = np.unique(number[own], return_index=True, return_inverse=True)
    pixels = np.bincount(of, runs.length[own], len(every)).astype(np.int64)
    tissue, touching, shape = runs.value[own[first]], set[int](), seen.labels.shape
    places = RunLengths(shape, runs.start, number).dense()
    for index in np.unique(tissue).tolist():
        hand = (state.by_hand & state.tissue.get(index, PixelSet.empty())).rows(0, *shape)
        beside = places[_beside(hand)]
        touching |= set(beside[beside >= 0].tolist())
    titles, pieces = [each.title or each.name for each in seen.schema.tissues], []
    for at in np.argsort(-pixels, kind="stable").tolist():
        name, place = int(tissue[at]), divmod(int(runs.start[own[first[at]]]), shape[1])
        why = f"looks like what you named {titles[name]}" + (", and touches it" if int(every[at]) in touching else "")
        pieces.append(Piece((place[0], place[1]), name, int(pixels[at]), why))
    return tuple(pieces)


def _beside(inside: BoolMask) -> BoolMask:
    """(H, W) these pixels and their neighbours."""
    found = inside.copy()
    found[1:] |= inside[:-1]
    found[:-1] |= inside[1:]
    found[:, 1:] |= inside[:, :-1]
    found[:, :-1] |= inside[:, 1:]
    return found


def suggestions(seen: Seen, state: State) -> list[Suggestion]:
    """Blocks of a slide by doubt times novelty: how close two names are there, and how unlike what was named it is."""
    classifier = learn([(seen, state)])
    ranked = ranking(seen, classifier, seen.schema.index(classifier.about.named[0]), len(state.steps))
    step = seen.texture.step
    known = seen.texture.is_known()[::step, ::step] & ~state.by_hand.rows(0, *seen.labels.shape)[::step, ::step]
    examples = examples_of(seen, state).numbers @ seen.texture.basis.T
    side = max(1, BLOCK // step)
    doubt = block_means(np.where(known, 1 / (1 + np.exp(np.minimum(ranked.lead, 50.0))), 0.0), (side, side))
    looks = block_means(seen.texture.values, (side, side)).astype(np.float64)
    square = (looks**2).sum(axis=2)[..., None] + (examples**2).sum(axis=1) - 2 * looks @ examples.T
    novelty = np.sqrt(np.maximum(square.min(axis=2), 0.0))
    worth = doubt * novelty
    usual, found, now = np.median(novelty[doubt > 0]) if (doubt > 0).any() else 0.0, [], state.paint(seen.labels)
    for at in np.argsort(-worth, axis=None, kind="stable")[: int((worth > 0).sum())].tolist():
        row, column = divmod(at, worth.shape[1])
        y, x = (min(int((k + 0.5) * BLOCK), most - 1) for k, most in zip((row, column), now.shape, strict=True))
        unlike = novelty[row, column] > usual
        why = "unlike everything named so far" if unlike else "between two tissues"
        found.append(Suggestion((y, x), int(now[y, x]), BLOCK * BLOCK, why))
    return found


def likely_errors(mask: SlideMask) -> list[Suggestion]:
    """Regions of the network's mask, by area times the square of its doubt, where nobody has clicked yet."""
    regions, sure = mask.network_regions
    pixels = regions.table.pixels
    worth = pixels * (1 - np.nan_to_num(sure[: len(pixels)])) ** 2 if mask.summary.model is not None else pixels
    order = np.argsort(-worth, kind="stable").tolist()
    first, tissue = regions.table.first, regions.table.tissue
    places = [divmod(int(at), mask.shape[1]) for at in first.tolist()]
    return [Suggestion(places[at], int(tissue[at]), int(pixels[at])) for at in order]


class Engine:
    """Carries names on by texture, which is read once for each slide."""

    def is_ready(self, mask: SlideMask) -> bool:
        """Whether a slide's texture is there, so that names can be carried on."""
        return seen_in(mask) is not None

    def prepare(self, mask: SlideMask, slide: SlideInput, device: str = "cpu", progress: Progress = SILENT) -> None:
        """Read the texture of a slide, unless it is there; ``slide`` is the file of the results, another is refused.

        Where another process reads it already, this waits for it.
        """
        from ntrm.slides.isolated import open_isolated

        own, source = source_fingerprint(slide.path), mask.segmented[1].source
        if own is None or own != source:
            raise RefusedError(
                f"{mask.folder.name} was made from another file",
                got="a slide that cannot be read" if own is None else f"a slide with other content ({own[:12]})",
                expected=f"the slide that was segmented ({str(source)[:12]})",
                hint="give the slide as it was when it was segmented",
            )
        SlideFolder(mask.folder).check()
        with holding(mask.folder / HIDDEN / TEXTURE_LOCK, wait=True):
            if self.is_ready(mask):
                return
            with closing(open_isolated(slide.path, alone=slide.alone)) as reader:
                grid = mask.grid(reader, slide.mpp)
                texture = read_texture(grid, mask.labels(), mask.schema.background_index, device, progress)
            texture.save(mask.folder / HIDDEN / TEXTURE, mask.record.mask)

    def learn(self, slides: Sequence[tuple[SlideMask, State]]) -> Classifier:
        """From the clicks on some slides."""
        return learn([(self.seen(mask), state) for mask, state in slides])

    def propose(
        self,
        mask: SlideMask,
        state: State,
        click: Step,
        named: PixelSet,
        *,
        revise: str | None = None,
        classifier: Classifier | None = None,
    ) -> Proposal:
        """What a click would change; by default all that followed may, where there is no network."""
        revise = revise or (ALL if mask.summary.model is None else CLICKED)
        return propose(self.seen(mask), state, click, named, revise=revise, classifier=classifier)

    def order(self, mask: SlideMask, state: State) -> list[Suggestion]:
        """Where to look next: where the network is in doubt, or without one the clicks so far.

        With a network, simulated persons who followed the clicks' doubt came to worse masks.
        """
        seen = seen_in(mask) if mask.summary.model is None and state.steps else None
        return likely_errors(mask) if seen is None else suggestions(seen, state)

    def seen(self, mask: SlideMask) -> Seen:
        """The slide with its texture; ``NotReadyError`` where that is not there."""
        seen = seen_in(mask)
        if seen is None:
            hint = "have it read first, or name whole regions without carrying the name on"
            raise NotReadyError("the texture of this slide has not been read yet", hint=hint)
        return seen


ENGINE = Engine()


def seen_in(mask: SlideMask) -> Seen | None:
    """The slide with the texture that was kept; None where there is none of this mask and version, or a damaged one."""
    return _read(mask, stamp_of(mask.folder / HIDDEN / TEXTURE))


@lru_cache(OPEN_SLIDES)
def _read(mask: SlideMask, stamp: Stamp) -> Seen | None:
    try:
        texture = None if stamp is None else Texture.read(mask.folder / HIDDEN / TEXTURE, mask.record.mask)
    except DataError:
        return None
    if texture is None or texture.shape != mask.shape:
        return None
    sure, familiar = None, mask.summary.familiarity.verdict == FAMILIAR
    if mask.summary.model is not None:
        regions, confidence = mask.network_regions
        sure = RunLengths(
            mask.shape, regions.runs.start, np.nan_to_num(confidence[regions.region]).astype(np.float32)
        ).dense()
    return Seen(mask.schema, mask.labels(), texture, sure, familiar)
