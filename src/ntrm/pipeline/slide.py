"""One slide from its file to its folder of results."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ntrm.core.arrays import BoolMask, Bytes
from ntrm.core.devices import give_back_freed_memory
from ntrm.core.progress import Progress
from ntrm.data.stains import AS_IT_IS, StainError, Stains, estimate_stains, exchange, tissue_densities
from ntrm.familiarity.recorder import BlockRecorder, SlideBlocks
from ntrm.inference.predict import Maps, predict_maps
from ntrm.pipeline.file_transfer import check_objects, remember_objects
from ntrm.pipeline.options import wanted_stains
from ntrm.pipeline.outputs import PredictedSlide, write_outputs
from ntrm.pipeline.overview import inspect_slide
from ntrm.pipeline.relations_mean import RelationsMean
from ntrm.pipeline.slide_files import SlideFiles
from ntrm.results.documents import StainNorm
from ntrm.results.paths import HIDDEN, MAPS
from ntrm.results.slide_state import Plan, SlideState, alone, finished, forget_failure, made_otherwise, remember
from ntrm.slides.inputs import SlideInput, source_fingerprint
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.readers.reader import SlideReader
from ntrm.wsi.slide_cost import check_cost

if TYPE_CHECKING:
    from ntrm.pipeline.segmenter import Segmenter

OpenSlide = Callable[..., SlideReader]
LARGE = 1 << 25
"""Pixels of a slide from which on its files get the memory that the network has used; a smaller one leaves it to the
batches of the next."""


@dataclass(frozen=True)
class SlideTask:
    """One slide and the name of its results."""

    slide: SlideInput
    slide_id: str


def predict_slide(
    task: SlideTask, work: Segmenter, progress: Progress, open_slide: OpenSlide
) -> PredictedSlide | SlideState:
    """Do what needs the network; of a slide that is finished already, give what is kept of it."""
    slide, slide_id, folder = task.slide, task.slide_id, work.out / task.slide_id
    with ExitStack() as stack:
        stack.enter_context(alone(folder))
        # What a killed run left, and what this one will leave.
        shutil.rmtree(folder / HIDDEN / MAPS, ignore_errors=True)
        stack.callback(shutil.rmtree, folder / HIDDEN / MAPS, ignore_errors=True)
        work.transfer.bring(slide_id)
        before = finished(folder)
        if before is not None:
            _keep(before, _plan(slide, slide_id, work), slide, folder)
            work.transfer.deliver(slide_id)
            return before
        with work.transfer.at_hand(slide):
            plan = _plan(slide, slide_id, work)
            with closing(open_slide(slide.path, alone=slide.alone)) as reader:
                return _predict(reader, slide, plan, work, progress, stack)


def write_slide(found: PredictedSlide, work: Segmenter) -> SlideState:
    """Write all files of a slide and remember it as finished, in any thread."""
    with found.held:
        tables = write_outputs(found, work.options, work.reference)
        state = SlideState(found.plan, found.slide.covariates, tables)
        remember_objects(found.files.folder, found.slide)
        remember(found.files.folder, state)
        work.transfer.deliver(found.files.slide_id)
    return state


def _plan(slide: SlideInput, slide_id: str, work: Segmenter) -> Plan:
    mpp = None if slide.mpp is None else (slide.mpp.x, slide.mpp.y)
    run = json.dumps(work.run.identity(), sort_keys=True, ensure_ascii=False)
    return Plan(slide_id, hashlib.sha256(run.encode()).hexdigest(), mpp, source_fingerprint(slide.path))


def _keep(before: SlideState, plan: Plan, slide: SlideInput, folder: Path) -> None:
    """Check that a finished slide is the one that is asked for, and take over what a table now says of it.

    It stays finished when its file is gone, but never stands for another file.
    """
    old = {} if before.plan is None else asdict(before.plan)
    differing = [key for key, new in asdict(plan).items() if old.get(key) != new and (key, new) != ("source", None)]
    if differing:
        what = {"source": "another file", "mpp": "other µm/px", "run": "another model or other options"}
        hint = "state µm/px of single slides in a column mpp of a CSV; else " if "mpp" in differing else ""
        raise made_otherwise(", ".join(what.get(key, key) for key in differing), folder, hint)
    check_objects(folder, slide)
    # An input without a table says nothing of what an earlier table said.
    covariates = {**before.covariates, **slide.covariates}
    if before.covariates != covariates:
        remember(folder, replace(before, covariates=covariates))
    forget_failure(folder)


def _predict(
    reader: SlideReader, slide: SlideInput, plan: Plan, work: Segmenter, progress: Progress, stack: ExitStack
) -> PredictedSlide:
    """The network's prediction, which takes over what ``stack`` holds."""
    folder, predictor, options, reference = work.out / plan.slide_id, work.predictor, work.options, work.reference
    config, schema = predictor.config, predictor.config.schema
    grid = SlideGrid(reader, float(work.run.model["mpp"]), slide.mpp)
    check_cost(reader.info, grid.source, grid.model_mpp, slide.path.stat().st_size)
    overview = inspect_slide(grid, options)
    stained = None
    if options.stain_norm != AS_IT_IS:
        wanted = wanted_stains(reference, options.stain_norm)
        stained = normalise_stains(overview.picture, overview.tissue, wanted, options.stain_norm)
    maps = Maps.new(
        grid.height,
        grid.width,
        folder / HIDDEN / MAPS,
        coarse=options.maps and predictor.has_coarse,
        classes=config.classes if options.probabilities else 0,
    )
    means = RelationsMean(schema.names, schema.background_index, edge_weights=predictor.trains_edge_weights)
    windows = overview.windows(grid, options, config.window)
    recorder = None if reference is None else BlockRecorder(reference, schema, predictor.device)
    rows = predict_maps(
        predictor.recolouring(stained.matrix) if stained is not None and stained.matrix is not None else predictor,
        grid,
        maps,
        stitching=options.stitching(config.window),
        windows=windows,
        graphs=means.add_graphs,
        observe=recorder,
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
        blocks=None if recorder is None else SlideBlocks.of(windows, recorder.recorded(), config.window),
        stained=stained,
        held=stack.pop_all(),
    )


def normalise_stains(picture: Bytes, tissue: BoolMask, wanted: Stains, method: str) -> StainNorm:
    """How to change the stains of a slide with this thumbnail; not at all where they cannot be estimated."""
    try:
        return StainNorm(method, exchange(estimate_stains(tissue_densities(picture, tissue)), wanted, method))
    except StainError as error:
        return StainNorm(method, None, error.what)
