"""The files of a slide, from what the network says: mask, polygons, graph, summary, pictures, report.

No clock, no names: the same maps give the same bytes, so that it does not matter when a run was killed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ntrm.analysis.graph import tissue_graph_of
from ntrm.analysis.regions import Regions
from ntrm.analysis.small_regions import RemovedRegions
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.ome_zarr import write_labels_zarr, write_probabilities_zarr
from ntrm.familiarity.recorder import SlideBlocks, judge_slide
from ntrm.familiarity.reference import Reference
from ntrm.inference.predict import Maps
from ntrm.pipeline.assessment import refuse_unfamiliar
from ntrm.pipeline.measurements import PieceFindings, measure_pieces, scan_slide
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
from ntrm.report.slide_report import write_slide_report
from ntrm.results.documents import StainNorm, Summary
from ntrm.results.familiarity import WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.results.graph_document import Network
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, HIDDEN, LABELS_ZARR, PIECES, PROBABILITIES_ZARR
from ntrm.results.slide_state import Plan, Tables
from ntrm.slides.inputs import SlideInput
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.pieces import NO_PIECE, PieceMap

THREADS = 3
"""That write files of one slide at the same time, beside the one that measures."""
BEHIND = 1 << 28
"""Pixels of a slide up to which its files are written while the network works on the next: they take memory."""


@dataclass(frozen=True, eq=False)
class PredictedSlide:
    """What the network says about a slide, and what its files say about slide and run."""

    slide: SlideInput
    plan: Plan
    files: SlideFiles
    overview: SlideOverview
    grid: SlideGrid
    maps: Maps
    held: ExitStack
    """The slide's lock, and files of large maps. Until it is closed, no other process can take the slide."""
    relations: Network | None = None
    """The network's relations of tissues; None for networks that have none."""
    blocks: SlideBlocks | None = None
    """What its windows look like; None where the model has no reference to compare them with."""
    stained: StainNorm | None = None
    """What was done to the slide's stains; None where nobody asked for that."""
    removed: RemovedRegions | None = None
    """The small regions that were relabelled; None where nobody asked for that."""

    @property
    def large(self) -> bool:
        """Whether its files are written before the network works on the next slide: they take memory."""
        return self.grid.height * self.grid.width > BEHIND


def write_outputs(found: PredictedSlide, options: Options, reference: Reference | None) -> Tables:
    """Find the regions of a slide, judge and measure it, and write its files; returns the rows of the tables."""
    files, overview, resolution = found.files, found.overview, found.grid.resolution
    folder, schema, labels = files.folder, files.schema, found.maps.labels
    pieces_map = PieceMap.of(overview.tissue_of(labels, schema, options), overview.resolution)
    regions = scan_slide(labels, found.maps.confidence, pieces_map, schema=schema, resolution=resolution)
    # Before all that says whether cancers are assessed, so that it is written once.
    familiarity = _judged(found, pieces_map, regions, reference)
    refuse_unfamiliar(familiarity, options)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="ntrm-files") as pool:
        tinted = pool.submit(TintedSlide.of, overview.picture, labels, schema)
        written = [
            pool.submit(files.write_mask, labels),
            pool.submit(write_plain, folder, overview.picture),
            pool.submit(_write_familiarity_map, found, familiarity),
            pool.submit(_write_more, found, pieces_map, options),
        ]
        pieces = measure_pieces(regions, pieces_map, schema=schema)
        # Not beside measuring: both take memory by the regions.
        written.append(pool.submit(files.write_polygons, regions, familiarity))
        summary = _summarise(found, regions, pieces, familiarity)
        written.append(pool.submit(write_overlays, folder, tinted.result(), resolution, summary))
        summary.write(folder)
        files.write_graph(regions, pieces, familiarity, found.relations)
        tables = files.tables(summary, regions, pieces)
        for future in written:
            future.result()
    if options.report:
        write_slide_report(folder)
    return tables


def _judged(found: PredictedSlide, pieces: PieceMap, regions: Regions, reference: Reference | None) -> SlideFamiliarity:
    """Compare the slide and its pieces with what the model was trained on."""
    if reference is None or found.blocks is None:
        return SlideFamiliarity(WITHOUT_REFERENCE, {})
    schema = found.files.schema
    # A slide of crumbs alone, as a small tile is, is judged by them.
    numbers = [piece.number for piece in pieces.pieces] or [NO_PIECE]
    graphs = {number: tissue_graph_of(regions.table.of_piece(number), schema) for number in numbers}
    return judge_slide(found.blocks, pieces, graphs, reference, schema, found.grid.resolution)


def _write_familiarity_map(found: PredictedSlide, familiarity: SlideFamiliarity) -> None:
    pale = resized(found.overview.picture, SMALLEST_MAP, LARGEST_MAP)
    write_familiarity_map(found.files.folder, pale, familiarity, (found.grid.height, found.grid.width))


def _summarise(
    found: PredictedSlide, regions: Regions, pieces: list[PieceFindings], familiarity: SlideFamiliarity
) -> Summary:
    quality, stained, removed = found.overview.quality, found.stained, found.removed
    pixel_um2 = found.grid.resolution.pixel_area_um2
    return found.files.summary(
        regions,
        pieces,
        familiarity,
        quality={name: float(v) if name.endswith("_score") else bool(v) for name, v in quality.columns.items()},
        quality_warnings=(*found.grid.warnings, *quality.warnings, *(() if stained is None else stained.warnings)),
        small_regions=None
        if removed is None
        else {"regions": removed.regions, "area_mm2": removed.pixels * pixel_um2 / 1e6},
        stain_norm=stained,
    )


def _write_more(found: PredictedSlide, pieces: PieceMap, options: Options) -> None:
    """Write the pieces, for corrections, and the optional files."""
    files = found.files
    folder, schema, resolution, metadata = files.folder, files.schema, files.grid.resolution, files.metadata()
    named: dict[str, Any] = {"name": files.slide_id, "metadata": metadata}
    pieces.save(folder / HIDDEN / PIECES)
    if options.zarr:
        write_labels_zarr(folder / LABELS_ZARR, found.maps.labels, schema, resolution, metadata=metadata)
    if options.maps:
        write_confidence_ome_tiff(folder / CONFIDENCE_MAP, found.maps.confidence, resolution, **named)
    if found.maps.coarse is not None:
        write_mask_ome_tiff(folder / COARSE_MASK, found.maps.coarse, schema, resolution, **named)
    if found.maps.probabilities is not None:
        path, values = folder / PROBABILITIES_ZARR, found.maps.probabilities
        write_probabilities_zarr(path, values, schema, resolution, metadata=metadata)
