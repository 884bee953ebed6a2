"""One slide from its file to its folder of results."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntrm.errors import RefusedError
from ntrm.export.probabilities import ProbabilityZarr
from ntrm.gathering import Context
from ntrm.predictor import Predictor
from ntrm.progress import Progress
from ntrm.relations.network import RelationsMean
from ntrm.segmentation.derived import PROBABILITIES, Found, derive
from ntrm.segmentation.identity import Identity, Options
from ntrm.segmentation.look import Look, look_at
from ntrm.segmentation.memory import BANDS, HIDDEN, alone, finished, forget_failure, remember
from ntrm.segmentation.sources import source_fingerprint
from ntrm.slide.bands import INITIAL, MAPS, BandStore, drop, fingerprint
from ntrm.slide.first_pass import gather_slide
from ntrm.slide.grid import SlideGrid
from ntrm.slide.inputs import SlideInput
from ntrm.slide.isolated import open_isolated
from ntrm.slide.segment import stream


@dataclass(frozen=True, eq=False)
class Work:
    """What all slides of a run share."""

    out: Path
    predictor: Predictor = field(repr=False)
    options: Options
    identity: Identity

    @property
    def model_mpp(self) -> float:
        """µm/px of the masks."""
        return float(self.identity.model["mpp"])


def segment_slide(slide: SlideInput, slide_id: str, work: Work, progress: Progress) -> tuple[str, dict[str, Any]]:
    """Do what is missing; returns ``done`` or ``kept``, and the slide's row of the tables."""
    folder = work.out / slide_id
    with alone(folder):
        plan = _plan(slide, slide_id, work)
        before = finished(folder)
        if before is not None:
            _check_same(before["plan"], plan, slide_id)
            if before["covariates"] != dict(slide.covariates):
                remember(folder, before["plan"], before["tables"], slide.covariates)
            forget_failure(folder)
            drop(folder / HIDDEN / BANDS)
            return "kept", before["tables"]["slides"][0]
        tables = _segment(slide, slide_id, folder, work, plan, progress)
        remember(folder, plan, tables, slide.covariates)
        drop(folder / HIDDEN / BANDS)
    return "done", tables["slides"][0]


def _plan(slide: SlideInput, slide_id: str, work: Work) -> dict[str, Any]:
    """All that has a say in the slide's results."""
    stated = None if slide.mpp is None else [slide.mpp.x, slide.mpp.y]
    return {
        "slide_id": slide_id,
        "run": fingerprint(work.identity.as_dict()),
        "mpp": stated,
        "source": source_fingerprint(slide.path),
    }


def _check_same(before: dict[str, Any], plan: dict[str, Any], slide_id: str) -> None:
    """A finished slide stays finished when its file is gone, but never stands for another file."""
    differing = [key for key in plan if before.get(key) != plan[key] and not (key == "source" and plan[key] is None)]
    if differing:
        what = {"source": "another file", "mpp": "other µm/px", "run": "another model or other options"}
        raise RefusedError(
            "results are there that were made otherwise",
            got=", ".join(what.get(key, key) for key in differing),
            expected="the same slide, model and options",
            mend=f"choose another --out, or delete {slide_id}",
        )


def _segment(
    slide: SlideInput, slide_id: str, folder: Path, work: Work, plan: dict[str, Any], progress: Progress
) -> dict[str, list[dict[str, Any]]]:
    with closing(open_isolated(slide.path)) as reader:
        grid = SlideGrid(reader, work.model_mpp, slide.mpp)
        look, schema = look_at(grid, work.options), work.predictor.config.schema
        with BandStore.opened(folder / HIDDEN / BANDS, grid.height, grid.width, plan, names=_maps(work)) as store:
            means = RelationsMean(schema.names, schema.background_index)
            probabilities = _probabilities(work, store, grid)
            rows = stream(
                work.predictor,
                grid,
                store,
                stitching=work.options.stitching(work.predictor.config.window),
                windows=look.windows(grid, work.options, work.predictor.config.window),
                sums=means,
                sink=probabilities,
                context=_context(work, grid, look, store, plan, progress),
            )
            for _ in progress.track(rows, grid.height, slide_id):
                pass
            found = Found({name: store.map(name) for name in store.names}, probabilities, means.result())
            return derive(
                folder,
                slide_id,
                found,
                look=look,
                grid=grid,
                schema=schema,
                identity=work.identity,
                options=work.options,
            )


def _context(
    work: Work, grid: SlideGrid, look: Look, store: BandStore, plan: dict[str, Any], progress: Progress
) -> Context | None:
    """What the slide adds up to, for networks that want to know before they predict it."""
    windows = look.windows_once(grid, work.options, work.predictor.config.window) if work.predictor.passes else ()
    return gather_slide(work.predictor, grid, windows, store.folder, plan, progress)


def _maps(work: Work) -> tuple[str, ...]:
    """What is kept of every pixel."""
    return (*MAPS, INITIAL) if work.options.maps and work.predictor.has_initial else MAPS


def _probabilities(work: Work, store: BandStore, grid: SlideGrid) -> ProbabilityZarr | None:
    if not work.options.probabilities:
        return None
    path = store.folder / PROBABILITIES
    return ProbabilityZarr(path, grid.height, grid.width, work.predictor.config.schema, grid.resolution)
