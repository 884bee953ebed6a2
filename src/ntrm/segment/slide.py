"""One slide from its file to its folder of results: mask, polygons, graph, summary, pictures, report.

No clock, no names: the same slide gives the same bytes, so that it does not matter when a run was killed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ntrm.core.arrays import BoolMask, Bytes
from ntrm.core.devices import give_back_freed_memory
from ntrm.core.errors import RefusedError
from ntrm.core.io import write_text
from ntrm.core.progress import Progress
from ntrm.data.stains import AS_IT_IS, StainError, Stains, estimate_stains, exchange, tissue_densities
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.ome_zarr import write_labels_zarr, write_probabilities_zarr
from ntrm.familiarity.recorder import BlockRecorder, SlideBlocks, judge_slide
from ntrm.familiarity.reference import Reference
from ntrm.regions.graph import tissue_graph_of
from ntrm.regions.regions import Regions
from ntrm.regions.small_regions import remove_small_regions
from ntrm.report.slide_report import write_slide_report
from ntrm.results.classes import folder_classes
from ntrm.results.documents import Network, StainNorm
from ntrm.results.familiarity import UNLIKE, WITHOUT_MODEL, WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.results.paths import (
    COARSE_MASK,
    CONFIDENCE_MAP,
    FAILED,
    HIDDEN,
    LABELS_ZARR,
    PIECES,
    PROBABILITIES_ZARR,
    SOURCE,
)
from ntrm.results.slide_state import Plan, SlideState, Tables, alone, finished, made_otherwise, remember, source_version
from ntrm.segment.annotate import tissue_alone
from ntrm.segment.measurements import measure_pieces, scan_slide
from ntrm.segment.options import Options, wanted_stains
from ntrm.segment.overview import SlideOverview, inspect_slide
from ntrm.segment.pictures import tinted, write_familiarity_map, write_overlays, write_plain
from ntrm.segment.predict import IN_MEMORY, Maps, RelationsMean, predict_maps
from ntrm.segment.slide_files import SlideFiles
from ntrm.slides.grid import SlideGrid, check_cost
from ntrm.slides.inputs import SlideInput, source_fingerprint
from ntrm.slides.pieces import NO_PIECE, PieceMap
from ntrm.slides.readers.reader import SlideReader

if TYPE_CHECKING:
    from ntrm.segment.segmenter import Segmenter

OpenSlide = Callable[..., SlideReader]
LARGE = 1 << 25
"""Pixels of a slide from which on its files get the memory that the network has used; a smaller one leaves it to the
batches of the next."""
THREADS = 4  # That write files of one slide at the same time, beside the one that measures
BEHIND = 1 << 28
"""Pixels of a slide up to which its files are written while the network works on the next: they take memory."""


class SlideTask(NamedTuple):
    """One slide and the name of its results."""

    slide: SlideInput
    slide_id: str


@dataclass(frozen=True, eq=False)
class PredictedSlide:
    """What the network says about a slide, and what its files say about slide and run."""

    task: SlideTask
    plan: Plan
    files: SlideFiles
    overview: SlideOverview
    grid: SlideGrid
    maps: Maps
    held: ExitStack  # The slide's lock. Until it is closed, no other process can take the slide.
    relations: Network | None = None  # The network's relations of tissues; None for networks that have none
    blocks: SlideBlocks | None = None
    """What its windows look like; None where the model has no reference to compare them with."""
    stained: StainNorm | None = None  # What was done to the slide's stains; None where nobody asked for that

    @property
    def large(self) -> bool:
        """Whether its files are written before the network works on the next slide: they take memory."""
        return self.grid.height * self.grid.width > BEHIND


def write_outputs(found: PredictedSlide, options: Options, reference: Reference | None) -> Tables:
    """Find the regions of a slide, judge and measure it, and write its files; returns the rows of the tables."""
    files, overview, resolution = found.files, found.overview, found.grid.resolution
    folder, schema, labels = files.folder, files.schema, found.maps.labels
    smallest = options.min_area_um2 / resolution.pixel_area_um2
    removed = remove_small_regions(labels, smallest) if smallest else None
    with ThreadPoolExecutor(THREADS, thread_name_prefix="ntrm-files") as pool:
        pictures = pool.submit(tinted, overview.picture, labels, schema)
        pieces_map = overview.pieces_of(labels, schema, options)
        regions = scan_slide(labels, found.maps.confidence, pieces_map, schema=schema, resolution=resolution)
        # Before all that says whether cancers are assessed, so that it is written once.
        familiarity = _judged(found, pieces_map, regions, reference)
        if options.strict and not familiarity.slide.assessed:
            raise RefusedError(
                f"the slide is {UNLIKE}",
                got=f"p = {familiarity.slide.p_value:.2g}: {'; '.join(familiarity.slide.reasons)}",
                hint="train or fine-tune on slides like this one, or run without --strict",
            )
        written = [
            pool.submit(files.write_mask, labels),
            pool.submit(write_plain, folder, overview.picture),
            pool.submit(write_familiarity_map, folder, overview.picture, familiarity, labels.shape),
            pool.submit(_write_more, found, pieces_map, options),
        ]
        pieces = measure_pieces(regions, pieces_map, familiarity, schema=schema)
        # Not beside measuring: both take memory by the regions.
        written.append(pool.submit(files.write_polygons, regions, familiarity))
        quality, stained = overview.quality, found.stained
        summary = files.summary(
            regions,
            pieces,
            familiarity,
            quality={name: float(v) if name.endswith("_score") else bool(v) for name, v in quality.columns.items()},
            quality_warnings=(*found.grid.warnings, *quality.warnings, *(() if stained is None else stained.warnings)),
            small_regions=removed and {"regions": removed[0], "area_mm2": removed[1] * resolution.pixel_area_um2 / 1e6},
            stain_norm=stained,
        )
        written.append(
            pool.submit(write_overlays, folder, pictures.result(), labels.shape, schema, resolution, summary)
        )
        summary.write(folder)
        files.write_graph(regions, pieces, found.relations)
        tables = files.tables(summary, regions, pieces)
        for future in written:
            future.result()
    if options.report:
        write_slide_report(folder)
    return tables


def _judged(found: PredictedSlide, pieces: PieceMap, regions: Regions, reference: Reference | None) -> SlideFamiliarity:
    """Compare the slide and its pieces with what the model was trained on."""
    if found.files.run.model is None:
        return SlideFamiliarity(WITHOUT_MODEL, {})
    if reference is None or found.blocks is None:
        return SlideFamiliarity(WITHOUT_REFERENCE, {})
    schema = found.files.schema
    # A slide of crumbs alone, as a small tile is, is judged by them.
    numbers = [piece.number for piece in pieces.pieces] or [NO_PIECE]
    graphs = {number: tissue_graph_of(regions.table.of_piece(number), schema) for number in numbers}
    return judge_slide(found.blocks, pieces, graphs, reference, schema, found.grid.resolution)


def _write_more(found: PredictedSlide, pieces: PieceMap, options: Options) -> None:
    """Write the pieces, for corrections, and the optional files."""
    files, maps = found.files, found.maps
    folder, schema, resolution, metadata = files.folder, files.schema, files.grid.resolution, files.metadata()
    named: dict[str, Any] = {"name": files.slide_id, "metadata": metadata}
    pieces.save(folder / HIDDEN / PIECES)
    if options.zarr:
        write_labels_zarr(folder / LABELS_ZARR, maps.labels, schema, resolution, metadata=metadata)
    if options.maps and maps.confidence is not None:
        write_confidence_ome_tiff(folder / CONFIDENCE_MAP, maps.confidence, resolution, **named)
    if maps.coarse is not None:
        write_mask_ome_tiff(folder / COARSE_MASK, maps.coarse, schema, resolution, **named)
    if maps.probabilities is not None:
        path = folder / PROBABILITIES_ZARR
        write_probabilities_zarr(path, maps.probabilities, schema, resolution, metadata=metadata)


def predict_slide(task: SlideTask, work: Segmenter, progress: Progress) -> PredictedSlide | SlideState:
    """Do what needs the network; of a slide that is finished already, give what is kept of it."""
    slide, slide_id, folder, results = task.slide, task.slide_id, work.out / task.slide_id, work.transfer.results
    with ExitStack() as stack:
        stack.enter_context(alone(folder))
        if results is not None:
            results.bring(slide_id)
        before = finished(folder)
        if before is not None:
            _keep(before, _plan(task, work), slide, folder)
            if results is not None:
                results.deliver(slide_id)
            return before
        with work.transfer.at_hand(slide):
            plan = _plan(task, work)
            with closing(work.open_slide(slide.path, alone=slide.alone)) as reader:
                if work.blank:
                    return _blank(reader, task, plan, work, stack)
                return _predict(reader, task, plan, work, progress, stack)


def write_slide(found: PredictedSlide, work: Segmenter) -> SlideState:
    """Write all files of a slide and remember it as finished, in any thread."""
    slide, slide_id = found.task.slide, found.task.slide_id
    with found.held:
        state = SlideState(found.plan, slide.covariates, write_outputs(found, work.options, work.reference))
        if slide.remote is not None:
            write_text(found.files.folder / HIDDEN / SOURCE, f"{slide.remote.version}\n")
        remember(found.files.folder, state)
        if work.transfer.results is not None:
            work.transfer.results.deliver(slide_id)
    return state


def _plan(task: SlideTask, work: Segmenter) -> Plan:
    mpp = None if task.slide.mpp is None else (task.slide.mpp.x, task.slide.mpp.y)
    run = json.dumps(work.run.identity(), sort_keys=True, ensure_ascii=False)
    return Plan(task.slide_id, hashlib.sha256(run.encode()).hexdigest(), mpp, source_fingerprint(task.slide.path))


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
    # It never stands for objects that were replaced since.
    if slide.remote is not None and slide.remote.files and source_version(folder) not in (None, slide.remote.version):
        raise made_otherwise("another file", folder)
    # An input without a table says nothing of what an earlier table said.
    covariates = {**before.covariates, **slide.covariates}
    if before.covariates != covariates or (folder / HIDDEN / FAILED).exists():
        remember(folder, replace(before, covariates=covariates))


def _predict(
    reader: SlideReader, task: SlideTask, plan: Plan, work: Segmenter, progress: Progress, stack: ExitStack
) -> PredictedSlide:
    """The network's prediction, which takes over what ``stack`` holds."""
    slide, folder, predictor = task.slide, work.out / task.slide_id, work.predictor
    options, reference = work.options, work.reference
    config, schema = predictor.config, predictor.config.schema
    grid = SlideGrid(reader, work.run.mpp, slide.mpp)
    check_cost(reader.info, grid.source, grid.model_mpp, slide.path.stat().st_size)
    overview = inspect_slide(grid, options)
    stained = None
    if options.stain_norm != AS_IT_IS:
        wanted = wanted_stains(reference, options.stain_norm)
        stained = normalise_stains(overview.picture, overview.tissue, wanted, options.stain_norm)
    maps = Maps.new(
        grid.height,
        grid.width,
        folder / HIDDEN,
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
    with ThreadPoolExecutor(2, thread_name_prefix="ntrm-overview") as pool:
        # While the network works, what only the files need.
        for name in ("marks", "pieces", "quality") if options.tissue_mask else ("quality",):
            pool.submit(getattr, overview, name)
        for _ in progress.track(rows, grid.height, task.slide_id):
            pass
    overview.unmark(maps.labels, grid, schema, options)
    grid.forget()
    if grid.height * grid.width >= LARGE:
        give_back_freed_memory()
    return PredictedSlide(
        task=task,
        plan=plan,
        files=SlideFiles(folder, task.slide_id, grid.record(), schema, work.run),
        overview=overview,
        grid=grid,
        maps=maps,
        relations=means.result(windows),
        blocks=None if recorder is None else SlideBlocks.of(windows, recorder.recorded(), config.window),
        stained=stained,
        held=stack.pop_all(),
    )


def _blank(reader: SlideReader, task: SlideTask, plan: Plan, work: Segmenter, stack: ExitStack) -> PredictedSlide:
    """All tissue without a name, of which no network says anything."""
    slide, folder, schema = task.slide, work.out / task.slide_id, folder_classes(work.out)
    grid = SlideGrid.no_finer(reader, work.run.mpp, slide.mpp)
    check_cost(reader.info, grid.source, grid.model_mpp, slide.path.stat().st_size)
    overview = inspect_slide(grid, work.options)
    place = folder / HIDDEN if grid.height * grid.width > IN_MEMORY else None
    maps = Maps(tissue_alone(overview, grid, schema, place), confidence=None)
    files = SlideFiles(folder, task.slide_id, grid.record(), schema, work.run)
    return PredictedSlide(task, plan, files, overview, grid, maps, stack.pop_all())


def normalise_stains(picture: Bytes, tissue: BoolMask, wanted: Stains, method: str) -> StainNorm:
    """How to change the stains of a slide with this thumbnail; not at all where they cannot be estimated."""
    try:
        return StainNorm(method, exchange(estimate_stains(tissue_densities(picture, tissue)), wanted, method))
    except StainError as error:
        return StainNorm(method, None, error.what)
