"""Measurements of a slide's mask, piece by piece: areas, graph, margins, depth; as documents and table rows.

The mask is read once, in strips of rows: all follows from its regions and their runs. Boxes in tables are in pixels of
the slide's full resolution, counted from the top left of the scanned area, as QuPath counts them. For research, not for
diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.cancers import cancers_of
from ntrm.analysis.graph import TissueGraph, graph_of
from ntrm.analysis.measure import Measured, measurement_sentences, measurements
from ntrm.analysis.outline import Outline, stride_for, trace_thinned
from ntrm.analysis.regions import Regions, RegionTable, scan_mask
from ntrm.analysis.small_regions import RemovedRegions
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.inference.wsi_inference import FULL
from ntrm.metrics.cancer_rule import CancerFinding
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.pieces import Piece, PieceMap
from ntrm.wsi.quality.checks import Quality

Bytes = NDArray[np.uint8]
Row = dict[str, Any]
EDGE_UM = 20.0
"""A body nearer than this to the scan's edge is taken to be cut off by it."""
MEASUREMENTS = ("orientation", "deep_clearance", "lateral_clearance", "invasion_depth")


@dataclass(frozen=True, eq=False)
class PieceFindings:
    """Measurements of one piece. Lines and boxes are in pixels of the slide's mask."""

    piece: Piece
    window: Window
    touches_edge: bool
    """Whether its body reaches the edge of the scan, by the mask: the tissue of the thumbnail is a little too large."""
    areas_mm2: dict[str, float]
    """By class; classes that are not there have 0."""
    measured: dict[str, Measured]
    """By the names of ``MEASUREMENTS``."""
    cancers: tuple[CancerFinding, ...]
    graph: TissueGraph
    text: tuple[str, ...]
    """Graph and measurements in plain words."""


def scan_slide(
    labels: Bytes, confidence: Bytes, pieces: PieceMap, *, schema: LabelSchema, resolution: Resolution
) -> Regions:
    """The regions of a slide's maps (H, W), which may lie on disk and are read once, in strips."""

    def numbers(top: int, height: int) -> NDArray[np.integer[Any]]:
        return pieces.on_grid(resolution, Window(top, 0, height, labels.shape[1]))

    return scan_mask(labels, schema, resolution, confidence=confidence, full=FULL, pieces=numbers)


def measure_pieces(regions: Regions, pieces: PieceMap, *, schema: LabelSchema) -> Iterator[PieceFindings]:
    """Measure each of the pieces of a slide whose regions are known."""
    resolution = regions.table.resolution
    for piece in pieces.pieces:
        window = piece.window(pieces.mpp, resolution, regions.runs.shape)
        yield _measure(piece, window, regions, schema)


