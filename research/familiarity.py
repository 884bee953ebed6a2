"""How well a model's reference tells what it knows from what it does not, beside other measures of the same.

    python research/familiarity_sections.py --out familiarity --jobs 8
    python research/familiarity.py --model bundled --sections familiarity --real shared/data --out familiarity.json

Negatives are fresh synthetic sections (split ``test`` of the first command), whole and as parts of the size of the
real images; positives are real images. Everything is brought to the model's µm/px first. Other measures: one less the
mean highest probability, energy, Mahalanobis distance and distance to the nearest of 64 centres on pooled encoder
features, each fitted on the training sections' parts.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from research.skin_pas import lay
from torch import Tensor
from torch.nn import functional

from ntrm.core.io import write_json
from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution
from ntrm.data.cache import SectionCache
from ntrm.data.resample import area_average
from ntrm.data.split import open_splits
from ntrm.familiarity.build import observe, random_crops, unit_of
from ntrm.familiarity.cells import LEAST_DENSITY, ClassStatistics
from ntrm.familiarity.judge import WEIGHTS, Unit, judge, p_values, scores
from ntrm.familiarity.loaded_model import open_subject
from ntrm.familiarity.reference import Reference
from ntrm.models.predictor import Predictor
from ntrm.results.familiarity import ASPECTS, TOO_SMALL, UNFAMILIAR, UNFAMILIAR_BELOW

LOOK_MPP = 1.0  # Estimated µm/px of skin-he-look
SIZES = {"he-look": (38, 38), "GlaS": (48, 72), "Gleason": (191, 191)}
"""Pixels of the real images at 6.7 µm/px: parts of synthetic sections are cut alike."""
CUT_PER_SECTION = {"he-look": 3, "GlaS": 2, "Gleason": 1}
MOST_GLASS = 0.4
CENTRES = 64

Picture = NDArray[np.uint8]
Floats = NDArray[np.float64]


class Seen(NamedTuple):
    """An image by every measure."""

    unit: Unit
    features: Floats  # (F,) pooled encoder features
    softmax: float
    energy: float


class Measures:
    """Runs a model over images."""

    def __init__(self, model: str) -> None:
        subject = open_subject(model)
        if subject.reference is None:
            raise SystemExit(f"{model} has no reference")
        self.reference: Reference = subject.reference
        self.predictor = Predictor(subject.network, "cpu", batch=8)
        self.schema = subject.config.schema
        self.resolution = Resolution.square(float(subject.config.mpp or 0))
        self._network: Any = subject.network

    def see(self, image: Picture) -> Seen:
        return Seen(self.unit(image), *self.pooled(image))

    def unit(self, image: Picture) -> Unit:
        """What the product's own measure is told from."""
        numbers = self.reference.numbers
        known = ClassStatistics(torch.from_numpy(numbers.class_means), torch.from_numpy(numbers.class_whitening))
        return unit_of(observe(self.predictor, image), known)

    @torch.inference_mode()
    def pooled(self, image: Picture) -> tuple[Floats, float, float]:
        """Mean and deviation of three encoder stages over tissue; softmax and energy of the logits there."""
        window = self.predictor.config.window
        image = image[:window, :window]
        height, width = (-(-side // 32) * 32 for side in image.shape[:2])
        padded = np.full((height, width, 3), 255, dtype=np.uint8)
        padded[: image.shape[0], : image.shape[1]] = image
        pixels = torch.from_numpy(padded).permute(2, 0, 1)[None].float() / 255
        tissue = (-torch.log10((pixels * 255 + 1) / 256)).mean(dim=1, keepdim=True) > LEAST_DENSITY
        mean, std = self.predictor._mean_and_std()
        x = (pixels - mean) / std
        numbers = []
        for stage in self._network.encoder(x)[:3]:
            weight = functional.interpolate(tissue.float(), stage.shape[-2:], mode="area")
            mean = (stage * weight).sum((0, 2, 3)) / weight.sum().clamp(min=1e-6)
            spread = ((stage - mean.view(1, -1, 1, 1)).square() * weight).sum((0, 2, 3)) / weight.sum().clamp(min=1e-6)
            numbers += [mean, spread.sqrt()]
        logits: Tensor = self._network(x).final[0][:, tissue[0, 0]]
        highest = logits.softmax(dim=0).max(dim=0).values
        features = torch.cat(numbers).double().numpy()
        return features, float(1 - highest.mean()), float(-logits.logsumexp(dim=0).mean())


def synthetic(sections: Path, split: str, sizes: Sequence[str], seed: int) -> Iterator[tuple[str, Picture]]:
    """Whole sections, and parts cut to the sizes of real images."""
    splits, random = open_splits(sections), np.random.default_rng(seed)
    for case in splits[split]:
        section = SectionCache().open(case, splits.schema)
        image, glass = np.asarray(section.image), np.asarray(section.mask == splits.schema.background_index)
        yield "whole", image
        for name in sizes:
            for part in _cut(image, glass, SIZES[name], CUT_PER_SECTION[name], random):
                yield name, part


def _cut(
    image: Picture, glass: NDArray[np.bool_], size: tuple[int, int], count: int, random: np.random.Generator
) -> Iterator[Picture]:
    height, width = (min(one, other) for one, other in zip(size, glass.shape, strict=True))
    for _ in range(count):
        for _ in range(60):
            top, left = (
                int(random.integers(side - part + 1)) for side, part in zip(glass.shape, (height, width), strict=True)
            )
            here = np.s_[top : top + height, left : left + width]
            if glass[here].mean() <= MOST_GLASS:
                yield np.ascontiguousarray(image[here])
                break


def real(folder: Path, name: str, mpp: float) -> Iterator[Picture]:
    """Images of a real set at ``mpp`` µm/px."""
    if name in ("A1-1", "A1-2"):
        yield lay(folder / "skin-pas", name, mpp).image
    elif name == "he-look":
        for path in sorted((folder / "skin-he-look").glob("*.jpg")):
            yield _shrunk(path, LOOK_MPP, mpp)
    else:
        where = folder / {"GlaS": "glas", "Gleason": "gleason2019"}[name]
        with (where / "cases.csv").open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                yield _shrunk(where / "Images" / f"{row['name']}.jpg", float(row["mpp"]), mpp)


def _shrunk(path: Path, own: float, mpp: float) -> Picture:
    return area_average(np.asarray(Image.open(path).convert("RGB")), mpp / own, mpp / own)


def auroc(negative: Floats, positive: Floats) -> float:
    """Chance that a positive scores higher than a negative."""
    every = np.concatenate([negative, positive])
    ranks = every.argsort().argsort() + 1
    return float(
        (ranks[len(negative) :].sum() - len(positive) * (len(positive) + 1) / 2) / (len(negative) * len(positive))
    )


class Others:
    """Mahalanobis distance and nearest centre on pooled features."""

    def __init__(self, training: Sequence[Seen]) -> None:
        values = np.array([each.features for each in training])
        self.mean, self.spread = values.mean(axis=0), values.std(axis=0) + 1e-3
        z = (values - self.mean) / self.spread
        self.precision = np.linalg.inv(0.9 * np.cov(z, rowvar=False) + 0.1 * np.eye(z.shape[1]))
        random = np.random.default_rng(0)
        centres = z[random.choice(len(z), min(CENTRES, len(z)), replace=False)]
        for _ in range(10):
            nearest = ((z[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
            centres = np.array(
                [z[nearest == k].mean(0) if (nearest == k).any() else centres[k] for k in range(len(centres))]
            )
        self.centres = centres

    def scores(self, seen: Sequence[Seen]) -> dict[str, Floats]:
        z = (np.array([each.features for each in seen]) - self.mean) / self.spread
        return {
            "softmax": np.array([each.softmax for each in seen]),
            "energy": np.array([each.energy for each in seen]),
            "Mahalanobis, features": np.einsum("ni,ij,nj->n", z, self.precision, z),
            "nearest centre, features": ((z[:, None] - self.centres[None]) ** 2).sum(-1).min(1),
        }


def ours(seen: Sequence[Seen], reference: Reference) -> dict[str, Floats]:
    """Smaller p-values as higher scores, by aspect and together."""
    numbers = reference.numbers
    each = np.array([p_values(scores(one.unit, numbers), one.unit.area_mm2, numbers) for one in seen])
    logs = -np.log10(np.maximum(each, 1e-300))
    weights = np.log10([WEIGHTS[name] for name in ASPECTS])
    return {**dict(zip(ASPECTS, logs.T, strict=True)), "together": (logs + weights).max(axis=1)}


def verdicts(seen: Sequence[Seen], measures: Measures) -> dict[str, Any]:
    found = [judge(each.unit, measures.reference, measures.schema) for each in seen]
    count = len(found)
    aspects = {
        name: sum(each.aspects.get(name, 1.0) / WEIGHTS[name] < UNFAMILIAR_BELOW for each in found) for name in ASPECTS
    }
    unfamiliar = sum(each.verdict == UNFAMILIAR for each in found)
    small = sum(each.verdict == TOO_SMALL for each in found)
    reasons = [each.reasons[0] for each in found if each.verdict == UNFAMILIAR][:5]
    return {"images": count, "unfamiliar": unfamiliar, "too_small": small, "by_aspect": aspects, "reasons": reasons}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--sections", type=Path, required=True)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--sets", default="A1-2,he-look,Gleason", help="of A1-1, A1-2, GlaS, he-look, Gleason")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    measures, sets = Measures(asked.model), asked.sets.split(",")
    sizes = [name for name in SIZES if name in sets]
    mpp = measures.resolution.x
    training = [measures.see(image) for image in training_parts(asked.sections)]
    others = Others(training)
    negatives: dict[str, list[Seen]] = {}
    for name, image in synthetic(asked.sections, "test", sizes, seed=0):
        negatives.setdefault(name, []).append(measures.see(image))
    report: dict[str, Any] = {"fresh": {name: verdicts(seen, measures) for name, seen in negatives.items()}, "real": {}}
    print(report["fresh"], flush=True)
    for name in sets:
        seen = [measures.see(image) for image in real(asked.real, name, mpp)]
        against = negatives.get(name, negatives["whole"])
        by_measure = [{**others.scores(some), **ours(some, measures.reference)} for some in (against, seen)]
        areas = {key: auroc(by_measure[0][key], by_measure[1][key]) for key in by_measure[0]}
        report["real"][name] = {**verdicts(seen, measures), "auroc": areas}
        print(name, report["real"][name], flush=True)
        write_json(asked.out, report)


def training_parts(sections: Path) -> Iterator[Picture]:
    """Parts of the training sections, as a reference is made from."""
    splits = open_splits(sections)
    for number, case in enumerate(splits["train"]):
        section = SectionCache().open(case, splits.schema)
        tissue = np.asarray((section.mask != splits.schema.background_index) & (section.mask != IGNORE))
        _, *parts = random_crops(np.asarray(section.image), tissue, np.random.default_rng([9, number]))
        yield from parts[:5]


if __name__ == "__main__":
    main()
