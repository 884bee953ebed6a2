"""One slide from its file to its folder of results."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ntrm.analysis.small_regions import remove_small_regions
from ntrm.core.devices import give_back_freed_memory
from ntrm.core.progress import Progress
from ntrm.data.stains import AS_IT_IS
from ntrm.familiarity.recorder import BlockRecorder, SlideBlocks
from ntrm.familiarity.reference import Reference
from ntrm.inference.predict import Maps, predict_maps
from ntrm.inference.predictor import Predictor
from ntrm.pipeline.file_transfer import FileTransfer, check_objects, remember_objects
from ntrm.pipeline.options import Options
from ntrm.pipeline.outputs import PredictedSlide, write_outputs
from ntrm.pipeline.overview import SlideOverview, inspect_slide
from ntrm.pipeline.relations_mean import RelationsMean
from ntrm.pipeline.slide_files import SlideFiles
from ntrm.pipeline.stain_norm import normalise_stains, wanted_stains
from ntrm.results.documents import StainNorm
from ntrm.results.paths import HIDDEN, MAPS
from ntrm.results.run_record import Run
from ntrm.results.slide_state import (
    Plan,
    SlideState,
    alone,
    finished,
    forget_failure,
    made_otherwise,
    remember,
)
from ntrm.slides.inputs import SlideInput, source_fingerprint
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.isolated import open_in_children
from ntrm.wsi.readers.reader import SlideReader
from ntrm.wsi.slide_cost import check_cost

LARGE = 1 << 25
"""Pixels of a slide from which on its files get the memory that the network has used; a smaller one leaves it to the
batches of the next."""


@dataclass(frozen=True, eq=False)
class Work:
    """What all slides of a run share."""

    out: Path
    predictor: Predictor = field(repr=False)
    options: Options
    run: Run
    reference: Reference | None = field(default=None, repr=False)
    """What the model's training sections are like; None where it does not say."""
    open_slide: Callable[..., SlideReader] = field(default=open_in_children, repr=False)
    transfer: FileTransfer = field(default_factory=FileTransfer, repr=False)
    """Of slides and results at an address."""

    @property
    def model_mpp(self) -> float:
        """µm/px of the masks."""
        return float(self.run.model["mpp"])


def predict_slide(slide: SlideInput, slide_id: str, work: Work, progress: Progress) -> PredictedSlide | SlideState:
    """Do what needs the network; of a slide that is finished already, give what is kept of it."""
    folder = work.out / slide_id
    with ExitStack() as stack:
        stack.enter_context(alone(folder))
        # What a killed run left, and what this one will leave.
        shutil.rmtree(folder / HIDDEN / MAPS, ignore_errors=True)
        stack.callback(shutil.rmtree, folder / HIDDEN / MAPS, ignore_errors=True)
        work.transfer.bring(slide_id)
        before = finished(folder)
        with work.transfer.at_hand(slide, wanted=before is None):
            plan = _plan(slide, slide_id, work)
            if before is not None:
                _keep(before, plan, slide, folder)
                work.transfer.deliver(slide_id)
                return before
            return _predict(slide, plan, work, progress, stack)


def write_slide(found: PredictedSlide, work: Work) -> SlideState:
    """Write all files of a slide and remember it as finished, in any thread."""
    folder = found.files.folder
    with found.held:
        smallest = work.options.min_area_um2 / found.grid.resolution.pixel_area_um2
        removed = remove_small_regions(found.maps.labels, smallest) if smallest else None
        tables = write_outputs(replace(found, removed=removed), work.options, work.reference)
        state = SlideState(found.plan, found.slide.covariates, tables)
        remember_objects(folder, found.slide)
        remember(folder, state)
        work.transfer.deliver(found.files.slide_id)
    return state


def _keep(before: SlideState, plan: Plan, slide: SlideInput, folder: Path) -> None:
    """Check that a finished slide is the one that is asked for, and take over what a table now says of it."""
    _check_same(before.plan, plan, folder)
    check_objects(folder, slide)
    # An input without a table says nothing of what an earlier table said.
    covariates = {**before.covariates, **slide.covariates}
    if before.covariates != covariates:
        remember(folder, replace(before, covariates=covariates))
    forget_failure(folder)


def _plan(slide: SlideInput, slide_id: str, work: Work) -> Plan:
    mpp = None if slide.mpp is None else (slide.mpp.x, slide.mpp.y)
    run = json.dumps(work.run.identity(), sort_keys=True, ensure_ascii=False)
    return Plan(slide_id, hashlib.sha256(run.encode()).hexdigest(), mpp, source_fingerprint(slide.path))


def _check_same(before: Plan | None, plan: Plan, folder: Path) -> None:
    """A finished slide stays finished when its file is gone, but never stands for another file."""
    old = {} if before is None else asdict(before)
    differing = [key for key, new in asdict(plan).items() if old.get(key) != new and (key, new) != ("source", None)]
    if differing:
        what = {"source": "another file", "mpp": "other µm/px", "run": "another model or other options"}
        hint = "state µm/px of single slides in a column mpp of a CSV; else " if "mpp" in differing else ""
        raise made_otherwise(", ".join(what.get(key, key) for key in differing), folder, hint)


def _predict(slide: SlideInput, plan: Plan, work: Work, progress: Progress, stack: ExitStack) -> PredictedSlide:
    """The network's prediction, which takes over what ``stack`` holds."""
    folder = work.out / plan.slide_id
    with closing(work.open_slide(slide.path, alone=slide.alone)) as reader:
        grid = SlideGrid(reader, work.model_mpp, slide.mpp)
        check_cost(reader.info, grid.source, work.model_mpp, slide.path.stat().st_size)
        options, config = work.options, work.predictor.config
        overview = inspect_slide(grid, options)
        stained = _stained(overview, work)
        predictor = work.predictor
        if stained is not None and stained.matrix is not None:
            predictor = predictor.recolouring(stained.matrix)
        coarse = options.maps and work.predictor.has_coarse
        classes = config.classes if options.probabilities else 0
        maps = Maps.new(grid.height, grid.width, folder / HIDDEN / MAPS, coarse=coarse, classes=classes)
        schema, trained = config.schema, work.predictor.trains_edge_weights
        means = RelationsMean(schema.names, schema.background_index, edge_weights=trained)
        windows = overview.windows(grid, options, config.window)
        observer = None if work.reference is None else BlockRecorder(work.reference, schema, work.predictor.device)
        rows = predict_maps(
            predictor,
            grid,
            maps,
            stitching=options.stitching(config.window),
            windows=windows,
            graphs=means.add_graphs,
            observe=observer,
        )
        for _ in progress.track(rows, grid.height, plan.slide_id):
            pass
    overview.unmark(maps.labels, grid, schema, options)
    grid.forget()
    if grid.height * grid.width >= LARGE:
        give_back_freed_memory()
    return PredictedSlide(
        slide=slide,
        plan=plan,
        files=SlideFiles(folder, plan.slide_id, grid.record(), schema, work.run),
        overview=overview,
        grid=grid,
        maps=maps,
        relations=means.result(windows),
        blocks=None if observer is None else SlideBlocks.of(windows, observer.recorded(), config.window),
        stained=stained,
        held=stack.pop_all(),
    )


def _stained(overview: SlideOverview, work: Work) -> StainNorm | None:
    method = work.options.stain_norm
    if method == AS_IT_IS:
        return None
    return normalise_stains(overview.picture, overview.tissue, wanted_stains(work.reference, method), method)
