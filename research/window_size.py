"""What a network says when its graph is pooled over another field than in training: scores by size of window.

    python research/window_size.py --model runs/paper/model --model runs/control/model --data skin --resolution 10x

Whole sections are stitched from windows of a half, one, two and four times the side that the network was trained on,
a quarter overlapping. A network without a graph (``ntrm-control``) changes only by what it sees at the rims of windows;
what ``ntrm-paper`` changes beyond that is the effect of relating more, or fewer, tissues at once. Sections smaller than
a window are padded with glass. With ``--out`` the rows are also written as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.loaded_model import LoadedModel, open_subject
from ntrm.inference.sliding_window import Stitching

FACTORS = (0.5, 1.0, 2.0, 4.0)
COLUMNS = ("model", "window", "times training", "pixel accuracy", "mean IoU", "Dice", "coarse head IoU", "IoU, points")


def windows(side: int, multiple: int, factors: tuple[float, ...] = FACTORS) -> list[int]:
    """Sides in pixels for each factor: what the network can take, none twice."""
    sides = [max(multiple, round(side * factor / multiple) * multiple) for factor in factors]
    return sorted(set(sides))


def study(subject: LoadedModel, data: Path, **where: Any) -> list[dict[str, Any]]:
    """One row for each size of window, the training's own among them."""
    own = subject.config.window
    rows = []
    for side in windows(own, max(32, subject.network.multiple)):
        found = evaluate(
            subject.network, data, None, stitching=Stitching(side), pictures=False, boundaries=False, **where
        ).as_dict()
        rows.append(
            {
                "model": subject.config.name or subject.config.arch,
                "arch": subject.config.arch,
                "sha256": subject.sha256,
                "window": side,
                "factor": side / own,
                "pixel_accuracy": found["pooled"]["pixel_accuracy"],
                "iou": found["pooled"]["macro"]["iou"],
                "dice": found["pooled"]["macro"]["dice"],
                "coarse_iou": None if found["coarse"] is None else found["coarse"]["macro"]["iou"],
                "sections": found["data"]["sections"],
                "data": found["data"]["fingerprint"],
            }
        )
    usual = next(row["iou"] for row in rows if row["window"] == own)
    for row in rows:
        row["iou_change"] = None if row["iou"] is None or usual is None else row["iou"] - usual
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        scores = [_score(row[key]) for key in ("pixel_accuracy", "iou", "dice", "coarse_iou")]
        change = "–" if row["iou_change"] is None else f"{100 * row['iou_change']:+.2f}"
        lines.append(
            "| " + " | ".join([row["model"], str(row["window"]), f"{row['factor']:g}", *scores, change]) + " |"
        )
    return "\n".join(lines)


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="model folder; may be given several times")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--resolution", default=None)
    parser.add_argument("--split", default="test")
    parser.add_argument("--splits", type=Path, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    where = {"resolution": asked.resolution, "split": asked.split, "splits": asked.splits}
    rows: list[dict[str, Any]] = []
    for model in asked.model:
        rows += study(open_subject(model), asked.data, device=asked.device, batch=asked.batch, jobs=asked.jobs, **where)
    print(table(rows))
    if asked.out is not None:
        asked.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
