"""Measurements of a slide's mask, piece by piece: areas, graph, margins, depth; as a summary and as table rows.

The mask is read once, in strips of rows: all follows from its regions and their runs. Boxes in tables are in pixels of
the slide's full resolution, counted from the top left of the scanned area, as QuPath counts them. For research, not for
diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ntrm.core.arrays import FULL, Bytes
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.threads import most_threads, thread_map
from ntrm.data.tiles import Window
from ntrm.regions.cancers import CancerFinding, cancers_of, confirmed_regions, is_tumour_confirmed
from ntrm.regions.graph import TissueGraph, tissue_graph_of
from ntrm.regions.measure import Measurement, measure_piece
from ntrm.regions.outline import Outline, trace_outline
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import PieceGrid, Regions, scan_mask
from ntrm.results.documents import Grid
from ntrm.results.json_files import Document
from ntrm.results.slide_state import Row
from ntrm.results.tables import COLUMNS
from ntrm.slides.pieces import Piece, PieceMap

EDGE_UM = 20.0  # A body nearer than this to the scan's edge is taken to be cut off by it
TOGETHER = 1 << 22  # Runs of a mask up to which its pieces are measured at the same time: that takes memory by the runs
MEASUREMENTS = ("orientation", "deep_clearance", "lateral_clearance", "invasion_depth")


@dataclass(frozen=True, eq=False)
class PieceFindings:
    """Measurements of one piece. Lines and boxes are in pixels of the slide's mask."""

    piece: Piece
    window: Window
    touches_edge: bool
    """Whether its body reaches the edge of the scan, by the mask: the tissue of the thumbnail is a little too large."""
    areas_mm2: dict[str, float]  # By class; classes that are not there have 0
    measured: dict[str, Measurement]  # By the names of ``MEASUREMENTS``
    cancers: tuple[CancerFinding, ...]
    graph: TissueGraph
    text: tuple[str, ...]  # Graph and measurements in plain words
    confirmed: tuple[CancerFinding, ...]
    """Of a corrected mask: by the regions alone of which a person named, or accepted, at least half."""
    tumour_confirmed: bool  # Of a corrected mask: whether there is tumour, and all of it is such regions


def scan_slide(
    labels: Bytes, confidence: Bytes | None, pieces: PieceMap, *, schema: LabelSchema, resolution: Resolution
) -> Regions:
    """The regions of a slide's maps (H, W), which may lie on disk and are read once, in strips."""
    grid = PieceGrid(pieces.numbers, *pieces.cells(resolution, Window(0, 0, *labels.shape)))
    return scan_mask(labels, schema, resolution, confidence=confidence, full=FULL, pieces=grid)


def measure_pieces(regions: Regions, pieces: PieceMap, *, schema: LabelSchema) -> list[PieceFindings]:
    """Measure each of the pieces of a slide whose regions are known, several at a time where they are small."""
    # Much of it is Python's own work, of which one thread does some at a time.
    threads = min(4, most_threads()) if len(regions.runs) <= TOGETHER else 1
    # The largest first: begun last, it would keep all others waiting.
    largest_first = sorted(pieces.pieces, key=lambda piece: -piece.area_mm2)
    found = thread_map(lambda piece: _measured(piece, regions, pieces, schema), largest_first, threads)
    return sorted(found, key=lambda each: each.piece.number)


def _measured(piece: Piece, regions: Regions, pieces: PieceMap, schema: LabelSchema) -> PieceFindings:
    resolution, shape = regions.table.resolution, regions.runs.shape
    window = pieces.window(piece, resolution, shape)
    own = regions.of_piece(piece.number, window.top, window.left, window.height, window.width)
    outline = trace_outline(own.runs, schema, resolution)
    graph, cancers = tissue_graph_of(own.table, schema), cancers_of(own.table, schema)
    cut_off = piece.touches_edge and _at_edge(outline, window, shape)
    present = [each.name for each in cancers if each.present]
    findings = measure_piece(own, outline, schema, touches_edge=cut_off, present=present)
    every = (findings.orientation, findings.deep, findings.lateral, findings.depth)
    return PieceFindings(
        piece=piece,
        window=window,
        touches_edge=cut_off,
        areas_mm2=class_areas(own, schema),
        measured={name: each.shifted(window.top, window.left) for name, each in zip(MEASUREMENTS, every, strict=True)},
        cancers=cancers,
        graph=graph,
        text=(*graph.sentences(), *findings.sentences),
        confirmed=() if own.table.person is None else cancers_of(own.table, schema, confirmed_regions(own.table)),
        tumour_confirmed=is_tumour_confirmed(own.table, schema),
    )


