"""Does a low familiarity tell which sections a model segments badly? Fresh sections, as they are and made worse.

    python research/familiarity_sections.py --out familiarity --jobs 8
    python research/familiarity_shift.py --sections familiarity --count 40 --jobs 8 --out looks

Each section is looked at as it is, in two foreign stains, with two blurs and after two compressions
(``ntrm.evaluation.robustness``). *Badly segmented* is the quarter of all looks with the lowest mean IoU: fixed
beforehand. A measure is the better, the likelier it ranks such a look above another one (AUROC). Rows are kept as they
end, and the same command goes on; rows that are there are summed up at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from numpy.typing import NDArray
from research.familiarity import Measures, Others, Picture, Seen, auroc, ours, training_parts
from scipy.stats import spearmanr

from ntrm.core.io import read_json, write_json
from ntrm.core.labels import Mask
from ntrm.data.cache import SectionCache
from ntrm.data.split import open_splits
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.familiarity.judge import judge
from ntrm.inference.sliding_window import stitch
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap

LOOKS = {"as it is": None, **{each.name: each for each in DEGRADATIONS if each.kind != "brightness"}}
MOST_PIXELS = 400_000
"""Of a section: larger ones take long."""
TRAINING = 120
"""Parts of training sections that the other measures are fitted on."""
WORST = 0.25


@cache
def measures(model: str) -> Measures:
    torch.set_num_threads(1)
    return Measures(model)


@cache
def others(model: str, sections: Path) -> Others:
    parts = [*training_parts(sections)]
    return Others([measures(model).see(part) for part in parts[:: max(1, len(parts) // TRAINING)]])


def windows_of(image: Picture, mask: NDArray[np.bool_], side: int) -> list[Picture]:
    """Windows of which at least a tenth is tissue; the whole where none is."""
    corners = [(top, left) for top in range(0, image.shape[0], side) for left in range(0, image.shape[1], side)]
    here = [np.s_[top : top + side, left : left + side] for top, left in corners]
    return [image[each] for each in here if mask[each].mean() >= 0.1] or [image]


def look(model: str, sections: Path, image: Picture, truth: Mask) -> dict[str, Any]:
    """Mean IoU, familiarity and the other measures of one look at a section."""
    subject = measures(model)
    predicted = stitch(subject.predictor, image).mask
    tissue = predicted != subject.schema.background_index
    parts = [subject.pooled(part) for part in windows_of(image, tissue, subject.predictor.config.window)]
    features, softmax, energy = (np.nanmean([part[k] for part in parts], axis=0) for k in range(3))
    seen = Seen(subject.unit(image), features, float(softmax), float(energy))
    scores = {**others(model, sections).scores([seen]), **ours([seen], subject.reference)}
    verdict = judge(seen.unit, subject.reference, subject.schema)
    counts = confusion(truth, predicted, len(subject.schema))
    return {
        "iou": overlap(counts, subject.schema).as_dict()["macro"]["iou"],
        "verdict": verdict.verdict,
        "scores": {name: float(values[0]) for name, values in scores.items()},
    }


def work(job: tuple[str, Path, str, Path]) -> None:
    """All looks at one section."""
    model, sections, name, out = job
    splits = open_splits(sections)
    case = next(case for case in splits["test"] if case.name == name)
    section = SectionCache().open(case, splits.schema)
    image, truth = np.asarray(section.image), np.asarray(section.mask)
    for number, (kind, change) in enumerate(LOOKS.items()):
        path = out / f"{name}-{number}.json"
        if not path.exists():
            worse = image if change is None else change(image)
            write_json(path, {"section": name, "look": kind, **look(model, sections, worse, truth)})


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By look: mean IoU and how many were warned of; by measure: AUROC for bad looks, and rank correlation with IoU."""
    iou = np.array([row["iou"] for row in rows])
    bad = iou <= np.quantile(iou, WORST)
    by_look = {}
    for kind in LOOKS:
        own = [row for row in rows if row["look"] == kind]
        warned = sum(row["verdict"] == "unfamiliar" for row in own)
        by_look[kind] = {"looks": len(own), "iou": float(np.mean([row["iou"] for row in own])), "warned": warned}
    by_measure = {}
    for name in rows[0]["scores"]:
        score = np.array([row["scores"][name] for row in rows])
        by_measure[name] = {
            "auroc": auroc(score[~bad], score[bad]),
            "rank correlation": float(spearmanr(score, iou)[0]),
        }
    warned = np.array([row["verdict"] == "unfamiliar" for row in rows])
    return {
        "looks": len(rows),
        "bad below": float(np.quantile(iou, WORST)),
        "bad looks that were warned of": float(warned[bad].mean()),
        "other looks that were warned of": float(warned[~bad].mean()),
        "by look": by_look,
        "by measure": by_measure,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--sections", type=Path, required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    splits, names = open_splits(asked.sections), []
    for case in splits["test"]:
        section = SectionCache().open(case, splits.schema)
        if section.mask.size <= MOST_PIXELS and len(names) < asked.count:
            names.append(case.name)
    jobs = [(asked.model, asked.sections, name, asked.out) for name in names]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for number, _ in enumerate(pool.map(work, jobs), start=1):
            print(f"{number} of {len(jobs)}", flush=True)
    rows = [read_json(path, hint="") for path in sorted(asked.out.glob("*-*.json"))]
    print(json.dumps(summary(rows), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
