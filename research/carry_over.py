"""Which training on synthetic skin carries over to real skin: colours, normal sections, and means at test time.

    python research/carry_over.py lay --skin-pas skin-pas --out laid
    python research/carry_over.py draw --levels 10x,5x --out sections --jobs 16
    python research/carry_over.py train --sections sections --laid laid --out study --jobs 6 --plan 'long-half:10x:0 …'
    python research/carry_over.py table --out study
    python research/carry_over.py means --model bundled --sections sections --laid laid --out means --device cpu

Networks learn from 140 sections (at 5x 70) of the phantom's training part, in some arms from others beside them
(``research/phantom_sections.py``). They are scored on its validation part (43 sections, at 5x 20, whole) and on section
A1-1 of skin-pas laid together. Nothing else of skin-pas is read: arms are chosen by these scores, and A1-2 is kept for
the end. Arms are in ``research/training_arms.py``: one that begins with ``long-`` sees as many windows as the bundled
model did, ``long3-`` three times as many, others a quarter.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from research.colouring import Colouring, take_tiles_away
from research.phantom_sections import WINDOW, Sections, draw, load_sections, load_windows, plan_sheets
from research.skin_pas import Laid, lay, score
from research.slide_colours import MOVES, as_segmented, macenko, recoloured, strength, tissue_densities
from research.training_arms import LEVELS, Job, arm_named, read_plan
from torch import Tensor, nn
from torch.nn import functional

from ntrm.analysis.cancers import cancer_types
from ntrm.core.io import write_json
from ntrm.core.labels import CANCERS, IGNORE, SKIN
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.data.augment import Augment, Filling
from ntrm.data.stains import MACENKO, STRENGTH
from ntrm.evaluation.loaded_model import open_subject
from ntrm.inference.sliding_window import Stitching
from ntrm.metrics.confusion import confusion_tensor
from ntrm.models.base import SegmentationModel
from ntrm.models.config import IMAGENET_MEAN, IMAGENET_STD
from ntrm.models.registry import create
from ntrm.training.batches import StepPlan
from ntrm.training.losses import SegmentationLoss
from ntrm.training.recipe import load_recipe
from ntrm.training.schedule import learning_rate

SECTION = "A1-1"
FILL = load_recipe("robust").fill
"""Share of the windows whose glass the arm ``fill`` replaces."""
TILE_UM = (90.0, 400.0)
"""Sides of the squares that the arm ``mosaic`` takes away; tiles of skin-pas are 128 µm wide."""


# --- training ---


def train(job: Job, folder: Path, weights: Path | None, device: str) -> SegmentationModel:
    """A plain loop with the recipe's loss, optimiser, schedule and augmentation, and the arm's own."""
    arm, recipe = arm_named(job.arm), load_recipe("fast")
    pools = [load_windows(folder, job.level, kind, device) for kind in ("train", *arm.besides)]
    images, masks = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*pools, strict=True))
    torch.manual_seed(job.seed)
    network = create(arm.arch, SKIN, width=arm.width, weights=weights if arm.weights else None)
    for key in network.without_gradient():
        network.get_parameter(key).requires_grad_(False)
    network.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    criterion = SegmentationLoss(
        len(SKIN), weighting=recipe.weighting, balance=recipe.balance, coarse=recipe.coarse, dice=recipe.dice
    ).to(device)
    steps = _Steps(network, criterion, arm.consistency, device)
    order, chance = torch.Generator().manual_seed(job.seed), torch.Generator(device).manual_seed(job.seed)
    augment, mpp = Augment.full(), level_resolution(job.level).x
    sides = (round(TILE_UM[0] / mpp), round(TILE_UM[1] / mpp))
    windows = arm.batch // 2 if arm.consistency else arm.batch
    for first in range(0, arm.steps, AUGMENTED_AT_ONCE):
        some = range(first, min(first + AUGMENTED_AT_ONCE, arm.steps))
        chosen = choose(len(some) * windows, len(pools[0].masks), len(masks), arm.beside_share, chance)
        filling = None
        if arm.fill:
            others = StepPlan(len(chosen), len(chosen), job.seed, fill=FILL).fillings(first)
            which = chosen[[*others.values()]]
            filling = Filling(torch.tensor([*others]), images[which], masks[which], SKIN.index("BKG"))
        batch, target = augment(images[chosen], masks[chosen], order, filling=filling)
        pictures = batch.float() / 255
        if arm.mosaic:
            pictures, target = take_tiles_away(pictures, target, chance, sides)
        coloured = [arm.colour(pictures, target, chance) for _ in range(2 if arm.consistency else 1)]
        for step, start in zip(some, range(0, len(chosen), windows), strict=True):
            here = slice(start, start + windows)
            x, y = torch.cat([each[here] for each in coloured]), target[here].repeat(len(coloured), 1, 1)
            steps(normalise(x), y, learning_rate(recipe, step, arm.steps))
    return network.eval()


def choose(count: int, own: int, every: int, share: float | None, chance: torch.Generator) -> Tensor:
    """(count,) windows of ``every``, the training part's ``own`` first: ``share`` of them others; None: all alike."""

    def of(first: int, last: int) -> Tensor:
        return torch.randint(first, last, (count,), device=chance.device, generator=chance)

    if share is None:
        return of(0, every)
    others = torch.rand(count, device=chance.device, generator=chance) < share
    from_own, from_others = of(0, own), of(own, every)
    return torch.where(others, from_others, from_own)


