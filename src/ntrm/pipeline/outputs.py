"""The files of a finished slide, from its maps on disk: mask, polygons, graph, summary, pictures, report.

No clock, no names: the same maps give the same bytes, so that it does not matter when a run was killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from ntrm.core.io import write_json
from ntrm.core.labels import LabelSchema
from ntrm.export.geojson import write_geojson
from ntrm.export.ome_tiff import write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.ome_zarr import ProbabilityZarr, write_labels_zarr
from ntrm.inference.mask_store import COARSE, CONFIDENCE, LABELS, DiskArray
from ntrm.pipeline.measurements import (
    Row,
    class_areas,
    graph_document,
    interface_rows,
    measure_pieces,
    piece_row,
    region_rows,
    removed_document,
    rest_document,
    scan_slide,
    slide_row,
    summary_document,
)
from ntrm.pipeline.options import Identity, Options
from ntrm.pipeline.overview import SlideOverview
from ntrm.pipeline.pictures import write_overlays, write_plain
from ntrm.report.slide_report import write_slide_report
from ntrm.results.paths import (
    COARSE_MASK,
    CONFIDENCE_MAP,
    GRAPH,
    LABELS_ZARR,
    MASK,
    PROBABILITIES_ZARR,
    REGIONS,
    SUMMARY,
)
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.pieces import PieceMap


@contextmanager
def background_worker() -> Iterator[Executor]:
    """A thread that does one task after the other; what has not begun when the block ends is not done any more."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="ntrm-background")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# The files of a finished slide, from its maps on disk: mask, polygons, graph, summary, picture. No clock, no names.
#
# The same maps give the same bytes, so that it does not matter when a run was killed.


Bytes = NDArray[np.uint8]
TOGETHER = 1 << 26
"""Pixels of a slide up to which it is measured while its polygons are made: each of the two takes memory."""


@dataclass(frozen=True, eq=False)
class SlidePrediction:
    """What the network said of a slide, perhaps without small regions."""

    maps: Mapping[str, DiskArray]
    """(H, W) by name: labels, confidence, and the coarse head's labels where they were asked for."""
    probabilities: ProbabilityZarr | None = None
    network: NetworkRelations | None = None
    """Its relations of tissues; None for networks that have none."""
    removed: RemovedRegions | None = None
    """The small regions that were relabelled; None where nobody asked for that."""

    def array(self, name: str) -> Bytes:
        """A map as those see it who only ask for its rows and rectangles."""
        return cast("Bytes", self.maps[name])


def derive(
    folder: Path,
    slide_id: str,
    found: SlidePrediction,
    *,
    overview: SlideOverview,
    grid: SlideGrid,
    schema: LabelSchema,
    identity: Identity,
    options: Options,
) -> dict[str, list[Row]]:
    """Write everything that can be told from what was found; returns the rows of the tables.

    Mask, polygons and report are written by a thread beside what is measured and drawn.
    """
    labels, confidence = found.array(LABELS), found.array(CONFIDENCE)
    resolution = grid.resolution
    places = PieceMap.of(overview.tissue_of(labels, schema, options), overview.resolution)
    about = {"slide_id": slide_id, **identity.as_dict(), "grid": grid.as_dict()}
    with background_worker() as background:
        masks = background.submit(_write_masks, folder, slide_id, found, grid, schema, identity, options)

        regions = scan_slide(labels, confidence, places, schema=schema, resolution=resolution)

        def write_polygons() -> Future[None]:
            return background.submit(_write_polygons, folder, slide_id, regions, grid, schema, about)

        early = write_polygons() if grid.height * grid.width <= TOGETHER else None
        pieces = [*measure_pieces(regions, places, schema=schema)]
        polygons = early or write_polygons()
        areas = class_areas(regions, schema)
        network = None if found.network is None else found.network.as_dict()
        graphs, rest = [graph_document(piece) for piece in pieces], rest_document(regions.table, schema)
        write_json(folder / GRAPH, {**about, "network": network, "pieces": graphs, "outside_pieces": rest})
        summary = {**about, **summary_document(areas, pieces, overview.quality, schema=schema)}
        summary["small_regions"] = None if found.removed is None else removed_document(found.removed, resolution)
        write_json(folder / SUMMARY, summary)
        write_plain(folder, overview.picture)
        # All that it reads is there once the mask is, which comes before it in that thread.
        report = background.submit(write_slide_report, folder) if options.report else None
        write_overlays(folder, overview.picture, labels, schema, resolution, summary)
        masks.result()
        polygons.result()
        if report is not None:
            report.result()
        return {
            "slides": [slide_row(slide_id, areas, pieces, overview.quality, grid=grid, schema=schema)],
            "pieces": [piece_row(slide_id, piece, grid=grid, schema=schema) for piece in pieces],
            "regions": region_rows(slide_id, regions.table, grid=grid, schema=schema),
            "interfaces": [row for piece in pieces for row in interface_rows(slide_id, piece)],
        }


def _write_masks(
    folder: Path,
    slide_id: str,
    found: SlidePrediction,
    grid: SlideGrid,
    schema: LabelSchema,
    identity: Identity,
    options: Options,
) -> None:
    """The mask, and the files on request."""
    labels, resolution, words = found.array(LABELS), grid.resolution, plain_words(slide_id, grid, identity)
    write_mask_ome_tiff(folder / MASK, labels, schema, resolution, name=slide_id, metadata=words)
    if options.zarr:
        write_labels_zarr(folder / LABELS_ZARR, labels, schema, resolution, metadata=words)
    if options.maps:
        write_confidence_ome_tiff(
            folder / CONFIDENCE_MAP, found.array(CONFIDENCE), resolution, name=slide_id, metadata=words
        )
    if COARSE in found.maps:
        write_mask_ome_tiff(
            folder / COARSE_MASK, found.array(COARSE), schema, resolution, name=slide_id, metadata=words
        )
    if found.probabilities is not None:
        found.probabilities.complete(folder / PROBABILITIES_ZARR, words)


def plain_words(slide_id: str, grid: SlideGrid, identity: Identity) -> dict[str, str]:
    """What every file says of its origin, where only keys and texts are possible."""
    transform = " ".join(f"{value:.9g}" for value in grid.to_level0)
    return {
        "slide_id": slide_id,
        **{key: str(value) for key, value in identity.cells().items() if key != "ntrm_version"},
        "slide µm/px": f"{grid.source.x:.9g} {grid.source.y:.9g}",
        "to level 0 (sx sy ox oy)": transform,
        "options": " ".join(f"{key}={value}" for key, value in identity.options.items()),
        "purpose": identity.as_dict()["purpose"],
    }


def _write_polygons(
    folder: Path, slide_id: str, regions: Regions, grid: SlideGrid, schema: LabelSchema, about: dict[str, Any]
) -> None:
    """The file for QuPath."""
    options = about["options"]
    write_geojson(
        folder / REGIONS,
        regions,
        schema,
        to_level0=grid.to_level0,
        bounds=grid.reader.info.bounds,
        simplify_um=options["simplify_um"],
        gzip=options["gzip"],
        document=about,
        identity=slide_id,
    )
