"""Measurements of a slide's mask, piece by piece: areas, graph, margins, depth; as a summary and as table rows.

The mask is read once, in strips of rows: all follows from its regions and their runs. Boxes in tables are in pixels of
the slide's full resolution, counted from the top left of the scanned area, as QuPath counts them.

Areas, regions and borders stay in all files, since they are what the network says. Presence, confidence, clearance and
depth are conclusions, and of an unfamiliar slide none is drawn from what the network says. Once a person corrects the
slide, a cancer that they name is present by their word; what they did not name stays not assessed, and clearance and
depth are measured only where all of the tumour is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ntrm.core.arrays import FULL, Bytes
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.threads import most_threads, thread_map
from ntrm.data.tiles import Window
from ntrm.regions.cancers import SMALLEST_REGION_MM2, cancers_of, confirmed_regions, is_tumour_confirmed
from ntrm.regions.graph import TissueGraph, tissue_graph_of
from ntrm.regions.measure import Measurement, measure_piece, sentences_of
from ntrm.regions.outline import Outline, trace_outline
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import PieceGrid, Regions, scan_mask
from ntrm.results.documents import Box, Grid, Measure, PieceSummary
from ntrm.results.familiarity import NOT_ASSESSED, UNLIKE, SlideFamiliarity
from ntrm.results.slide_state import Row
from ntrm.results.tables import COLUMNS
from ntrm.slides.pieces import Piece, PieceMap

UNNAMED_LEFT = "not all of the tissue has a name yet"
TOGETHER = 1 << 22  # Runs of a mask up to which its pieces are measured at the same time: that takes memory by the runs


class MeasuredPiece(NamedTuple):
    """One piece, and its tissue graph, also in plain words."""

    summary: PieceSummary
    graph: TissueGraph
    text: tuple[str, ...]


def scan_slide(
    labels: Bytes, confidence: Bytes | None, pieces: PieceMap, *, schema: LabelSchema, resolution: Resolution
) -> Regions:
    """The regions of a slide's maps (H, W), which may lie on disk and are read once, in strips."""
    grid = PieceGrid(pieces.numbers, *pieces.cells(resolution, Window(0, 0, *labels.shape)))
    return scan_mask(labels, schema, resolution, confidence=confidence, full=FULL, pieces=grid)


def measure_pieces(
    regions: Regions, pieces: PieceMap, familiarity: SlideFamiliarity, *, schema: LabelSchema
) -> list[MeasuredPiece]:
    """Measure each of the pieces of a slide whose regions are known, several at a time where they are small."""
    # Much of it is Python's own work, of which one thread does some at a time.
    threads = min(4, most_threads()) if len(regions.runs) <= TOGETHER else 1
    return [*thread_map(lambda piece: _measured(piece, regions, pieces, familiarity, schema), pieces.pieces, threads)]


def _measured(
    piece: Piece, regions: Regions, pieces: PieceMap, familiarity: SlideFamiliarity, schema: LabelSchema
) -> MeasuredPiece:
    resolution, shape = regions.table.resolution, regions.runs.shape
    window = pieces.window(piece, resolution, shape)
    box = (window.top, window.left, window.height, window.width)
    own = regions.of_piece(piece.number, *box)
    outline = trace_outline(own.runs, schema, resolution)
    graph, cancers = tissue_graph_of(own.table, schema), cancers_of(own.table, schema)
    cut_off = piece.touches_edge and _at_edge(outline, window, shape)
    present = [each.name for each in cancers if each.present]
    found = measure_piece(own, outline, schema, touches_edge=cut_off, present=present)
    lengths, strays = [found.deep, found.lateral, found.depth], found.strays
    text, why_not, short = graph.sentences(), familiarity.ruling(piece.number).why_not_assessed, UNLIKE
    if not why_not and cancers and _has_unnamed(own.table, schema):
        why_not = short = UNNAMED_LEFT
    if why_not:
        # What a person named stays, by their word.
        confirmed = () if own.table.person is None else cancers_of(own.table, schema, confirmed_regions(own.table))
        named = {each.name: each for each in confirmed if each.present}
        reason = f"{NOT_ASSESSED}: {why_not}"
        cancers = tuple(
            named.get(each.name) or replace(each, present=None, confidence=None, reason=reason) for each in cancers
        )
        if not is_tumour_confirmed(own.table, schema):
            # For all of these the tumour must be known.
            lengths, strays = [Measurement(each.name, None, each.unit, short) for each in lengths], 0
            text = (*graph.sentences(tumours=False), f"Tumours: {NOT_ASSESSED}, {why_not}.")
    areas_mm2 = class_areas(own, schema)
    tissue, fractions = in_tissue(areas_mm2, schema)
    names = ("orientation", "deep_clearance", "lateral_clearance", "invasion_depth")
    placed = (each.shifted(window.top, window.left) for each in (found.orientation, *lengths))
    summary = PieceSummary(
        number=piece.number,
        mask_box_px=Box(*box),
        touches_edge=cut_off,
        tissue_area_mm2=tissue,
        areas_mm2=areas_mm2,
        tissue_fractions=fractions,
        measurements={name: Measure(m.value, m.unit, m.reason, m.line) for name, m in zip(names, placed, strict=True)},
        cancers=cancers,
        text=(*text, *sentences_of(lengths, found.orientation, strays)),
        familiarity=familiarity.of_piece(piece.number),
    )
    return MeasuredPiece(summary, graph, text)


