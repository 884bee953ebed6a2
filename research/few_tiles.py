"""What a start is worth with few annotated tiles: the bundled model, an ImageNet encoder, and nothing.

    ntrm data resample skin-pas --to 4x --out pas-4x      # 1 µm/px, tiles of 128 pixels
    python research/few_tiles.py --data pas-4x --tiles 1,2,4,8,16,45 --seeds 0,1,2,3,4 --jobs 9 --out few

The seed chooses the tiles and the order of the training. A window is a tile. ``scratch`` is the network of the bundled
model without its weights: its control. Finished runs are kept, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from research.real_skin import spread

from ntrm.core.io import write_json

STARTS: dict[str, dict[str, Any]] = {
    "bundled": {"init": "bundled"},
    "scratch": {"arch": "ntrm", "options": {"width": 0.5}},
    "imagenet": {"arch": "ntrm"},
}
"""What each is trained from; weights for ImageNet must be to hand for the last."""
RECIPE = {"window": 128, "overlap": 0, "workers": 0}


class Job(NamedTuple):
    """One training."""

    data: Path
    start: str
    tiles: int
    seed: int
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / f"{self.start}-{self.tiles}-{self.seed}"


def run(job: Job) -> dict[str, Any]:
    """Train and score; ``row.json`` in the run's folder is the result."""
    path = job.folder / "row.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    import torch

    from ntrm.evaluation.evaluate import evaluate
    from ntrm.training.recipe import load_recipe
    from ntrm.training.train import train

    torch.set_num_threads(1)
    # Under its own name `finetune` is refused without a model to start from.
    name = {} if "init" in STARTS[job.start] else {"name": f"finetune-from-{job.start}"}
    recipe = load_recipe("finetune", {**RECIPE, **name})
    kept = {"resume": True, "pictures": False, "reference": False}
    how = {**STARTS[job.start], "sections": job.tiles, "seed": job.seed, "recipe": recipe, **kept}
    result = train(job.data, job.folder, **how)
    row: dict[str, Any] = {"start": job.start, "tiles": job.tiles, "seed": job.seed}
    for split in ("val", "test"):
        found = evaluate(result.model, job.data, None, split=split, pictures=False, boundaries=False)
        row[split] = found.as_dict()["pooled"]["macro"]["iou"]
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    write_json(path, row)
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Test IoU by start and number of tiles, mean and standard deviation over seeds."""
    counts = sorted({row["tiles"] for row in rows})
    lines = ["| start | " + " | ".join(map(str, counts)) + " |", "|---" * (len(counts) + 1) + "|"]
    for start in dict.fromkeys(row["start"] for row in rows):
        cells = [spread([row["test"] for row in rows if (row["start"], row["tiles"]) == (start, n)]) for n in counts]
        lines.append(f"| {start} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tiles", default="1,2,4,8,16,45")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    jobs = [
        Job(asked.data, start, int(tiles), int(seed), asked.out)
        for seed in asked.seeds.split(",")
        for tiles in asked.tiles.split(",")
        for start in STARTS
    ]
    rows = []
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, job) for job in jobs]):
            rows.append(done.result())
            print(rows[-1], flush=True)
    print(table(sorted(rows, key=lambda row: list(STARTS).index(row["start"]))))


if __name__ == "__main__":
    main()
