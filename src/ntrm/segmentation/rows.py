"""What was found on a slide as rows of the four tables.

Boxes are in pixels of the slide's full resolution, counted from the scanned part's top left, as QuPath counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ntrm.data.tiles import Window
from ntrm.export.polygons import Region
from ntrm.labels import LabelSchema
from ntrm.segmentation.measuring import (
    MEASUREMENTS,
    PieceFindings,
    fractions,
    greatest,
    least,
    slide_cancers,
    tissue_area,
)
from ntrm.slide.grid import SlideGrid
from ntrm.slide.quality import Quality
from ntrm.slide.segment import FULL

Row = dict[str, Any]


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
        "deep_clearance_mm": least(pieces, "deep_clearance"),
        "lateral_clearance_mm": least(pieces, "lateral_clearance"),
        "invasion_depth_mm": greatest(pieces, "invasion_depth"),
        **_by_class(areas_mm2, schema),
        **_cancers(slide_cancers(pieces)),
        **{f"quality_{name}": value for name, value in plain_quality(quality).items()},
    }


def piece_row(slide_id: str, found: PieceFindings, *, grid: SlideGrid, schema: LabelSchema) -> Row:
    """A row of ``pieces``."""
    row: Row = {"slide_id": slide_id, "piece": found.number, **box_cells(found.window, grid)}
    row |= {"touches_edge": found.touches_edge, "tissue_area_mm2": tissue_area(found.areas_mm2, schema)}
    for name in MEASUREMENTS:
        unit = "deg" if name == "orientation" else "mm"
        row |= {f"{name}_{unit}": found.measured[name].value, f"{name}_reason": found.measured[name].reason}
    cancers = {each.name: each.as_dict() for each in found.cancers}
    return {**row, **_by_class(found.areas_mm2, schema), **_cancers(cancers)}


def region_row(slide_id: str, region: Region, piece: int, *, grid: SlideGrid, schema: LabelSchema) -> Row:
    """A row of ``regions``; its number is that of the polygon."""
    left, top, right, bottom = region.bounds
    scale = grid.resolution
    return {
        "slide_id": slide_id,
        "piece": piece,
        "region": region.number,
        "tissue": schema.names[region.class_index],
        "area_mm2": region.pixels * scale.pixel_area_um2 / 1e6,
        "perimeter_mm": (region.sides_x * scale.x + region.sides_y * scale.y) / 1e3,
        "mean_confidence": None if region.confidence is None else region.confidence / FULL,
        **box_cells(Window(top, left, bottom - top, right - left), grid),
    }


def interface_rows(slide_id: str, found: PieceFindings) -> Iterator[Row]:
    """Rows of ``interfaces``: each pair of tissues that touch, once, and each with the outside."""
    graph = found.graph
    for i, j in graph.interfaces:
        yield {
            "slide_id": slide_id,
            "piece": found.number,
            "tissue_a": graph.names[i],
            "tissue_b": graph.names[j],
            "boundary_mm": float(graph.boundary_mm[i, j]),
            "share_of_a": float(graph.boundary_share[i, j]),
            "share_of_b": float(graph.boundary_share[j, i]),
            "contacts": int(graph.contact_counts[i, j]),
        }


def box_cells(window: Window, grid: SlideGrid) -> Row:
    """A box of the mask in pixels of the full resolution."""
    across, down = grid.to_level0[:2]
    return {
        "left_px": round(window.left * across, 3),
        "top_px": round(window.top * down, 3),
        "width_px": round(window.width * across, 3),
        "height_px": round(window.height * down, 3),
    }


def plain_quality(quality: Quality) -> Row:
    """Flags and scores as plain truth values and numbers, as JSON wants them."""
    return {name: float(value) if name.endswith("_score") else bool(value) for name, value in quality.columns.items()}


def _by_class(areas_mm2: dict[str, float], schema: LabelSchema) -> Row:
    areas = {f"area_{name}_mm2": area for name, area in areas_mm2.items() if name != schema.background}
    return {**areas, **{f"fraction_{name}": share for name, share in fractions(areas_mm2, schema).items()}}


def _cancers(found: dict[str, dict[str, Any]]) -> Row:
    row: Row = {}
    for name, finding in found.items():
        row |= {f"cancer_{name}": finding["present"], f"cancer_{name}_confidence": finding["confidence"]}
    return row
