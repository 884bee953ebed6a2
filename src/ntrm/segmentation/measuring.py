"""What the mask of a slide says, piece by piece: areas, tissue graph, margins, depth, orientation, cancers.

One piece is held in memory at a time. For research, not for diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.data.tiles import Window
from ntrm.evaluation.cancers import CancerFinding, cancer_types
from ntrm.labels import CANCERS, IGNORE, LabelSchema
from ntrm.relations.graph import TissueGraph, tissue_graph
from ntrm.relations.measure import measure_piece
from ntrm.relations.measured import Measured
from ntrm.relations.outline import Outline, trace_outline
from ntrm.relations.runs import runs_of
from ntrm.relations.sentences import measurement_sentences
from ntrm.resolution import Resolution
from ntrm.slide.pieces import Piece, find_pieces, labels_on_grid
from ntrm.slide.segment import FULL

Bytes = NDArray[np.uint8]
EDGE_UM = 20.0
"""A body nearer than this to the scan's edge is taken to be cut off by it."""
MEASUREMENTS = ("orientation", "deep_clearance", "lateral_clearance", "invasion_depth")


@dataclass(frozen=True, eq=False)
class PieceFindings:
    """What one piece says. Lines and boxes are in pixels of the slide's mask."""

    piece: Piece
    window: Window
    touches_edge: bool
    """Whether its body reaches the edge of the scan, by the mask; the tissue seen from afar is a little too large."""
    areas_mm2: dict[str, float]
    """By class; classes that are not there have 0."""
    measured: dict[str, Measured]
    """By the names of ``MEASUREMENTS``."""
    cancers: tuple[CancerFinding, ...]
    graph: TissueGraph
    text: tuple[str, ...]
    """Graph and measurements in plain words."""

    @property
    def number(self) -> int:
        """Of the piece, from 1."""
        return self.piece.number


def measure_pieces(
    labels: Bytes,
    confidence: Bytes,
    tissue: NDArray[np.bool_],
    tissue_mpp: Resolution,
    *,
    schema: LabelSchema,
    resolution: Resolution,
) -> Iterator[PieceFindings]:
    """Find the pieces of ``tissue`` and measure each in the slide's maps (H, W), which may lie on disk."""
    shape = labels.shape[0], labels.shape[1]
    pieces, numbers = find_pieces(tissue, tissue_mpp)
    for piece in pieces:
        window = piece.window(tissue_mpp, resolution, shape)
        inside = labels_on_grid(numbers, tissue_mpp, resolution, window) == piece.number
        mask = np.where(inside, labels[window.slices], IGNORE).astype(np.uint8)
        yield _measure(piece, window, mask, confidence[window.slices], schema, resolution, shape=shape)


def _measure(
    piece: Piece,
    window: Window,
    mask: Bytes,
    confidence: Bytes,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    shape: tuple[int, int],
) -> PieceFindings:
    graph = tissue_graph(mask, schema, resolution, confidence=confidence, full=FULL)
    cancers = _cancers(mask, confidence, graph, schema, resolution)
    outline = trace_outline(mask, schema, resolution)
    cut_off = piece.touches_edge and _at_edge(outline, window, shape)
    present = [each.name for each in cancers if each.present]
    found = measure_piece(mask, schema, resolution, touches_edge=cut_off, present=present, outline=outline)
    every = (found.orientation, found.clearance.deep, found.clearance.lateral, found.depth)
    measured = dict(zip(MEASUREMENTS, every, strict=True))
    return PieceFindings(
        piece=piece,
        window=window,
        touches_edge=cut_off,
        areas_mm2=class_areas(mask, schema, resolution),
        measured={name: each.shifted(window.top, window.left) for name, each in measured.items()},
        cancers=cancers,
        graph=graph,
        text=(*graph.sentences(), *measurement_sentences(found)),
    )


def _at_edge(outline: Outline, window: Window, shape: tuple[int, int]) -> bool:
    """Whether the body in ``window`` comes so near to the edge of the scan that this may have cut it off."""
    if outline.bulk is None:
        return True
    corner = np.array([window.top, window.left])
    before, behind = outline.bulk[:2] + corner, np.array(shape) - 1 - (outline.bulk[2:] + corner)
    return bool((np.minimum(before, behind) * outline.scale_um).min() <= EDGE_UM)


def _cancers(
    mask: Bytes, confidence: Bytes, graph: TissueGraph, schema: LabelSchema, resolution: Resolution
) -> tuple[CancerFinding, ...]:
    """The cancers, looked for where there are any: most of a piece holds none."""
    table = graph.regions
    boxes = table.box[np.isin(table.tissue, [schema.index(name) for name in CANCERS if name in schema.names])]
    if not len(boxes):
        return cancer_types(mask[:1, :1], None, schema, resolution)
    # With the neighbours, as they have a say in it.
    top, left = np.maximum(boxes[:, :2].min(axis=0) - 1, 0).tolist()
    bottom, right = ((boxes[:, :2] + boxes[:, 2:]).max(axis=0) + 1).tolist()
    part = np.s_[top:bottom, left:right]
    return cancer_types(mask[part], confidence[part].astype(np.float32) / FULL, schema, resolution)


def class_areas(labels: Bytes, schema: LabelSchema, resolution: Resolution, rows: int = 1024) -> dict[str, float]:
    """Area in mm² of each class, counted in bands of rows."""
    counts = np.zeros(256)
    for top in range(0, labels.shape[0], rows):
        found = runs_of(np.asarray(labels[top : top + rows]))
        counts += np.bincount(found.value, weights=found.length, minlength=256)
    return {name: float(counts[k]) * resolution.pixel_area_um2 / 1e6 for k, name in enumerate(schema.names)}


def tissue_area(areas_mm2: dict[str, float], schema: LabelSchema) -> float:
    """All classes but the background."""
    return sum(area for name, area in areas_mm2.items() if name != schema.background)


def fractions(areas_mm2: dict[str, float], schema: LabelSchema) -> dict[str, float | None]:
    """Share of each class but the background in the tissue; None where there is no tissue."""
    whole = tissue_area(areas_mm2, schema)
    return {name: area / whole if whole else None for name, area in areas_mm2.items() if name != schema.background}


def slide_cancers(pieces: Sequence[PieceFindings]) -> dict[str, dict[str, Any]]:
    """By cancer: present if in any piece, as sure as the surest piece, areas and regions together."""
    found: dict[str, dict[str, Any]] = {}
    for each in (finding for piece in pieces for finding in piece.cancers):
        so_far = found.setdefault(each.name, {"present": False, "confidence": 0.0, "area_mm2": 0.0, "regions": 0})
        so_far["present"] |= each.present
        so_far["confidence"] = max(so_far["confidence"], each.confidence)
        so_far["area_mm2"] += each.area_mm2
        so_far["regions"] += each.regions
    return found


def least(pieces: Sequence[PieceFindings], name: str) -> float | None:
    """The smallest of a measurement over the pieces that have it."""
    return min((value for piece in pieces if (value := piece.measured[name].value) is not None), default=None)


def greatest(pieces: Sequence[PieceFindings], name: str) -> float | None:
    """The largest of a measurement over the pieces that have it."""
    return max((value for piece in pieces if (value := piece.measured[name].value) is not None), default=None)
