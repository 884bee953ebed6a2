"""The files of a finished slide, from its maps on disk: mask, polygons, graph, summary, pictures, report.

No clock, no names: the same maps give the same bytes, so that it does not matter when a run was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.graph import NetworkRelations
from ntrm.analysis.regions import Regions
from ntrm.analysis.small_regions import RemovedRegions
from ntrm.core.labels import LabelSchema
from ntrm.export.geojson import write_geojson
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.ome_zarr import ProbabilityZarr, write_labels_zarr
from ntrm.inference.mask_store import COARSE, CONFIDENCE, LABELS, DiskArray
from ntrm.pipeline.assessment import graph_text, piece_summary, refuse_unfamiliar, slide_cancers
from ntrm.pipeline.measurements import (
    PieceFindings,
    class_areas,
    fractions,
    interface_rows,
    measure_pieces,
    region_rows,
    rest_graph,
    scan_slide,
    tissue_area,
)
from ntrm.pipeline.options import Options
from ntrm.pipeline.overview import SlideOverview
from ntrm.pipeline.pictures import write_familiarity_map, write_overlays, write_plain
from ntrm.report.slide_report import write_slide_report
from ntrm.results.documents import Summary, write_graph
from ntrm.results.familiarity import NOT_ASSESSED, UNLIKE, WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, LABELS_ZARR, MASK, PROBABILITIES_ZARR, REGIONS
from ntrm.results.run_record import Run
from ntrm.results.slide_state import Tables
from ntrm.results.tables import piece_row, slide_row
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.pieces import PieceMap

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

    def metadata(self) -> dict[str, str]:
        """The origin of a file, for formats that take keys and texts only."""
        grid, run = self.grid, self.run
        return {
            "slide_id": self.slide_id,
            **{key: str(value) for key, value in run.cells().items() if key != "ntrm_version"},
            "slide µm/px": f"{grid.source.x:.9g} {grid.source.y:.9g}",
            "to level 0 (sx sy ox oy)": " ".join(f"{value:.9g}" for value in grid.to_level0),
            "options": " ".join(f"{key}={value}" for key, value in run.options.items()),
            "purpose": run.purpose,
        }


def write_outputs(prediction: SlidePrediction, to: SlideOutput) -> Tables:
    """Write all files of a slide; returns the rows of the tables.

    A thread writes mask, polygons and report while this one measures and draws.
    """
    folder, slide_id, grid, schema, overview = to.folder, to.slide_id, to.grid, to.schema, to.overview
    labels, resolution = prediction.array(LABELS), grid.resolution
    pieces_map = PieceMap.of(overview.tissue_of(labels, schema, to.options), overview.resolution)
    about = {"slide_id": slide_id, **to.run.identity(), "grid": asdict(grid.record())}
    with background_worker() as background:
        # A strict run writes nothing before it is sure that the slide is not refused.
        ahead = not to.options.strict
        masks = background.submit(_write_masks, prediction, to) if ahead else None
        regions = scan_slide(labels, prediction.array(CONFIDENCE), pieces_map, schema=schema, resolution=resolution)

        def write_polygons(familiarity: SlideFamiliarity | None = None) -> Future[None]:
            return background.submit(_write_polygons, regions, to, about, familiarity)

        early = write_polygons() if ahead and grid.height * grid.width <= TOGETHER else None
        pieces = [*measure_pieces(regions, pieces_map, schema=schema)]
        familiarity = to.judge(prediction, pieces_map, regions, pieces)
        refuse_unfamiliar(familiarity, to.options)
        masks = masks or background.submit(_write_masks, prediction, to)
        # Those of an unfamiliar slide are written again, with the warning.
        polygons = early if early is not None and not familiarity.warnings else write_polygons(familiarity)
        network = None if prediction.network is None else prediction.network.as_dict()
        write_graph(folder, about, network, _graphs(pieces, familiarity), rest_graph(regions.table, schema))
        summary = _summarise(to, class_areas(regions, schema), pieces, prediction.removed, familiarity)
        summary.write(folder)
        write_plain(folder, overview.picture)
        write_familiarity_map(folder, overview.picture, familiarity, (grid.height, grid.width))
        # All that it reads is there once the mask is, which comes before it in that thread.
        report = background.submit(write_slide_report, folder) if to.options.report else None
        write_overlays(folder, overview.picture, labels, schema, resolution, summary)
        for future in (masks, early, polygons, report):
            if future is not None:
                future.result()
        return {
            "slides": (slide_row(summary),),
            "pieces": tuple(piece_row(summary, piece) for piece in summary.pieces),
            "regions": tuple(region_rows(slide_id, regions.table, grid=grid, schema=schema)),
            "interfaces": tuple(row for piece in pieces for row in interface_rows(slide_id, piece)),
        }


def _graphs(
    pieces: Sequence[PieceFindings], familiarity: SlideFamiliarity
) -> dict[int, tuple[Sequence[str], dict[str, Any]]]:
    """By the number of a piece: its graph in words, and as a document."""
    ruled = [(each.piece.number, each, familiarity.ruling(each.piece.number)) for each in pieces]
    return {number: (graph_text(each, ruling), each.graph.as_node_link()) for number, each, ruling in ruled}


def _summarise(
    to: SlideOutput,
    areas_mm2: dict[str, float],
    pieces: Sequence[PieceFindings],
    removed: RemovedRegions | None,
    familiarity: SlideFamiliarity,
) -> Summary:
    run, schema, quality, pixel_um2 = to.run, to.schema, to.overview.quality, to.grid.resolution.pixel_area_um2
    small = None if removed is None else {"regions": removed.regions, "area_mm2": removed.pixels * pixel_um2 / 1e6}
    return Summary(
        slide_id=to.slide_id,
        program=run.program,
        model=run.model,
        options=run.options,
        classes=run.classes,
        purpose=run.purpose,
        grid=to.grid.record(),
        quality={name: float(v) if name.endswith("_score") else bool(v) for name, v in quality.columns.items()},
        familiarity=familiarity.slide,
        warnings=(*familiarity.warnings, *quality.warnings),
        tissue_area_mm2=tissue_area(areas_mm2, schema),
        areas_mm2=areas_mm2,
        tissue_fractions=fractions(areas_mm2, schema),
        cancers=slide_cancers(pieces, familiarity),
        pieces=tuple(piece_summary(piece, schema, familiarity) for piece in pieces),
        small_regions=small,
    )


def _write_masks(prediction: SlidePrediction, to: SlideOutput) -> None:
    """The mask, and the files on request."""
    folder, schema, resolution = to.folder, to.schema, to.grid.resolution
    labels, metadata = prediction.array(LABELS), to.metadata()
    named: dict[str, Any] = {"name": to.slide_id, "metadata": metadata}
    write_mask_ome_tiff(folder / MASK, labels, schema, resolution, **named)
    if to.options.zarr:
        write_labels_zarr(folder / LABELS_ZARR, labels, schema, resolution, metadata=metadata)
    if to.options.maps:
        write_confidence_ome_tiff(folder / CONFIDENCE_MAP, prediction.array(CONFIDENCE), resolution, **named)
    if COARSE in prediction.maps:
        write_mask_ome_tiff(folder / COARSE_MASK, prediction.array(COARSE), schema, resolution, **named)
    if prediction.probabilities is not None:
        prediction.probabilities.complete(folder / PROBABILITIES_ZARR, metadata)


def _write_polygons(
    regions: Regions, to: SlideOutput, about: dict[str, Any], familiarity: SlideFamiliarity | None
) -> None:
    """The file for QuPath; of an unfamiliar slide, each annotation says that cancers are not assessed."""
    warnings = [] if familiarity is None else [*familiarity.warnings]
    unlike = familiarity is not None and not familiarity.slide.assessed
    write_geojson(
        to.folder / REGIONS,
        regions,
        to.schema,
        to_level0=to.grid.to_level0,
        bounds=to.grid.reader.info.bounds,
        simplify_um=to.options.simplify_um,
        gzip=to.options.gzip,
        metadata={"cancers": f"{NOT_ASSESSED}: {UNLIKE}"} if unlike else None,
        document={**about, "warnings": warnings} if warnings else about,
        identity=to.slide_id,
    )
