"""The short version of a slide's results, for lists: kept in the database, made from ``summary.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ntrm.errors import DataError
from ntrm.service.mask_tiles import FILES

SUMMARY = "summary.json"


def read_summary(folder: Path) -> dict[str, Any]:
    """``summary.json`` of a finished slide."""
    try:
        document = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        return dict(document)
    except (OSError, ValueError) as error:
        raise DataError("the results are damaged", got=type(error).__name__, mend="segment the slide again") from error


def facts_of(folder: Path) -> dict[str, Any]:
    """What a list of slides shows."""
    summary = read_summary(folder)
    try:
        grid, areas, shares = summary["grid"], summary["areas_mm2"], summary["tissue_fractions"]
        width, height = image_size(grid)
        cancers = [
            {"name": name, "present": bool(each["present"]), "confidence": each["confidence"]}
            for name, each in summary["cancers"].items()
        ]
        tissue = [
            {"index": summary["classes"].index(name), "name": name, "area_mm2": areas[name], "share": share}
            for name, share in shares.items()
        ]
        return {
            "width": width,
            "height": height,
            "mpp": [float(value) for value in grid["slide_mpp"]],
            "cancers": cancers,
            "tissue": tissue,
            "quality_warnings": [str(text) for text in summary["warnings"]],
            "tissue_area_mm2": summary["tissue_area_mm2"],
            "pieces": len(summary["pieces"]),
            "layers": layers_in(folder),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError("the results are damaged", got=type(error).__name__, mend="segment the slide again") from error


def image_size(grid: dict[str, Any]) -> tuple[int, int]:
    """Width and height of the scanned part, from the part ``grid`` of a summary."""
    bounds = grid["bounds"]
    slide = grid["slide"]
    return (int(bounds[2]), int(bounds[3])) if bounds else (int(slide["width"]), int(slide["height"]))


def layers_in(folder: Path) -> list[str]:
    """Layers of results that a folder has files for."""
    have = {name for name, file in FILES.items() if (folder / file).is_file()}
    found: list[str] = [name for name in ("tissue", "initial", "confidence") if name in have]
    found += ["improvement"] if {"tissue", "initial", "truth"} <= have else []
    return [*found, "interface"] if "tissue" in have else found