AUGMENTED_AT_ONCE = 10
"""Steps whose windows are augmented together: asking for the kernels takes longer than the kernels."""


class _Steps:
    """Optimiser steps, on a GPU recorded once and replayed."""

    def __init__(
        self, network: SegmentationModel, criterion: SegmentationLoss, consistency: float, device: str
    ) -> None:
        recipe = load_recipe("fast")
        self.network, self.criterion, self.consistency, self.device = network, criterion, consistency, device
        self.clip = recipe.gradient_clip or math.inf
        on_gpu = device == "cuda"
        # A number in the device's memory can change between replays.
        rate = torch.tensor(recipe.learning_rate, device=device) if on_gpu else recipe.learning_rate
        self.optimiser = torch.optim.AdamW(
            network.parameters(), lr=rate, weight_decay=recipe.weight_decay, fused=on_gpu, capturable=on_gpu
        )
        if on_gpu:
            self.criterion = torch.compile(criterion, dynamic=False)  # type: ignore[assignment]  # an eighth of a step
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, x: Tensor, y: Tensor, rate: float) -> None:
        group = self.optimiser.param_groups[0]
        if self.device != "cuda":
            group["lr"] = rate
            self._step(x, y)
            return
        group["lr"].fill_(rate)
        if self.graph is None:
            self._record(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        if self.graph is not None:
            self.graph.replay()

    def _record(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x.clone(), y.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # at the smallest rate: what is made on first use must not be recorded
                self._step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(aside)
        self.optimiser.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=aside):
            self._step(self.x, self.y)

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda", cache_enabled=False):
            output = self.network(x)
        loss = self.criterion(output, y).total
        if self.consistency:
            loss = loss + self.consistency * _divergence(output.final, y[: len(y) // 2])
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        self.optimiser.step()


def normalise(images: Tensor) -> Tensor:
    """(B, 3, H, W) in [0, 1] → what the network expects."""
    mean, std = (torch.tensor(each, device=images.device).view(1, 3, 1, 1) for each in (IMAGENET_MEAN, IMAGENET_STD))
    return ((images - mean) / std).contiguous(memory_format=torch.channels_last)


def _divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over known pixels of the symmetric divergence between the two halves of a batch."""
    one, other = functional.log_softmax(logits.float(), dim=1).chunk(2)
    each = ((one.exp() - other.exp()) * (one - other)).sum(dim=1)  # (B, H, W)
    known = target != IGNORE
    return torch.where(known, each, 0.0).sum() / known.sum().clamp(min=1) / 2


# --- test time ---


@torch.no_grad()
def probabilities(network: SegmentationModel, image: Tensor, colour: Colouring | None = None, seed: int = 0) -> Tensor:
    """(3, H, W) uint8 → (K, H, W): windows blended as `ntrm evaluate` does; ``colour`` recolours all of it alike."""
    height, width = image.shape[-2:]
    picture = image.unsqueeze(0).float() / 255
    if colour is not None:
        generator = torch.Generator(image.device).manual_seed(seed)
        picture = replace(colour, share=1.0)(picture, None, generator)
    padded = functional.pad(picture, (0, max(0, WINDOW - width), 0, max(0, WINDOW - height)), value=1.0)[0]
    stitching = Stitching(WINDOW)
    places = stitching.windows(*padded.shape[-2:])
    weights = stitching.weights().to(image.device)
    total = torch.zeros(len(SKIN), *padded.shape[-2:], device=image.device)
    sums = torch.zeros(padded.shape[-2:], device=image.device)
    for start in range(0, len(places), 64):
        some = places[start : start + 64]
        batch = torch.stack([padded[(slice(None), *place.slices)] for place in some])
        with torch.autocast(image.device.type, torch.bfloat16, enabled=image.device.type == "cuda"):
            final = network(normalise(batch), coarse=False).final
        for place, each in zip(some, final.float().softmax(dim=1), strict=True):
            total[(slice(None), *place.slices)] += weights * each
            sums[place.slices] += weights
    return (total / sums)[:, :height, :width]


@contextmanager
def slide_statistics(network: SegmentationModel, image: Tensor, share: float) -> Iterator[None]:
    """Batch norm's statistics moved by ``share`` from the training's to the slide's."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    kept = [(layer.running_mean.clone(), layer.running_var.clone(), layer.momentum) for layer in layers]  # type: ignore[union-attr]
    height, width = image.shape[-2:]
    padded = functional.pad(
        image.unsqueeze(0).float() / 255, (0, max(0, WINDOW - width), 0, max(0, WINDOW - height)), value=1.0
    )[0]
    batch = torch.stack(
        [padded[(slice(None), *place.slices)] for place in Stitching(WINDOW).windows(*padded.shape[-2:])]
    )
    for layer in layers:
        layer.momentum = share
        layer.train()
    with torch.no_grad():
        network(normalise(batch), coarse=True)
    network.eval()
    yield
    for layer, (mean, variance, momentum) in zip(layers, kept, strict=True):
        layer.running_mean, layer.running_var, layer.momentum = mean, variance, momentum


TRIED_COLOURINGS = 12


def views(network: SegmentationModel, image: Tensor, reference: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What the network says of a slide, by means used at test time."""
    plain = probabilities(network, image)
    yield "plain", plain
    yield "strength", probabilities(network, recoloured(image, reference, strength))
    moved = recoloured(image, reference)
    yield "reinhard", probabilities(network, moved)
    yield "macenko", probabilities(network, macenko(image, reference))
    for share in (0.5, 1.0):
        with slide_statistics(network, image, share):
            yield f"statistics {share:g}", probabilities(network, image)
    mild = Colouring.full(0.5)
    several = [probabilities(network, image, mild, seed) for seed in range(TRIED_COLOURINGS)]
    yield "colourings", torch.stack([plain, *several]).mean(0)
    several = [probabilities(network, moved, mild, seed) for seed in range(TRIED_COLOURINGS)]
    with slide_statistics(network, moved, 0.5):
        yield "reinhard, statistics 0.5", probabilities(network, moved)
    yield "reinhard, colourings", torch.stack([probabilities(network, moved), *several]).mean(0)


# --- scores ---


def score_phantom(network: SegmentationModel, sections: Sections) -> dict[str, Any]:
    """Whole sections of the validation part, pooled."""
    table = torch.zeros(len(SKIN), len(SKIN), dtype=torch.int64, device=sections.masks[0].device)
    for image, mask in zip(*sections, strict=True):
        table += confusion_tensor(mask, probabilities(network, image).argmax(0).byte(), len(SKIN))
    counts = table.cpu().numpy().astype(float)
    right = counts.diagonal()
    ious = right / np.maximum(counts.sum(0) + counts.sum(1) - right, 1)
    return {
        "iou": float(ious.mean()),
        "accuracy": float(right.sum() / counts.sum()),
        "tissues": dict(zip(SKIN.names, ious.round(4).tolist(), strict=True)),
    }


def score_normal(network: SegmentationModel, sections: Sections, mpp: float) -> dict[str, Any]:
    """Drawn sections without a cancer: in how many one is named, and how much of the tissue."""
    named, shares = 0, []
    for image, mask in zip(*sections, strict=True):
        confidence, predicted = probabilities(network, image).max(0)
        findings = cancer_types(
            predicted.byte().cpu().numpy(), confidence.clamp(max=1).cpu().numpy(), SKIN, Resolution.square(mpp)
        )
        named += any(finding.present for finding in findings)
        tissue = mask != SKIN.index("BKG")
        cancer = torch.isin(predicted, torch.tensor([SKIN.index(name) for name in CANCERS], device=mask.device))
        shares.append(float((cancer & tissue).sum() / tissue.sum()))
    return {"named": named, "sections": len(shares), "tissue_cancer": statistics.fmean(shares)}


def score_fillings(network: SegmentationModel, section: Laid, device: str) -> dict[str, Any]:
    """A1-1 with its missing places filled: with glass beside it, epidermis is easily told."""
    from research.surface_context import fillings

    scores = {}
    for name, picture in fillings(section).items():
        image = torch.from_numpy(picture).permute(2, 0, 1).contiguous().to(device)
        confidence, predicted = probabilities(network, image).max(0)
        scores[name] = score(section, predicted.byte().cpu().numpy(), confidence.clamp(max=1).cpu().numpy())
    return scores


def run(job: Job, folder: Path, laid: Path, out: Path, weights: Path | None, device: str) -> dict[str, Any]:
    """Train, score, and leave one JSON file."""
    path = out / f"{job.name}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    begun = time.perf_counter()
    network = train(job, folder, weights, device)
    if device == "cuda":
        torch.cuda.synchronize()
    trained = time.perf_counter() - begun
    print(job.name, f"trained in {trained:.0f} s", flush=True)
    torch.backends.cudnn.benchmark = False  # sections have many sizes
    mpp = level_resolution(job.level).x
    section = Laid.read(laid / f"{SECTION}-{mpp:g}.npz")
    image = torch.from_numpy(section.image).permute(2, 0, 1).contiguous().to(device)
    known = load_sections(folder, job.level, "val", device)
    reference = tissue_densities(known.images)
    row: dict[str, Any] = {"arm": job.arm, "level": job.level, "seed": job.seed, "seconds": trained, "views": {}}
    for name, found in views(network, image, reference):
        confidence, predicted = found.max(0)
        row["views"][name] = score(section, predicted.byte().cpu().numpy(), confidence.clamp(max=1).cpu().numpy())
    row["fillings"] = score_fillings(network, section, device)
    print(job.name, f"seen after {time.perf_counter() - begun:.0f} s", flush=True)
    if (folder / job.level / "second-val").exists():
        row["phantom 2"] = score_phantom(network, load_sections(folder, job.level, "second-val", device))
    row["phantom"] = score_phantom(network, known)
    moved = [recoloured(image, reference, strength) for image in known.images]
    row["phantom, strength"] = score_phantom(network, Sections(moved, known.masks))
    moved = [macenko(image, reference) for image in known.images]
    row["phantom, macenko"] = score_phantom(network, Sections(moved, known.masks))
    row["normal"] = score_normal(network, load_sections(folder, job.level, "held-out", device), mpp)
    row["all_seconds"] = time.perf_counter() - begun
    (out / "weights").mkdir(exist_ok=True)
    torch.save({k: v.half().cpu() for k, v in network.state_dict().items()}, out / "weights" / f"{job.name}.pt")
    write_json(path, row)
    return row


def means(model: str, folder: Path, laid: Path, out: Path, device: str, fewest: int) -> None:
    """A trained model of 10x on A1-1, and on the ``fewest`` smallest sections of the phantom, in other colours."""
    subject = open_subject(model)
    network = subject.network.to(device).eval()
    sections = load_sections(folder, "10x", "val", device)
    reference = tissue_densities(sections.images)
    small = sorted(range(len(sections.images)), key=lambda number: sections.images[number].numel())[:fewest]
    section = Laid.read(laid / f"{SECTION}-6.7.npz")
    image = torch.from_numpy(section.image).permute(2, 0, 1).contiguous().to(device)
    ways = {"as it is": lambda given: given, "macenko": lambda given: macenko(given, reference)}
    ways |= {name: partial(recoloured, reference=reference, move=move) for name, move in MOVES.items()}
    if subject.reference is not None and (stains := subject.reference.stains) is not None:
        asked = {f"--stain-norm {how}": partial(as_segmented, wanted=stains, method=how) for how in (MACENKO, STRENGTH)}
        ways |= asked
    rows = {}
    for name, way in ways.items():
        confidence, predicted = probabilities(network, way(image)).max(0)
        row = score(section, predicted.byte().cpu().numpy(), confidence.clamp(max=1).cpu().numpy())
        some = Sections(
            [way(sections.images[number]) for number in small], [sections.masks[number] for number in small]
        )
        rows[name] = row | {"phantom": score_phantom(network, some)}
        write_json(out / "means.json", rows)
        numbers = [row[key] for key in ("iou", "strict", "epidermis_right", "epidermis_cancer", "tissue_cancer")]
        phantom = rows[name]["phantom"]["iou"]
        print(name, *(f"{number:.3f}" for number in numbers), row["named"], f"phantom {phantom:.3f}", flush=True)


# --- tables ---


def table(rows: Sequence[dict[str, Any]], view: str = "plain") -> str:
    """Means over seeds, one line for each arm and level, as Markdown."""
    lines = [
        "| arm | µm/px | seeds | mean IoU | strict | epidermis right | epidermis cancer | tissue cancer |"
        " cancer named | phantom val | normal phantom: named |",
        "|---" * 11 + "|",
    ]
    for arm, level in dict.fromkeys((row["arm"], row["level"]) for row in rows):
        some = [row for row in rows if (row["arm"], row["level"]) == (arm, level)]
        found = [row["views"][view] for row in some]
        ious = [each["iou"] for each in found]
        spread = f" ± {statistics.stdev(ious):.3f}" if len(ious) > 1 else ""

        def mean(key: str, found: list[dict[str, Any]] = found) -> float:
            return statistics.fmean(each[key] for each in found)

        lines.append(
            f"| {arm} | {level_resolution(level).x:g} | {len(some)} | {statistics.fmean(ious):.3f}{spread} | "
            f"{mean('strict'):.3f} | {mean('epidermis_right'):.0%} | {mean('epidermis_cancer'):.0%} | "
            f"{mean('tissue_cancer'):.1%} | {sum(bool(each['named']) for each in found)} of {len(found)} | "
            f"{statistics.fmean(row['phantom']['iou'] for row in some):.3f} | "
            f"{sum(row['normal']['named'] for row in some)} of {sum(row['normal']['sections'] for row in some)} |"
        )
    return "\n".join(lines)


def read_rows(out: Path) -> list[dict[str, Any]]:
    """Finished jobs, in the order of the arms."""
    rows = [json.loads(path.read_text()) for path in out.glob("*.json")]
    return sorted(rows, key=lambda row: (row["level"] == "5x", row["arm"], row["seed"]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("lay", "draw", "train", "means", "table"))
    parser.add_argument("--skin-pas", type=Path)
    parser.add_argument("--levels", default="10x")
    parser.add_argument("--kinds", default="", help="of sections to draw; all where none is named")
    parser.add_argument("--sections", type=Path)
    parser.add_argument("--laid", type=Path)
    parser.add_argument("--weights", type=Path, help="ImageNet weights of ResNet-18")
    parser.add_argument("--model", default="bundled", help="for means")
    parser.add_argument("--smallest", type=int, default=24, help="sections of the phantom, for means")
    parser.add_argument("--plan", default="", help="ARM:LEVEL:SEEDS …")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "lay":
        for level in LEVELS:
            mpp = level_resolution(level).x
            lay(asked.skin_pas, SECTION, mpp).save(asked.out / f"{SECTION}-{mpp:g}.npz")
    elif asked.what == "draw":
        with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
            list(
                pool.map(
                    draw, plan_sheets(asked.out, asked.levels.split(","), asked.kinds.split(",") if asked.kinds else ())
                )
            )
    elif asked.what == "means":
        means(asked.model, asked.sections, asked.laid, asked.out, asked.device, asked.smallest)
    elif asked.what == "train":
        jobs = read_plan(asked.plan)
        where = [asked.sections, asked.laid, asked.out, asked.weights, asked.device]
        with ProcessPoolExecutor(min(asked.jobs, len(jobs)), mp_context=get_context("spawn")) as pool:
            asked_for = {pool.submit(run, job, *where): job for job in jobs}
            for done in as_completed(asked_for):
                said = done.exception() or f"{done.result()['views']['plain']['iou']:.3f}"
                print(asked_for[done].name, said, flush=True)  # one that failed does not stop the others
    if asked.what in ("train", "table"):
        rows = read_rows(asked.out)
        for view in rows[0]["views"] if rows else ():
            print(f"\n{view}\n\n{table(rows, view)}")


if __name__ == "__main__":
    main()