def _measure(piece: Piece, window: Window, regions: Regions, schema: LabelSchema) -> PieceFindings:
    shape, resolution = regions.runs.shape, regions.table.resolution
    own = regions.of_piece(piece.number, window.top, window.left, window.height, window.width)
    stride = stride_for((window.height, window.width))
    thinned = own.runs.window(0, 0, window.height, window.width, stride)
    outline = trace_thinned(thinned, stride, schema, resolution)
    graph, cancers = graph_of(own.table, schema), cancers_of(own.table, schema)
    cut_off = piece.touches_edge and _at_edge(outline, window, shape)
    present = [each.name for each in cancers if each.present]
    findings = measurements(own, outline, schema, touches_edge=cut_off, present=present)
    every = (findings.orientation, findings.clearance.deep, findings.clearance.lateral, findings.depth)
    return PieceFindings(
        piece=piece,
        window=window,
        touches_edge=cut_off,
        areas_mm2=class_areas(own, schema),
        measured={name: each.shifted(window.top, window.left) for name, each in zip(MEASUREMENTS, every, strict=True)},
        cancers=cancers,
        graph=graph,
        text=(*graph.sentences(), *measurement_sentences(findings)),
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


def slide_cancers(pieces: Sequence[PieceFindings]) -> dict[str, dict[str, Any]]:
    """By cancer: present if in any piece, as sure as the surest piece, areas and regions together."""
    total: dict[str, dict[str, Any]] = {}
    for finding in (finding for piece in pieces for finding in piece.cancers):
        so_far = total.setdefault(finding.name, {"present": False, "confidence": 0.0, "area_mm2": 0.0, "regions": 0})
        so_far["present"] |= finding.present
        so_far["confidence"] = max(so_far["confidence"], finding.confidence)
        so_far["area_mm2"] += finding.area_mm2
        so_far["regions"] += finding.regions
    return total


def _known(pieces: Sequence[PieceFindings], name: str) -> list[float]:
    """A measurement of the pieces that have it."""
    return [value for piece in pieces if (value := piece.measured[name].value) is not None]


def slide_row(
    slide_id: str,
    areas_mm2: dict[str, float],
    pieces: Sequence[PieceFindings],
    quality: Quality,
    *,
    grid: SlideGrid,
    schema: LabelSchema,
) -> Row:
    """The row of ``slides``."""
    info = grid.reader.info
    return {
        "slide_id": slide_id,
        "status": "done",
        "warnings": "; ".join(quality.warnings),
        "reader": info.reader,
        "width_px": info.area[2],
        "height_px": info.area[3],
        "slide_mpp_x_um": grid.source.x,
        "slide_mpp_y_um": grid.source.y,
        "mask_mpp_um": grid.model_mpp,
        "mask_width_px": grid.width,
        "mask_height_px": grid.height,
        "pieces": len(pieces),
        "tissue_area_mm2": tissue_area(areas_mm2, schema),
        "deep_clearance_mm": min(_known(pieces, "deep_clearance"), default=None),
        "lateral_clearance_mm": min(_known(pieces, "lateral_clearance"), default=None),
        "invasion_depth_mm": max(_known(pieces, "invasion_depth"), default=None),
        **_by_class(areas_mm2, schema),
        **_cancers(slide_cancers(pieces)),
        **{f"quality_{name}": value for name, value in _plain_quality(quality).items()},
    }


def piece_row(slide_id: str, findings: PieceFindings, *, grid: SlideGrid, schema: LabelSchema) -> Row:
    """A row of ``pieces``."""
    (across, down), window = grid.to_level0[:2], findings.window
    row: Row = {
        "slide_id": slide_id,
        "piece": findings.piece.number,
        "left_px": round(window.left * across, 3),
        "top_px": round(window.top * down, 3),
        "width_px": round(window.width * across, 3),
        "height_px": round(window.height * down, 3),
        "touches_edge": findings.touches_edge,
        "tissue_area_mm2": tissue_area(findings.areas_mm2, schema),
    }
    for name in MEASUREMENTS:
        unit = "deg" if name == "orientation" else "mm"
        row |= {f"{name}_{unit}": findings.measured[name].value, f"{name}_reason": findings.measured[name].reason}
    cancers = {each.name: each.as_dict() for each in findings.cancers}
    return {**row, **_by_class(findings.areas_mm2, schema), **_cancers(cancers)}


def region_rows(slide_id: str, table: RegionTable, *, grid: SlideGrid, schema: LabelSchema) -> list[Row]:
    """The rows of ``regions``, in the order of their numbers."""
    across, down = grid.to_level0[:2]
    boxes = (table.box * [down, across, down, across]).round(3)
    columns = {
        "piece": table.piece,
        "region": table.number,
        "tissue": np.array(schema.names, dtype=object)[table.tissue],
        "area_mm2": table.area_mm2,
        "perimeter_mm": table.perimeter_mm,
        "mean_confidence": np.full(len(table), None) if table.confidence is None else table.confidence,
        **{f"{name}_px": boxes[:, k] for k, name in ((1, "left"), (0, "top"), (3, "width"), (2, "height"))},
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [{"slide_id": slide_id, **dict(zip(columns, row, strict=True))} for row in rows]


def interface_rows(slide_id: str, findings: PieceFindings) -> Iterator[Row]:
    """Rows of ``interfaces``: every pair of tissues that touch, once, and every tissue with the outside."""
    graph = findings.graph
    for i, j in graph.interfaces:
        yield {
            "slide_id": slide_id,
            "piece": findings.piece.number,
            "tissue_a": graph.names[i],
            "tissue_b": graph.names[j],
            "boundary_mm": float(graph.boundary_mm[i, j]),
            "share_of_a": float(graph.boundary_share[i, j]),
            "share_of_b": float(graph.boundary_share[j, i]),
            "contacts": int(graph.contact_counts[i, j]),
        }


def _plain_quality(quality: Quality) -> Row:
    """Flags and scores as plain values, for JSON."""
    return {name: float(value) if name.endswith("_score") else bool(value) for name, value in quality.columns.items()}


def _by_class(areas_mm2: dict[str, float], schema: LabelSchema) -> Row:
    areas = {f"area_{name}_mm2": area for name, area in areas_mm2.items() if name != schema.background}
    return {**areas, **{f"fraction_{name}": value for name, value in fractions(areas_mm2, schema).items()}}


def _cancers(findings: dict[str, dict[str, Any]]) -> Row:
    row: Row = {}
    for name, finding in findings.items():
        row |= {f"cancer_{name}": finding["present"], f"cancer_{name}_confidence": finding["confidence"]}
    return row


def graph_document(findings: PieceFindings) -> dict[str, Any]:
    """The tissue graph of one piece, as NetworkX reads it, and in words."""
    return {
        "piece": findings.piece.number,
        "text": list(findings.graph.sentences()),
        "graph": findings.graph.as_node_link(),
    }


def rest_document(table: RegionTable, schema: LabelSchema) -> dict[str, Any] | None:
    """The graph of the regions outside all pieces, which have piece 0; None where there is no such region."""
    rest = table.of_piece(0)
    return {"piece": 0, "graph": graph_of(rest, schema).as_node_link()} if len(rest) else None


def summary_document(
    areas_mm2: dict[str, float], pieces: Sequence[PieceFindings], quality: Quality, *, schema: LabelSchema
) -> dict[str, Any]:
    """Slide first, then its pieces; lines are in pixels of the mask."""
    return {
        "quality": _plain_quality(quality),
        "warnings": list(quality.warnings),
        "tissue_area_mm2": tissue_area(areas_mm2, schema),
        "areas_mm2": areas_mm2,
        "tissue_fractions": fractions(areas_mm2, schema),
        "cancers": slide_cancers(pieces),
        "pieces": [_piece(piece, schema) for piece in pieces],
    }


def removed_document(removed: RemovedRegions, resolution: Resolution) -> dict[str, Any]:
    """How many small regions were relabelled as what lies around them, and how much area."""
    return {"regions": removed.regions, "area_mm2": removed.pixels * resolution.pixel_area_um2 / 1e6}


def _piece(findings: PieceFindings, schema: LabelSchema) -> dict[str, Any]:
    window = findings.window
    return {
        "number": findings.piece.number,
        "mask_box_px": {"top": window.top, "left": window.left, "height": window.height, "width": window.width},
        "touches_edge": findings.touches_edge,
        "tissue_area_mm2": tissue_area(findings.areas_mm2, schema),
        "areas_mm2": findings.areas_mm2,
        "tissue_fractions": fractions(findings.areas_mm2, schema),
        "measurements": {name: findings.measured[name].as_dict() for name in MEASUREMENTS},
        "cancers": [finding.as_dict() for finding in findings.cancers],
        "text": list(findings.text),
    }
