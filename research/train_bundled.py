"""Train the next bundled model: the paper's network at half width on both versions of the phantom, recipe ``robust``.

    python research/train_bundled.py --out bundled --device cuda --jobs 16
    python research/skin_pas.py --help                       # what scores it on real skin

Drawn are ``phantom-290`` (version 1, 290 sections) and 400 sections of version 2, a quarter of them normal skin. The
network learns from the training part of the first and from all of the second, and is kept by the validation part of the
first. Its weights are rounded to float16; temperature and reference are of sections with a laboratory each
(``familiarity_sections.py``). Last, it is scored on the 44 sections of the test part of ``phantom-290``. What is there
already stays: the same command goes on after an interruption. The model is ``OUT/model``; the numbers of its card are
in ``OUT/scores/metrics.json``.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch

from ntrm.core.csv_text import rows_text
from ntrm.core.io import write_text
from ntrm.evaluation.calibrate import calibrate
from ntrm.evaluation.evaluate import evaluate
from ntrm.models.registry import load
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.training.recipe import load_recipe
from ntrm.training.train import train
from research import familiarity_sections

LEVEL = "10x"
FIRST = PhantomOptions(290, 290, (LEVEL,))
SECOND = tuple(PhantomOptions(100, seed, (LEVEL,), normal=0.25, version="2") for seed in (2001, 2002, 2003, 2004))
STEPS, WIDTH = 9000, 0.5


def together(out: Path, first: Path, others: Sequence[Path]) -> Path:
    """One dataset of the training and validation part of ``first`` and of all of ``others``."""
    rows = [["name", "group", "split", "cancer"]]
    for number, folder in enumerate([first, *others]):
        with (folder / "cases.csv").open(encoding="utf-8", newline="") as file:
            cases = [case for case in csv.DictReader(file) if number or case["split"] in {"train", "val"}]
        for case in cases:
            name = f"{number}-{case['name']}"
            for kind, suffix in (("Images", "tif"), ("Masks", "png")):
                (out / LEVEL / kind).mkdir(parents=True, exist_ok=True)
                copied = out / LEVEL / kind / f"{name}.{suffix}"
                if not copied.exists():
                    shutil.copyfile(folder / LEVEL / kind / f"{case['name']}.{suffix}", copied)
            split = "train" if number else case["split"]
            rows.append([name, f"{number}-{case['group']}", split, case["cancer"]])
    write_text(out / "cases.csv", rows_text(rows))
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", default="4", help="of the model, for its card")
    asked = parser.parse_args(arguments)
    out, device = asked.out, asked.device
    drawn = [out / "phantom-290", *(out / f"second-{options.seed}" for options in SECOND)]
    for folder, options in zip(drawn, (FIRST, *SECOND), strict=True):
        write_phantom(folder, options, jobs=asked.jobs)
    data = together(out / "sections", drawn[0], drawn[1:])
    recipe, options = load_recipe("robust", {"steps": STEPS}), {"width": WIDTH}
    run = out / "run"
    train(data, run, arch="ntrm-paper", recipe=recipe, options=options, seed=asked.seed, device=device,
          resume=True, reference=False)  # fmt: skip
    network = load(run / "model").describe(name="ntrm-bundled", version=asked.version, data="phantom-1-and-2")
    network.save_pretrained(out / "model", dtype=torch.float16)
    familiarity_sections.main(["--out", str(out / "laboratories"), "--jobs", str(asked.jobs)])
    calibrate(out / "model", out / "laboratories", device=device)
    found = evaluate(out / "model", drawn[0], out / "scores", device=device, jobs=asked.jobs)
    print(f"{len(found.sections)} sections: {out / 'scores' / 'metrics.json'}")


if __name__ == "__main__":
    main()
