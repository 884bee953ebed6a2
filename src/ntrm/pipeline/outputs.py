"""The files of a finished slide, from its maps on disk: mask, polygons, graph, summary, pictures, report.

No clock, no names: the same maps give the same bytes, so that it does not matter when a run was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, cast

from ntrm.analysis.graph import NetworkRelations
from ntrm.analysis.regions import Regions
from ntrm.analysis.small_regions import RemovedRegions
from ntrm.core.arrays import Bytes
from ntrm.core.threads import most_threads
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.ome_zarr import ProbabilityZarr, write_labels_zarr
from ntrm.inference.disk_array import DiskArray
from ntrm.inference.mask_store import COARSE, CONFIDENCE, LABELS
from ntrm.pipeline.assessment import refuse_unfamiliar
from ntrm.pipeline.child_pool import ChildPool
from ntrm.pipeline.measurements import PieceFindings, is_simple, measure_pieces, scan_slide
from ntrm.pipeline.options import Options
from ntrm.pipeline.overview import SlideOverview
from ntrm.pipeline.pictures import (
    LARGEST_MAP,
    SMALLEST_MAP,
    TintedSlide,
    resized,
    write_familiarity_map,
    write_overlays,
    write_plain,
)
from ntrm.pipeline.slide_files import SlideFiles
from ntrm.report.slide_picture import StoredPictures, stored_pictures
from ntrm.report.slide_report import prepare_report, write_slide_report
from ntrm.results.documents import StainNorm, Summary
from ntrm.results.familiarity import WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, HIDDEN, LABELS_ZARR, PIECES, PROBABILITIES_ZARR
from ntrm.results.slide_state import Tables
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.pieces import PieceMap

Given = ParamSpec("Given")
MOST_THREADS = 6
"""That write files of one slide at the same time."""


@contextmanager
def background_worker(threads: int = 1) -> Iterator[Executor]:
    """A thread, or several, that do one task after the other in their order.

    So a task may wait for those before it. Tasks that have not begun when the block ends are dropped.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ntrm-background")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, eq=False)
class SlidePrediction:
    """The network's prediction for a slide, perhaps without small regions."""

    maps: Mapping[str, DiskArray]
    """(H, W) by name: labels, confidence, and the coarse head's labels where they were asked for."""
    probabilities: ProbabilityZarr | None = None
    network: NetworkRelations | None = None
    """Its relations of tissues; None for networks that have none."""
    removed: RemovedRegions | None = None
    """The small regions that were relabelled; None where nobody asked for that."""

    def array(self, name: str) -> Bytes:
        """A map as an array of which only rows and rectangles are read."""
        return cast("Bytes", self.maps[name])


Judge = Callable[[PieceMap, Regions], SlideFamiliarity]
"""Compares a slide and its pieces with what the model was trained on."""


def without_reference(*_: object) -> SlideFamiliarity:
    """The ``Judge`` of a model that has no reference to compare with."""
    return SlideFamiliarity(WITHOUT_REFERENCE, {})


@dataclass(frozen=True, eq=False)
class BegunOutputs:
    """What needs nothing but a slide's picture and its labels, perhaps under way while the network still works."""

    scanned: Future[tuple[PieceMap, Regions]]
    tinted: Future[TintedSlide]
    pale: Future[Bytes]
    """The slide as small as the map of windows."""
    written: tuple[Future[None], ...]
    """The mask and the slide alone; none of a strict run, which writes nothing before it is sure of the slide."""


@dataclass(frozen=True, eq=False)
class SlideOutput:
    """A slide's folder of results, and what its files say about the slide and the run."""

    files: SlideFiles
    overview: SlideOverview
    grid: SlideGrid
    options: Options
    background: Executor
    """Of at least two threads; it ends before the slide's maps are closed."""
    stained: StainNorm | None = None
    """What was done to the slide's stains; None where nobody asked for that."""
    judge: Judge = without_reference
    begun: BegunOutputs | None = None
    children: ChildPool | None = None
    """Children that measure its pieces and write polygons, overlays and the report; None where this process does."""


def slide_threads() -> int:
    """Threads that write a slide's files, beside the one that measures."""
    return max(2, min(MOST_THREADS, most_threads()))


def begin_outputs(maps: Mapping[str, DiskArray], to: SlideOutput) -> BegunOutputs:
    """Begin with what needs no measurement; the maps may still grow."""
    prediction, start = SlidePrediction(maps), to.background.submit
    labels, picture = prediction.array(LABELS), to.overview.picture
    scanned = start(_scan, prediction, to)
    written = () if to.options.strict else _write_first(labels, to)
    pale = start(resized, picture, SMALLEST_MAP, LARGEST_MAP)
    return BegunOutputs(scanned, start(TintedSlide.of, picture, labels, to.files.schema), pale, written)


def _scan(prediction: SlidePrediction, to: SlideOutput) -> tuple[PieceMap, Regions]:
    labels, overview = prediction.array(LABELS), to.overview
    pieces = PieceMap.of(overview.tissue_of(labels, to.files.schema, to.options), overview.resolution)
    confidence, resolution = prediction.array(CONFIDENCE), to.grid.resolution
    return pieces, scan_slide(labels, confidence, pieces, schema=to.files.schema, resolution=resolution)


def _write_first(labels: Bytes, to: SlideOutput) -> tuple[Future[None], ...]:
    """The files that need nothing else."""
    start = to.background.submit
    return start(to.files.write_mask, labels), start(write_plain, to.files.folder, to.overview.picture)


