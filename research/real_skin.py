"""The systems trained on real skin: tiles of ``skin-pas`` at 0.5 and 1 µm/px, each with several seeds.

    ntrm data resample skin-pas --to 2x --out pas-2x      # 0.5 µm/px, tiles of 256 pixels
    ntrm data resample skin-pas --to 4x --out pas-4x      # 1 µm/px, tiles of 128 pixels
    python research/real_skin.py --data pas-2x --archs ntrm-control --seeds 0 --set steps=800 --splits val --out choose
    python research/real_skin.py --data pas-2x --data pas-4x --seeds 0,1,2,3,4 --splits val,test --jobs 8 --out systems

A window is a tile. All of skin-pas is one patient, so that no score speaks for another one. Finished runs are kept:
the same command goes on. With ``--table`` nothing is trained, and the finished runs are shown.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from ntrm.core.io import write_json
from ntrm.training.recipe import load_recipe, parse_overrides

SYSTEMS = (
    "deeplabv3plus", "unet-vgg16", "attention-unet", "unet-resnet18", "mit-b2", "ntrm-paper", "ntrm-control",
)  # fmt: skip
WINDOWS = {"pas-2x": 256, "pas-4x": 128}  # Side of a tile in pixels, by the dataset's name


class Job(NamedTuple):
    """One training."""

    data: Path
    arch: str
    seed: int
    changes: tuple[str, ...]
    splits: tuple[str, ...]
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / self.data.name / f"{self.arch}-{self.seed}"


def run(job: Job) -> dict[str, Any]:
    """Train and score; ``row.json`` in the run's folder is the result."""
    path = job.folder / "row.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    import torch

    from ntrm.evaluation.evaluate import evaluate
    from ntrm.training.train import train

    torch.set_num_threads(1)
    window = {"window": WINDOWS.get(job.data.name, 256), "overlap": 0, "workers": 0}
    recipe = load_recipe("fast", {**window, **parse_overrides(job.changes)})
    result = train(
        job.data, job.folder, arch=job.arch, recipe=recipe, seed=job.seed, resume=True, pictures=False, reference=False
    )
    row: dict[str, Any] = {"data": job.data.name, "arch": job.arch, "seed": job.seed, "steps": recipe.steps}
    row |= {"encoder": json.loads((job.folder / "provenance.json").read_text())["encoder_init"], "splits": {}}
    for split in job.splits:
        found = evaluate(result.model, job.data, None, split=split, pictures=False, boundaries=False).as_dict()
        pooled = found["pooled"]
        row["splits"][split] = {
            "iou": pooled["macro"]["iou"],
            "dice": pooled["macro"]["dice"],
            "accuracy": pooled["pixel_accuracy"],
            "pooled": pooled,
        }
    with (job.folder / "log.csv").open() as stream:
        row["curve"] = [
            {key: float(each[key]) for key in ("step", "val_iou", "train_loss")} for each in csv.DictReader(stream)
        ]
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)  # gigabytes, and only for going on
    write_json(path, row)
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds for each system and dataset."""
    lines = ["| data | system | encoder | seeds | val IoU | test IoU | test Dice | test accuracy |", "|---" * 8 + "|"]
    for data, arch in dict.fromkeys((row["data"], row["arch"]) for row in rows):
        some = [row for row in rows if (row["data"], row["arch"]) == (data, arch)]
        cells = [
            spread([row["splits"][split][key] for row in some if split in row["splits"]])
            for split, key in (("val", "iou"), ("test", "iou"), ("test", "dice"), ("test", "accuracy"))
        ]
        lines.append(f"| {data} | {arch} | {some[0]['encoder']} | {len(some)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation.

    >>> spread([0.5, 0.7]), spread([])
    ('.600 ± .141', '–')
    """
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{deviation}".replace("0.", ".")


def read_rows(out: Path) -> list[dict[str, Any]]:
    """Finished runs, in the order of the systems."""
    rows = [json.loads(path.read_text()) for path in out.glob("*/*/row.json")]
    return sorted(rows, key=lambda row: (row["data"], SYSTEMS.index(row["arch"]), row["seed"]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", default=[])
    parser.add_argument("--archs", default=",".join(SYSTEMS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--splits", default="val")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    changes, splits = tuple(asked.set), tuple(asked.splits.split(","))
    jobs = [
        Job(data, arch, int(seed), changes, splits, asked.out)
        for seed in asked.seeds.split(",")
        for data in asked.data
        for arch in asked.archs.split(",")
    ]
    if not asked.table:
        with ProcessPoolExecutor(min(asked.jobs, len(jobs)), mp_context=get_context("spawn")) as pool:
            asked_for = {pool.submit(run, job): job for job in jobs}
            for done in as_completed(asked_for):
                job = asked_for[done]
                said = done.exception() or done.result()["splits"][splits[0]]["iou"]
                print(job.data.name, job.arch, job.seed, said, flush=True)  # one that failed does not stop the others
    print(table(read_rows(asked.out)))


if __name__ == "__main__":
    main()