def _has_unnamed(table: RegionTable, schema: LabelSchema) -> bool:
    """Whether there is tissue, more than specks, that nobody has named yet: tumour may lie there."""
    return bool((table.area_mm2[table.tissue == schema.unnamed_index] >= SMALLEST_REGION_MM2).any())


def _at_edge(outline: Outline, window: Window, shape: tuple[int, int]) -> bool:
    """Whether the body in ``window`` comes within 20 µm of the edge of the scan, which may have cut it off."""
    if outline.bulk is None:
        return True
    corner = np.array([window.top, window.left])
    before, behind = outline.bulk[:2] + corner, np.array(shape) - 1 - (outline.bulk[2:] + corner)
    return bool((np.minimum(before, behind) * outline.scale_um).min() <= 20.0)


def class_areas(regions: Regions, schema: LabelSchema) -> dict[str, float]:
    """Area in mm² of each class, including the background."""
    pixels, pixel_um2 = regions.pixels, regions.table.resolution.pixel_area_um2
    return {name: float(pixels[k]) * pixel_um2 / 1e6 for k, name in enumerate(schema.names)}


def in_tissue(areas_mm2: dict[str, float], schema: LabelSchema) -> tuple[float, dict[str, float | None]]:
    """Area of all classes but the background, and the fraction of each in it; None where there is no tissue."""
    areas = {name: area for name, area in areas_mm2.items() if name != schema.background}
    tissue = sum(areas.values())
    return tissue, {name: area / tissue if tissue else None for name, area in areas.items()}


def region_rows(slide_id: str, table: RegionTable, *, grid: Grid, schema: LabelSchema) -> Iterator[Row]:
    """The rows of ``regions``, in the order of their numbers."""
    across, down = grid.to_level0[:2]
    top, left, height, width = (table.box * [down, across, down, across]).round(3).T
    tissue = np.array(schema.names, dtype=object)[table.tissue]
    confidence = np.full(len(table), None) if table.confidence is None else table.confidence.astype(object)
    if table.person is not None:
        confidence[np.isnan(confidence.astype(np.float64))] = None
    own = [table.piece, table.number, tissue, table.area_mm2, table.perimeter_mm, confidence, left, top, width, height]
    columns = list(COLUMNS["regions"])
    if table.person is not None:
        own, columns = [*own, *table.person.T], [*columns, "corrected_by_hand", "corrected_followed"]
    for cells in zip(*(column.tolist() for column in own), strict=True):
        yield dict(zip(columns, (slide_id, *cells), strict=True))


def interface_rows(slide_id: str, piece: int, graph: TissueGraph) -> Iterator[Row]:
    """Rows of ``interfaces``: every pair of tissues that touch, once, and every tissue with the outside."""
    share = graph.boundary_share
    for i, j in graph.interfaces:
        pair = (graph.names[i], graph.names[j])
        shares = (float(share[i, j]), float(share[j, i]))
        cells = (*pair, float(graph.boundary_mm[i, j]), *shares, int(graph.contact_counts[i, j]))
        yield dict(zip(COLUMNS["interfaces"], (slide_id, piece, *cells), strict=True))