def _at_edge(outline: Outline, window: Window, shape: tuple[int, int]) -> bool:
    """Whether the body in ``window`` comes so near to the edge of the scan that this may have cut it off."""
    if outline.bulk is None:
        return True
    corner = np.array([window.top, window.left])
    before, behind = outline.bulk[:2] + corner, np.array(shape) - 1 - (outline.bulk[2:] + corner)
    return bool((np.minimum(before, behind) * outline.scale_um).min() <= EDGE_UM)


def class_areas(regions: Regions, schema: LabelSchema) -> dict[str, float]:
    """Area in mm² of each class, including the background."""
    pixels, pixel_um2 = regions.pixels, regions.table.resolution.pixel_area_um2
    return {name: float(pixels[k]) * pixel_um2 / 1e6 for k, name in enumerate(schema.names)}


def tissue_area(areas_mm2: dict[str, float], schema: LabelSchema) -> float:
    """All classes but the background."""
    return sum(area for name, area in areas_mm2.items() if name != schema.background)


def fractions(areas_mm2: dict[str, float], schema: LabelSchema) -> dict[str, float | None]:
    """Fraction of each class but the background in the tissue; None where there is no tissue."""
    tissue = tissue_area(areas_mm2, schema)
    return {name: area / tissue if tissue else None for name, area in areas_mm2.items() if name != schema.background}


def region_rows(slide_id: str, table: RegionTable, *, grid: Grid, schema: LabelSchema) -> Iterator[Row]:
    """The rows of ``regions``, in the order of their numbers."""
    across, down = grid.to_level0[:2]
    top, left, height, width = (table.box * [down, across, down, across]).round(3).T
    tissue = np.array(schema.names, dtype=object)[table.tissue]
    confidence = np.full(len(table), None) if table.confidence is None else table.confidence.astype(object)
    if table.person is not None:
        confidence[np.isnan(confidence.astype(np.float64))] = None
    person = [{}] * len(table) if table.person is None else [_by_person(row) for row in table.person.tolist()]
    own = (table.piece, table.number, tissue, table.area_mm2, table.perimeter_mm, confidence, left, top, width, height)
    for corrected, *cells in zip(person, *(column.tolist() for column in own), strict=True):
        yield dict(zip(COLUMNS["regions"], (slide_id, *cells), strict=True)) | corrected


def _by_person(fractions: list[float]) -> Row:
    return dict(zip(("corrected_by_hand", "corrected_followed"), fractions, strict=True))


def interface_rows(slide_id: str, findings: PieceFindings) -> Iterator[Row]:
    """Rows of ``interfaces``: every pair of tissues that touch, once, and every tissue with the outside."""
    graph, share = findings.graph, findings.graph.boundary_share
    for i, j in graph.interfaces:
        pair = (graph.names[i], graph.names[j])
        shares = (float(share[i, j]), float(share[j, i]))
        cells = (*pair, float(graph.boundary_mm[i, j]), *shares, int(graph.contact_counts[i, j]))
        yield dict(zip(COLUMNS["interfaces"], (slide_id, findings.piece.number, *cells), strict=True))


def rest_graph(table: RegionTable, schema: LabelSchema) -> Document | None:
    """The graph of the regions outside all pieces, which have piece 0; None where there is no such region."""
    rest = table.of_piece(0)
    return tissue_graph_of(rest, schema).as_node_link() if len(rest) else None