def write_outputs(prediction: SlidePrediction, to: SlideOutput) -> Tables:
    """Write all files of a slide; returns the rows of the tables.

    Other threads, and children of a large slide, measure and write files.
    """
    files, start, shape = to.files, to.background.submit, (to.grid.height, to.grid.width)
    folder = files.folder
    begun = to.begun or begin_outputs(prediction.maps, to)
    pieces_map, regions = begun.scanned.result()
    with background_worker() as measuring:
        # Beside what follows; of a strict run's slide that is refused in vain.
        measured = measuring.submit(measure_pieces, regions, pieces_map, schema=to.files.schema, children=to.children)
        # Before all that says whether cancers are assessed, so that it is written once.
        familiarity = to.judge(pieces_map, regions)
        refuse_unfamiliar(familiarity, to.options)
        written = begun.written or _write_first(prediction.array(LABELS), to)
        polygons = start(_write_polygons, regions, to, familiarity) if is_simple(regions) else None
        shown = start(_write_familiarity_map, begun.pale, to, familiarity)
        stored = start(_read_stored, folder, shape, written) if to.options.report else None
        more = start(_write_more, prediction, pieces_map, files, to.options)
        pieces = measured.result()
    polygons = polygons or start(_write_polygons, regions, to, familiarity)
    summary = _summarise(files, regions, pieces, familiarity, prediction.removed, to)
    # All that is left waits for the overlays, so that they come first.
    overlays = start(_write_overlays, begun.tinted, to, summary)
    summary.write(folder)
    network = None if prediction.network is None else prediction.network.as_dict()
    files.write_graph(regions, pieces, familiarity, network)
    report = start(_write_report, to, stored, shown) if stored is not None else None
    tables = files.tables(summary, regions, pieces)
    for future in (*written, shown, stored, polygons, more, overlays, report):
        if future is not None:
            future.result()
    return tables


def _in_child(to: SlideOutput, work: Callable[Given, object], *given: Given.args, **more: Given.kwargs) -> None:
    """Do it in a child, where there are any: in this process only one thread at a time runs Python."""
    if to.children is None:
        work(*given, **more)
    else:
        to.children.do(work, *given, **more)


def _write_polygons(regions: Regions, to: SlideOutput, familiarity: SlideFamiliarity) -> None:
    write = to.files.write_polygons
    if is_simple(regions):
        _in_child(to, write, regions, familiarity)
    else:
        write(regions, familiarity)


def _write_familiarity_map(pale: Future[Bytes], to: SlideOutput, familiarity: SlideFamiliarity) -> None:
    write_familiarity_map(to.files.folder, pale.result(), familiarity, (to.grid.height, to.grid.width))


def _read_stored(folder: Path, shape: tuple[int, int], needed: Sequence[Future[None]]) -> StoredPictures:
    """What the report shows of the files that are ``needed`` for it."""
    prepare_report()
    for future in needed:
        future.result()
    return stored_pictures(folder, shape)


def _write_overlays(tinted: Future[TintedSlide], to: SlideOutput, summary: Summary) -> None:
    # As many as this process has: a child takes itself to have one, but by now the others have little left to do.
    threads = min(MOST_THREADS, most_threads())
    _in_child(to, write_overlays, to.files.folder, tinted.result(), to.grid.resolution, summary, threads=threads)


def _write_report(to: SlideOutput, stored: Future[StoredPictures], needed: Future[None]) -> None:
    """Write the report once the files that it shows are there."""
    needed.result()
    _in_child(to, write_slide_report, to.files.folder, stored.result())


def _summarise(
    files: SlideFiles,
    regions: Regions,
    pieces: Sequence[PieceFindings],
    familiarity: SlideFamiliarity,
    removed: RemovedRegions | None,
    to: SlideOutput,
) -> Summary:
    pixel_um2, quality, stained = files.grid.resolution.pixel_area_um2, to.overview.quality, to.stained
    return files.summary(
        regions,
        pieces,
        familiarity,
        quality={name: float(v) if name.endswith("_score") else bool(v) for name, v in quality.columns.items()},
        quality_warnings=(*to.grid.warnings, *quality.warnings, *(() if stained is None else stained.warnings)),
        small_regions=None
        if removed is None
        else {"regions": removed.regions, "area_mm2": removed.pixels * pixel_um2 / 1e6},
        stain_norm=stained,
    )


def _write_more(prediction: SlidePrediction, pieces: PieceMap, files: SlideFiles, options: Options) -> None:
    """Write the pieces, for corrections, and the optional files."""
    pieces.save(files.folder / HIDDEN / PIECES)
    folder, schema, resolution = files.folder, files.schema, files.grid.resolution
    labels, metadata = prediction.array(LABELS), files.metadata()
    named: dict[str, Any] = {"name": files.slide_id, "metadata": metadata}
    if options.zarr:
        write_labels_zarr(folder / LABELS_ZARR, labels, schema, resolution, metadata=metadata)
    if options.maps:
        write_confidence_ome_tiff(folder / CONFIDENCE_MAP, prediction.array(CONFIDENCE), resolution, **named)
    if COARSE in prediction.maps:
        write_mask_ome_tiff(folder / COARSE_MASK, prediction.array(COARSE), schema, resolution, **named)
    if prediction.probabilities is not None:
        prediction.probabilities.complete(folder / PROBABILITIES_ZARR, metadata)
