"""The files of a finished slide, from its maps on disk: mask, polygons, graph, summary, pictures, report.

No clock, no names: the same maps give the same bytes, so that it does not matter when a run was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.graph import NetworkRelations
from ntrm.analysis.regions import Regions
from ntrm.analysis.small_regions import RemovedRegions
from ntrm.core.labels import LabelSchema
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.ome_zarr import ProbabilityZarr, write_labels_zarr
from ntrm.inference.mask_store import COARSE, CONFIDENCE, LABELS, DiskArray
from ntrm.pipeline.assessment import refuse_unfamiliar
from ntrm.pipeline.measurements import PieceFindings, measure_pieces, scan_slide
from ntrm.pipeline.options import Options
from ntrm.pipeline.overview import SlideOverview
from ntrm.pipeline.pictures import write_familiarity_map, write_overlays, write_plain
from ntrm.pipeline.slide_files import SlideFiles
from ntrm.report.slide_report import write_slide_report
from ntrm.results.documents import Summary
from ntrm.results.familiarity import WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, HIDDEN, LABELS_ZARR, PIECES, PROBABILITIES_ZARR
from ntrm.results.run_record import Run
from ntrm.results.slide_state import Tables
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.pieces import PieceMap
from ntrm.wsi.quality.checks import Quality

Bytes = NDArray[np.uint8]
TOGETHER = 1 << 26
"""Pixels of a slide up to which it is measured while its polygons are made: each of the two takes memory."""


@contextmanager
def background_worker() -> Iterator[Executor]:
    """A thread that does one task after the other; tasks that have not begun when the block ends are dropped."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="ntrm-background")
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


Judge = Callable[[SlidePrediction, PieceMap, Regions, Sequence[PieceFindings]], SlideFamiliarity]
"""Compares a slide and its pieces with what the model was trained on."""


def without_reference(*_: object) -> SlideFamiliarity:
    """The ``Judge`` of a model that has no reference to compare with."""
    return SlideFamiliarity(WITHOUT_REFERENCE, {})


@dataclass(frozen=True, eq=False)
class SlideOutput:
    """A slide's folder of results, and what its files say about the slide and the run."""

    folder: Path
    slide_id: str
    overview: SlideOverview
    grid: SlideGrid
    schema: LabelSchema
    run: Run
    options: Options
    judge: Judge = without_reference

    @property
    def files(self) -> SlideFiles:
        """What the files have in common."""
        return SlideFiles(self.folder, self.slide_id, self.grid.record(), self.schema, self.run)


def write_outputs(prediction: SlidePrediction, to: SlideOutput) -> Tables:
    """Write all files of a slide; returns the rows of the tables.

    A thread writes mask, polygons and report while this one measures and draws.
    """
    folder, grid, schema, overview, files = to.folder, to.grid, to.schema, to.overview, to.files
    labels, resolution = prediction.array(LABELS), grid.resolution
    pieces_map = PieceMap.of(overview.tissue_of(labels, schema, to.options), overview.resolution)
    with background_worker() as background:
        # A strict run writes nothing before it is sure that the slide is not refused.
        ahead = not to.options.strict
        masks = background.submit(_write_masks, prediction, files, to.options) if ahead else None
        regions = scan_slide(labels, prediction.array(CONFIDENCE), pieces_map, schema=schema, resolution=resolution)

        def write_polygons(familiarity: SlideFamiliarity | None = None) -> Future[None]:
            return background.submit(files.write_polygons, regions, familiarity)

        early = write_polygons() if ahead and grid.height * grid.width <= TOGETHER else None
        pieces = [*measure_pieces(regions, pieces_map, schema=schema)]
        familiarity = to.judge(prediction, pieces_map, regions, pieces)
        refuse_unfamiliar(familiarity, to.options)
        masks = masks or background.submit(_write_masks, prediction, files, to.options)
        pieces_map.save(folder / HIDDEN / PIECES)
        # Those of an unfamiliar slide are written again, with the warning.
        polygons = early if early is not None and not familiarity.warnings else write_polygons(familiarity)
        network = None if prediction.network is None else prediction.network.as_dict()
        files.write_graph(regions, pieces, familiarity, network)
        summary = _summarise(files, regions, pieces, familiarity, overview.quality, prediction.removed)
        summary.write(folder)
        write_plain(folder, overview.picture)
        write_familiarity_map(folder, overview.picture, familiarity, (grid.height, grid.width))
        # All that it reads is there once the mask is, which comes before it in that thread.
        report = background.submit(write_slide_report, folder) if to.options.report else None
        write_overlays(folder, overview.picture, labels, schema, resolution, summary)
        for future in (masks, early, polygons, report):
            if future is not None:
                future.result()
        return files.tables(summary, regions, pieces)


def _summarise(
    files: SlideFiles,
    regions: Regions,
    pieces: Sequence[PieceFindings],
    familiarity: SlideFamiliarity,
    quality: Quality,
    removed: RemovedRegions | None,
) -> Summary:
    pixel_um2 = files.grid.resolution.pixel_area_um2
    return files.summary(
        regions,
        pieces,
        familiarity,
        quality={name: float(v) if name.endswith("_score") else bool(v) for name, v in quality.columns.items()},
        quality_warnings=quality.warnings,
        small_regions=None
        if removed is None
        else {"regions": removed.regions, "area_mm2": removed.pixels * pixel_um2 / 1e6},
    )


def _write_masks(prediction: SlidePrediction, files: SlideFiles, options: Options) -> None:
    """The mask, and the files on request."""
    folder, schema, resolution = files.folder, files.schema, files.grid.resolution
    labels, metadata = prediction.array(LABELS), files.metadata()
    files.write_mask(labels)
    named: dict[str, Any] = {"name": files.slide_id, "metadata": metadata}
    if options.zarr:
        write_labels_zarr(folder / LABELS_ZARR, labels, schema, resolution, metadata=metadata)
    if options.maps:
        write_confidence_ome_tiff(folder / CONFIDENCE_MAP, prediction.array(CONFIDENCE), resolution, **named)
    if COARSE in prediction.maps:
        write_mask_ome_tiff(folder / COARSE_MASK, prediction.array(COARSE), schema, resolution, **named)
    if prediction.probabilities is not None:
        prediction.probabilities.complete(folder / PROBABILITIES_ZARR, metadata)
