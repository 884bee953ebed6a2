"""What was found on a slide as the documents ``graph.json`` and ``summary.json``. For research, not for diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntrm.labels import LabelSchema
from ntrm.resolution import Resolution
from ntrm.segmentation.measuring import MEASUREMENTS, PieceFindings, fractions, slide_cancers, tissue_area
from ntrm.segmentation.rows import plain_quality
from ntrm.segmentation.specks import Given
from ntrm.slide.quality import Quality


def graph_document(found: PieceFindings) -> dict[str, Any]:
    """The tissue graph of one piece, as NetworkX reads it, and in words."""
    return {"piece": found.number, "text": list(found.graph.sentences()), "graph": found.graph.as_node_link()}


def summary_document(
    areas_mm2: dict[str, float], pieces: Sequence[PieceFindings], quality: Quality, *, schema: LabelSchema
) -> dict[str, Any]:
    """Slide first, then its pieces; lines are in pixels of the mask."""
    return {
        "quality": plain_quality(quality),
        "warnings": list(quality.warnings),
        "tissue_area_mm2": tissue_area(areas_mm2, schema),
        "areas_mm2": areas_mm2,
        "tissue_fractions": fractions(areas_mm2, schema),
        "cancers": slide_cancers(pieces),
        "pieces": [_piece(piece, schema) for piece in pieces],
    }


def specks_document(given: Given, resolution: Resolution) -> dict[str, Any]:
    """How many regions were given to what lies around them, and how much area."""
    return {"regions": given.regions, "area_mm2": given.pixels * resolution.pixel_area_um2 / 1e6}


def _piece(found: PieceFindings, schema: LabelSchema) -> dict[str, Any]:
    window = found.window
    return {
        "number": found.number,
        "mask_box_px": {"top": window.top, "left": window.left, "height": window.height, "width": window.width},
        "touches_edge": found.touches_edge,
        "tissue_area_mm2": tissue_area(found.areas_mm2, schema),
        "areas_mm2": found.areas_mm2,
        "tissue_fractions": fractions(found.areas_mm2, schema),
        "measurements": {name: found.measured[name].as_dict() for name in MEASUREMENTS},
        "cancers": [finding.as_dict() for finding in found.cancers],
        "text": list(found.text),
    }
