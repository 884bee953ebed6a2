"""How far measurements from predicted masks are from the truth: drawn sections, segmented as users do it.

    python bench/measurement_error.py --sections 40 --seed 4242 --folder work [--true 100] [--model M] [--out FILE]

Each section is drawn afresh, segmented by ``ntrm segment`` and compared with what was drawn: clearance (the least over
deep and lateral margin), depth of invasion, orientation, cancers, areas. Beside it stands the error of the same
measurements on the true masks, which is that of the method without a network. A measurement *agrees* if there is a
value on both sides, or a reason on both. ``--true`` adds so many further sections of which only the true masks are
measured. The folder is kept: a second run goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm import read_results
from ntrm.core.labels import CANCERS, SKIN
from ntrm.core.mpp import level_resolution
from ntrm.data.image_files import read_mask
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.regions.measure import measure_piece
from ntrm.regions.outline import trace_outline
from ntrm.regions.regions import scan_mask
from ntrm.segment.batch import segment_slides

LEVEL = "10x"
CLEAR = "clearance above 0"
MEASURES = {"clearance": "mm", CLEAR: "mm", "depth": "mm", "orientation": "°"}
"""Many tumours are cut through: those that are not are also told apart."""
LEAST_AREA_MM2 = 0.05  # Relative errors of smaller areas say little


@dataclass(frozen=True)
class Errors:
    """One measurement over the sections."""

    sections: int
    values: int  # With a value on both sides
    reasons: int  # With a reason on both sides
    missing: int  # With a value in truth only
    invented: int  # With a value found only
    median: float | None
    ninetieth: float | None  # Percentile of the absolute error
    promised: int  # Within a pixel and 2 %, or within 5°


def errors(found: Sequence[float | None], true: Sequence[float | None], *, pixel: float, degrees: bool) -> Errors:
    """Compare measurements, None where there is none, with the truth; lengths in mm."""
    pairs = list(zip(found, true, strict=True))
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    gaps = [abs((one - other + 180) % 360 - 180) if degrees else abs(one - other) for one, other in both]
    within = [gap <= (5.0 if degrees else pixel + 0.02 * other) for gap, (_, other) in zip(gaps, both, strict=True)]
    return Errors(
        sections=len(pairs),
        values=len(both),
        reasons=sum(one is None and other is None for one, other in pairs),
        missing=sum(one is None and other is not None for one, other in pairs),
        invented=sum(one is not None and other is None for one, other in pairs),
        median=float(np.median(gaps)) if gaps else None,
        ninetieth=float(np.percentile(gaps, 90)) if gaps else None,
        promised=sum(within),
    )


def truth_of(piece: dict[str, Any]) -> dict[str, float | None]:
    """Clearance and depth in mm, orientation in degrees."""
    lengths = {name: piece[f"{name}_um"] for name in ("clearance", "depth")}
    in_mm = {name: None if value is None else value / 1000 for name, value in lengths.items()}
    return {**in_mm, "orientation": piece["surface_deg"]}


def found_in(row: dict[str, Any], pieces: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """The same from the tables: orientation is that of the largest piece."""
    margins = [row[f"{name}_clearance_mm"] for name in ("deep", "lateral") if row[f"{name}_clearance_mm"] is not None]
    largest = max(pieces, key=lambda piece: piece["tissue_area_mm2"], default={"orientation_deg": None})
    return {
        "clearance": min(margins, default=None),
        "depth": row["invasion_depth_mm"],
        "orientation": largest["orientation_deg"],
    }


def found_in_truth(mask: np.ndarray) -> dict[str, float | None]:
    """What the method says of a true mask."""
    mpp = level_resolution(LEVEL)
    regions = scan_mask(mask, SKIN, mpp)
    found = measure_piece(regions, trace_outline(regions.runs, SKIN, mpp), SKIN)
    return {
        "clearance": min((each.value for each in (found.deep, found.lateral) if each.value is not None), default=None),
        "depth": found.depth.value,
        "orientation": found.orientation.value,
    }


def study(folder: Path, options: PhantomOptions, model: str, device: str) -> dict[str, Any]:
    """Draw, segment, compare."""
    data, out = folder / "skin", folder / "results"
    write_phantom(data, options)
    truth = json.loads((data / "truth.json").read_text(encoding="utf-8"))["sections"]
    done = segment_slides(data / LEVEL / "Images", out=out, model=model, device=device)
    if done.exit_code:
        raise SystemExit(f"some sections failed: {[each.reason for each in done.slides if each.reason]}")
    results = read_results(out)
    rows = {row["slide_id"]: row for row in results.slides}
    masks = {name: read_mask(data / LEVEL / "Masks" / f"{name}.png", SKIN).mask for name in truth}
    true = {name: truth_of(section["pieces"][0]) for name, section in truth.items()}
    found = {
        name: found_in(rows[name], [piece for piece in results.pieces if piece["slide_id"] == name]) for name in truth
    }
    drawn = {name: found_in_truth(mask) for name, mask in masks.items()}
    return {
        "options": options.as_dict(),
        "model": done.identity["model"],
        "measures": {name: [asdict(_errors(each, true, name)) for each in (found, drawn)] for name in MEASURES},
        "reasons": _reasons(results.pieces, found, true),
        "cancers": _cancers(rows, truth),
        "areas": _areas(rows, masks),
        "sections": {name: {"found": found[name], "true": true[name]} for name in truth},
    }


def study_true(folder: Path, options: PhantomOptions) -> dict[str, Any]:
    """Draw, and compare what the method says of the true masks."""
    write_phantom(folder, options)
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))["sections"]
    true = {name: truth_of(section["pieces"][0]) for name, section in truth.items()}
    drawn = {name: found_in_truth(read_mask(folder / LEVEL / "Masks" / f"{name}.png", SKIN).mask) for name in truth}
    return {
        "options": options.as_dict(),
        "measures": {name: asdict(_errors(drawn, true, name)) for name in MEASURES},
        "sections": {name: {"found": drawn[name], "true": true[name]} for name in truth},
    }


def _errors(found: dict[str, dict[str, float | None]], true: dict[str, dict[str, float | None]], name: str) -> Errors:
    pixel = level_resolution(LEVEL).x / 1000
    measure = "clearance" if name == CLEAR else name
    sections = [section for section in true if name != CLEAR or true[section][measure]]
    values, truths = ([each[section][measure] for section in sections] for each in (found, true))
    return errors(values, truths, pixel=pixel, degrees=name == "orientation")


def _reasons(pieces: Any, found: dict[str, Any], true: dict[str, Any]) -> dict[str, int]:
    """Why a measurement that the truth has is missing."""
    columns = {
        "clearance": "deep_clearance_reason",
        "depth": "invasion_depth_reason",
        "orientation": "orientation_reason",
    }
    counts: dict[str, int] = {}
    for piece in pieces:
        name = piece["slide_id"]
        for measure, column in columns.items():
            if found[name][measure] is None and true[name][measure] is not None and piece[column]:
                key = f"{measure}: {piece[column]}"
                counts[key] = counts.get(key, 0) + 1
    return counts


def _cancers(rows: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    calls = {}
    for cancer in CANCERS:
        pairs = [
            (bool(rows[name][f"cancer_{cancer}"]), cancer in section["cancers"]) for name, section in truth.items()
        ]
        calls[cancer] = {
            "there": sum(there for _, there in pairs),
            "found": sum(found and there for found, there in pairs),
            "invented": sum(found and not there for found, there in pairs),
        }
    exact = sum(
        {cancer for cancer in CANCERS if rows[name][f"cancer_{cancer}"]} == set(section["cancers"])
        for name, section in truth.items()
    )
    return {"sections": len(truth), "exact_sets": exact, "calls": calls}


def _areas(rows: dict[str, Any], masks: dict[str, np.ndarray]) -> dict[str, Any]:
    pixel_mm2 = level_resolution(LEVEL).pixel_area_um2 / 1e6
    found: dict[str, Any] = {}
    for index, name in enumerate(SKIN.names):
        if name == SKIN.background:
            continue
        true = np.array([(mask == index).sum() * pixel_mm2 for mask in masks.values()])
        predicted = np.array([rows[section][f"area_{name}_mm2"] or 0.0 for section in masks])
        large = true >= LEAST_AREA_MM2
        relative = np.abs(predicted - true)[large] / true[large]
        found[name] = {
            "true_mm2": float(true.sum()),
            "predicted_mm2": float(predicted.sum()),
            "sections": int(large.sum()),
            "median_relative_error": float(np.median(relative)) if large.any() else None,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", type=int, default=40)
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--true", type=int, default=0, help="further sections, of true masks alone")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", type=Path, required=True, help="for sections and results")
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    found = study(asked.folder, PhantomOptions(asked.sections, asked.seed, (LEVEL,)), asked.model, asked.device)
    if asked.true:
        # Sections that the other seed does not draw.
        further = PhantomOptions(asked.true, asked.seed + 1, (LEVEL,))
        found["further"] = study_true(asked.folder / "further", further)
    print(json.dumps({name: value for name, value in found.items() if name != "sections"}, indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
