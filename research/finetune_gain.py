"""What starting from a trained model is worth with few annotated sections: recipe ``finetune`` with and without --init.

    python research/finetune_gain.py --init RUN/model --arch ntrm-paper --data my-data --out gain

Both start the same recipe on the same 5, 10 and 20 sections; one from MODEL, the other as a new training would start
(ImageNet where the weights are to hand). Scores are those of `ntrm evaluate` on the test part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.evaluation.evaluate import evaluate
from ntrm.training.recipe import load_recipe, parse_overrides
from ntrm.training.train import train


def one(args: argparse.Namespace, sections: int, seed: int, start: str) -> dict[str, Any]:
    folder = args.out / f"{start}-{sections}-{seed}"
    init = args.init if start == "init" else None
    # Under its own name `finetune` is refused without a model to start from.
    name = {} if init else {"name": "finetune-from-scratch"}
    recipe = load_recipe("finetune", {**parse_overrides(args.set), **name})
    options = json.loads(args.options)
    result = train(
        args.data,
        folder,
        arch=args.arch,
        recipe=recipe,
        resolution=args.resolution,
        options=options,
        init=init,
        sections=sections,
        seed=seed,
        resume=True,
        pictures=False,
        reference=False,
    )
    found = evaluate(result.model, args.data, None, resolution=args.resolution, pictures=False, boundaries=False)
    scores = found.pooled
    return {
        "sections": sections,
        "start": start,
        "seed": seed,
        "iou": scores.macro["iou"],
        "dice": scores.macro["dice"],
        "accuracy": scores.pixel_accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", required=True)
    parser.add_argument("--arch", default="ntrm-paper")
    parser.add_argument("--options", default="{}", help='options of the architecture, as {"width": 0.5}')
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--resolution")
    parser.add_argument("--sections", default="5,10,20")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sizes, seeds = ([int(n) for n in text.split(",")] for text in (args.sections, args.seeds))
    args.out.mkdir(parents=True, exist_ok=True)
    plan = list(product(sizes, seeds, ("scratch", "init")))
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(one, [args] * len(plan), *zip(*plan, strict=True)))
    (args.out / "gain.json").write_text(json.dumps(rows, indent=1))
    for sections in sizes:
        means = {
            start: statistics.fmean(r["iou"] for r in rows if r["sections"] == sections and r["start"] == start)
            for start in ("scratch", "init")
        }
        gains = [
            a["iou"] - b["iou"]
            for a, b in product(rows, rows)
            if a["sections"] == b["sections"] == sections and a["seed"] == b["seed"]
            if (a["start"], b["start"]) == ("init", "scratch")
        ]
        print(f"{sections:3d} sections: scratch {means['scratch']:.4f}, init {means['init']:.4f}, gain by seed {gains}")


if __name__ == "__main__":
    main()
