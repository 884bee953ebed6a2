"""What the section's own amounts are worth without learning: probabilities moved by how much there seems to be of each.

    python research/relation_prior.py --out study --data phantom-0.5,renders-0.5 --seeds 0,1

For each section ``π ← mean of r``, ``r ∝ p·(π/π̄)^a`` is repeated from ``π = mean of p``, π̄ being the mean over all
sections (the re-estimation of Saerens, Latinne and Decaestecker, 2002, for every section by itself; a = 1 is theirs).
It needs no graph and no training, so that relations should be worth more than this. Works on runs of
``relation_study.py`` that are there.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from research.relation_data import SPLITS
from research.relation_scores import graph_counts, graph_scores
from research.relation_study import RENDERS
from research.section_networks.inference import blended_section, load
from torch import Tensor

from ntrm.core.io import write_json
from ntrm.core.labels import IGNORE
from ntrm.data.cache import SectionCache
from ntrm.data.split import open_splits
from ntrm.evaluation.loaded_model import class_table
from ntrm.inference.sliding_window import A_QUARTER, Stitching
from ntrm.metrics.confusion import confusion_tensor
from ntrm.metrics.graph_agreement import graph_agreement
from ntrm.metrics.overlap import pooled
from ntrm.models.base import SegmentationModel

WAYS = {"as it was": (0.0, 1), **{f"power {a:g}, {n} times": (a, n) for a, n in product((0.5, 1.0), (1, 3))}}
"""Power and number of turns, by name."""


def re_estimated(p: Tensor, known: Tensor, usual: Tensor, power: float, turns: int) -> Tensor:
    """Probabilities (K, H, W) of a section, after ``turns`` estimates of how much there is of each tissue."""
    r = p
    for _ in range(turns):
        amounts = r[:, known].mean(dim=1)
        r = p * ((amounts + 1e-6) / (usual + 1e-6)).pow(power)[:, None, None]
        r = r / r.sum(dim=0)
    return r


def probabilities(
    network: SegmentationModel, image: np.ndarray, truth: np.ndarray, stitching: Stitching, device: str
) -> Tensor:
    """(K, H, W), in half precision: all sections are kept."""
    found = blended_section(network, image, stitching=stitching, truth=truth, device=device)
    rows = [each.final for each in found]
    p = torch.cat(rows, dim=1).float()
    return (p / p.sum(dim=0)).half()


def run(folder: Path, data: Path, split: str, device: str) -> dict[str, float | None]:
    """Mean IoU and F1 of the graph as they were, and after each way of estimating anew."""
    network = load(folder / "run" / "model")
    split_file = data / SPLITS if (data / SPLITS).exists() else None
    parts, schema = open_splits(data, splits=split_file), network.config.schema
    stitching = Stitching(network.config.window, 0 if data.name in RENDERS else A_QUARTER)
    table, sections = class_table(network.config, parts), []
    for case in parts[split]:
        section = SectionCache().open(case, parts.schema)
        truth = table[section.mask]
        sections.append((probabilities(network, section.image, truth, stitching, device), truth))
    known = [torch.from_numpy(truth != IGNORE).to(p.device) for p, truth in sections]
    usual = torch.stack([p[:, there].float().mean(dim=1) for (p, _), there in zip(sections, known, strict=True)])
    found: dict[str, float | None] = {}
    for name, (power, turns) in WAYS.items():
        counts, graphs = [], []
        for (p, truth), there in zip(sections, known, strict=True):
            mask = re_estimated(p.float(), there, usual.mean(dim=0), power, turns).argmax(dim=0).byte().cpu()
            counts.append(confusion_tensor(torch.from_numpy(truth), mask, len(schema)).numpy())
            graphs.append(graph_counts(graph_agreement(truth, mask.numpy(), schema, parts.resolution)))
        found[name] = pooled(counts, schema).macro["iou"]
        found[f"{name}, graph"] = graph_scores(np.array(graphs))[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the study's folder")
    parser.add_argument("--data", default="phantom-0.5")
    parser.add_argument("--arm", default="control")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--split", choices=("val", "test"), default="val")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    rows = []
    for data, seed in product(options.data.split(","), options.seeds.split(",")):
        folder = options.out.resolve() / "runs" / data / options.arm / seed
        rows.append(
            {"data": data, "seed": int(seed)}
            | run(folder, options.out.resolve() / "data" / data, options.split, options.device)
        )
        write_json(options.out / f"prior-{options.arm}-{options.split}.json", rows)
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
