"""A model of one organ asked about another: what it is warned of at home and abroad.

    ntrm data resample glas --to 2x --out glas-2x        # 1.24 µm/px, as near to Gleason's 1.25 as it gets
    ntrm train --init bundled --data glas-2x --recipe finetune --out glas-run
    python research/familiarity_organs.py --model glas-run/model --own glas-2x --other gleason2019 --out rows.json

Home is the test part of the model's own dataset, abroad all of the other one. Each image is judged as a whole, and by a
part of its middle that is as large as the smallest of all, so that size cannot tell the two apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from research.familiarity import Measures, Picture, Seen, auroc, ours

from ntrm.core.io import write_json
from ntrm.data.cache import SectionCache
from ntrm.data.split import open_splits
from ntrm.familiarity.judge import judge
from ntrm.results.familiarity import UNFAMILIAR

PART = (260, 388)
"""Pixels of the smallest images of GlaS at 1.24 µm/px."""


def images(data: Path, splits: Sequence[str]) -> Iterator[tuple[str, Picture]]:
    """Name and picture of every section of some splits."""
    opened = open_splits(data)
    for split in splits:
        for case in opened[split]:
            yield case.name, np.asarray(SectionCache().open(case, opened.schema).image)


def middle(image: Picture) -> Picture:
    """The part that is compared."""
    high, wide = (min(side, most) for side, most in zip(image.shape[:2], PART, strict=True))
    top, left = (image.shape[0] - high) // 2, (image.shape[1] - wide) // 2
    return np.ascontiguousarray(image[top : top + high, left : left + wide])


def look(measures: Measures, picture: Picture) -> dict[str, Any]:
    """Verdict and scores of one picture."""
    unit = measures.unit(picture)
    verdict = judge(unit, measures.reference, measures.schema)
    found = ours([Seen(unit, np.zeros(0), 0.0, 0.0)], measures.reference)
    scores = {name: float(values[0]) for name, values in found.items()}
    return {"verdict": verdict.verdict, "p": verdict.p_value, "scores": scores, "reasons": list(verdict.reasons)}


def summary(rows: Sequence[dict[str, Any]], size: str) -> dict[str, Any]:
    """How many were warned of, and the area under the ROC curve by measure."""
    home, abroad = ([row for row in rows if (row["where"], row["size"]) == (at, size)] for at in ("home", "abroad"))
    warned = {
        at: sum(row["verdict"] == UNFAMILIAR for row in some) for at, some in (("home", home), ("abroad", abroad))
    }
    scores = [
        {name: np.array([row["scores"][name] for row in some]) for name in home[0]["scores"]} for some in (home, abroad)
    ]
    areas = {name: round(auroc(scores[0][name], scores[1][name]), 3) for name in scores[0]}
    return {"size": size, "images": [len(home), len(abroad)], "warned": warned, "auroc": areas}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--own", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    measures, rows = Measures(asked.model), []
    for where, data, splits in (("home", asked.own, ("test",)), ("abroad", asked.other, ("train", "val", "test"))):
        for name, image in images(data, splits):
            for size, picture in (("whole", image), ("middle", middle(image))):
                rows.append({"where": where, "name": name, "size": size, **look(measures, picture)})
            write_json(asked.out, rows)
    for size in ("whole", "middle"):
        print(summary(rows, size), flush=True)


if __name__ == "__main__":
    main()
