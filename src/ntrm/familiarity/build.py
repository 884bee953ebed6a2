"""Make a model's reference from a dataset: how its training sections look, and how held-out ones score.

From each section the whole and some random parts of it are predicted, each as an image of its own, so that small
pieces are compared with small pieces. Parts are compressed, blurred or sharpened a little at random: how an image was
resampled and stored must not make it unfamiliar. Classes, unit covariances and anatomy come from the training split,
quantiles of the scores from the validation split.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image as Picture
from torch import Tensor

from ntrm.core.arrays import Floats, Singles
from ntrm.core.errors import RefusedError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Dataset
from ntrm.data.resample import area_average
from ntrm.data.split import DatasetSplits, few_sections
from ntrm.data.stains import StainError, Stains, estimate_stains, tissue_densities
from ntrm.data.tiles import Window
from ntrm.familiarity.cells import ClassStatistics, cell_statistics
from ntrm.familiarity.judge import LEAST_CELLS, Unit, scores
from ntrm.familiarity.reference import COLOURS, LEVELS, STATISTICS, Reference, ReferenceNumbers
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Stitching, stitch
from ntrm.regions.graph import TissueGraph, tissue_graph

MOST_SECTIONS = 60  # Of a split: more change little
LEAST_SECTIONS = 8  # Of a split: fewer say nothing about others
PARTS = 8  # Parts of each section beside the whole
TOWARDS_SMALL = 1.5
"""Power of the uniform number that decides on a part's size: small parts differ most, and take least time."""
SMALLEST_PX = 32  # Side of the smallest part
LEAST_TISSUE = 0.3  # Fraction of a part that must be tissue
TRIES = 40
LEAST_OF_CLASS = (200, 5)  # Cells, and sections that have any: with fewer a class is compared with all cells together
SHRINKAGE = {"cells": 0.01, "units": 0.02, "anatomy": 0.2}  # How far covariances are drawn towards their diagonals
PIXELS_PER_SECTION = 4000  # Of its tissue, from which stains are estimated: large sections do not count for more
UNITS_PER_SIZE, MOST_SIZES = 25, 12  # Held-out parts behind the quantiles of one size, at least; and sizes

Image = NDArray[np.uint8]  # What all cells of all sections are held in: half the memory, and just as exact


@dataclass(frozen=True, eq=False)
class Observation:
    """An image as the network sees it."""

    section: int  # Number of the section that it is of
    graph: TissueGraph  # Of the mask
    values: Singles  # (N, D) statistics of the cells that count
    classes: NDArray[np.uint8]  # (N,)


def observe(predictor: Predictor, image: Image, section: int = 0) -> Observation:
    """Predict an image, and keep the cells that count, and its tissue graph."""
    config = predictor.config
    values, classes = list[Tensor](), list[Tensor]()

    def keep(_: Sequence[Window], pixels: Tensor, probabilities: Tensor) -> None:
        cells = cell_statistics(pixels, probabilities, config.schema.background_index)
        values.append(cells.values[cells.counts].cpu())
        classes.append(cells.classes[cells.counts].to(torch.uint8).cpu())

    seen = stitch(predictor, image, stitching=Stitching(config.window), observe=keep)
    graph = tissue_graph(seen.mask, Resolution.square(float(config.mpp or 0.0)), config.schema)
    return Observation(section, graph, torch.cat(values).numpy(), torch.cat(classes).numpy())


def build_reference(
    predictor: Predictor, splits: DatasetSplits, *, held_out: str = "val", seed: int = 0, progress: Progress = SILENT
) -> Reference:
    """The reference of a network; ``held_out`` is the split whose sections give the p-values."""
    config = predictor.config
    config.check_mpp()
    if held_out == "train":
        raise RefusedError(
            "the sections of a reference's p-values must be held out",
            got="the split train",
            expected="another split",
            hint="choose val",
        )
    for split in ("train", held_out):
        _check_enough(sum(case.split == split for case in splits.dataset), split)
    training, held = (
        few_sections(splits[split], min(len(splits[split]), MOST_SECTIONS)) for split in ("train", held_out)
    )
    seen = [*_observations(predictor, training, splits.schema, seed, progress, "training sections")]
    # A network that is hardly trained may take nearly everything for background.
    _check_enough(len({observation.section for observation in seen}), "train, in which the network sees tissue")
    known = class_statistics(seen, config.classes)
    units = [unit_of(observation, known) for observation in seen]
    del seen  # the cells of every section
    held_seen = _observations(predictor, held, splits.schema, seed + 1, progress, "held-out sections")
    held_units = [(observation.section, unit_of(observation, known)) for observation in held_seen]
    _check_enough(len({section for section, _ in held_units}), f"{held_out}, in which the network sees tissue")
    numbers = reference_numbers(known, units, [unit for _, unit in held_units])
    counts = [{"sections": len(each), "patients": len({case.group for case in each})} for each in (training, held)]
    about = {
        "training": counts[0],
        "held_out": {"split": held_out, **counts[1]},
        "fingerprint": splits.fingerprint(held_out),
        "seed": seed,
    }
    stains = training_stains(training, splits.schema, splits.resolution)
    return Reference(numbers, config.schema.names, float(config.mpp or 0.0), about, stains=stains)


def _check_enough(count: int, where: str) -> None:
    if count < LEAST_SECTIONS:
        raise RefusedError(
            "too few sections for a reference",
            got=f"{count} in the split {where}",
            expected=f"at least {LEAST_SECTIONS}",
            hint="without one, the model works but cannot say whether a slide is like its training sections",
        )


def _observations(
    predictor: Predictor, sections: Dataset, schema: LabelSchema, seed: int, progress: Progress, label: str
) -> Iterator[Observation]:
    cache, background = SectionCache(), IGNORE if schema.background_index is None else schema.background_index
    for number, case in enumerate(progress.track(sections, total=len(sections), label=label)):
        section = cache.open(case, schema)
        tissue = (section.mask != IGNORE) & (section.mask != background)
        for image in random_crops(np.asarray(section.image), tissue, np.random.default_rng([seed, number])):
            found = observe(predictor, image, number)
            if len(found.values) >= LEAST_CELLS:
                yield found


def training_stains(sections: Dataset, schema: LabelSchema, mpp: Resolution) -> Stains | None:
    """How sections are stained; None where they show no stain.

    They are looked at from as far as a slide is when its own stains are estimated, since averages mix stains.
    """
    from ntrm.slides.grid import THUMBNAIL_MPP
    from ntrm.slides.quality.thumbnail import Thumbnail, find_pen
    from ntrm.slides.tissue_mask import find_tissue

    cache, densities = SectionCache(), []
    down, across = (max(1.0, THUMBNAIL_MPP / side) for side in (mpp.y, mpp.x))
    for case in sections:
        image = np.asarray(cache.open(case, schema).image)
        seen = Thumbnail(area_average(image, down, across), Resolution(mpp.x * across, mpp.y * down))
        densities.append(tissue_densities(seen.picture, find_tissue(seen, find_pen(seen)), PIXELS_PER_SECTION))
    try:
        return estimate_stains(np.concatenate(densities))
    except StainError:
        return None


def random_crops(image: Image, tissue: NDArray[np.bool_], random: np.random.Generator) -> Iterator[Image]:
    """The image itself, then parts of it of random sizes that show enough tissue, changed a little."""
    yield image
    height, width = tissue.shape
    largest = min(height, width)
    for _ in range(PARTS if largest > SMALLEST_PX else 0):
        side = round(SMALLEST_PX * (largest / SMALLEST_PX) ** (random.random() ** TOWARDS_SMALL))
        high, wide = min(height, round(side * random.uniform(1, 1.5))), side
        for _ in range(TRIES):
            top, left = int(random.integers(height - high + 1)), int(random.integers(width - wide + 1))
            here = np.s_[top : top + high, left : left + wide]
            if tissue[here].mean() >= LEAST_TISSUE:
                yield changed_a_little(np.ascontiguousarray(image[here]), random)
                break


def changed_a_little(image: Image, random: np.random.Generator) -> Image:
    """As it is, compressed, smoother or sharper: what other scanners, viewers and resamplers do to an image."""
    kind = random.choice(["nothing", "jpeg", "smooth", "sharp"])
    if kind == "nothing":
        return image
    if kind == "jpeg":
        stream = io.BytesIO()
        Picture.fromarray(image).save(stream, "JPEG", quality=int(random.integers(50, 96)))
        return np.asarray(Picture.open(stream).convert("RGB"))
    from scipy import ndimage

    sigma = random.uniform(0.3, 0.7)
    smooth = ndimage.gaussian_filter(image.astype(np.float32), (sigma, sigma, 0), mode="nearest")
    changed = smooth if kind == "smooth" else image + random.uniform(0.2, 0.5) * (image - smooth)
    return np.asarray(np.clip(np.rint(changed), 0, 255), dtype=np.uint8)


def class_statistics(seen: Sequence[Observation], classes: int) -> ClassStatistics:
    """Means and whitening of the cells of each class; classes with few cells are compared with all cells.

    W gives (x − μ) W unit covariance, colours and texture apart.
    """
    values = np.concatenate([observation.values for observation in seen])
    labels = np.concatenate([observation.classes for observation in seen])
    sections = np.concatenate([np.full(len(observation.classes), observation.section) for observation in seen])
    means, whitening = np.empty((classes, STATISTICS)), np.zeros((classes, STATISTICS, STATISTICS))
    for number in range(classes):
        own = labels == number
        enough = own.sum() >= LEAST_OF_CLASS[0] and len(np.unique(sections[own])) >= LEAST_OF_CLASS[1]
        cells = (values[own] if enough else values).astype(np.float64)
        means[number], covariance = cells.mean(axis=0), _covariance(cells, SHRINKAGE["cells"])
        for block in (slice(0, COLOURS), slice(COLOURS, STATISTICS)):
            whitening[number][block, block] = np.linalg.cholesky(np.linalg.inv(covariance[block, block]))
    return ClassStatistics(torch.from_numpy(means), torch.from_numpy(whitening))


def _covariance(values: Floats, shrinkage: float) -> Floats:
    """Drawn towards its diagonal, with a little of the mean variance added so that it can always be inverted."""
    covariance = np.atleast_2d(np.cov(values, rowvar=False))
    diagonal = np.diag(covariance)
    floor = 1e-3 * diagonal.mean() + 1e-9
    return np.asarray((1 - shrinkage) * covariance + shrinkage * np.diag(diagonal) + floor * np.eye(len(diagonal)))


def unit_of(seen: Observation, known: ClassStatistics) -> Unit:
    """The image as it is judged."""
    deviations = seen.values.astype(np.float64) - known.means.numpy()[seen.classes]
    z = np.einsum("nd,nde->ne", deviations, known.whitening.numpy()[seen.classes])
    sums = np.concatenate([[len(z)], z.sum(axis=0), deviations.sum(axis=0)])
    return Unit.of(sums, seen.graph)


def reference_numbers(known: ClassStatistics, units: Sequence[Unit], held_out: Sequence[Unit]) -> ReferenceNumbers:
    """All numbers: how training units differ, and how held-out ones score."""
    z, anatomy = np.array([unit.mean_z for unit in units]), np.array([unit.anatomy for unit in units])
    without_null = ReferenceNumbers(
        class_means=known.means.numpy(),
        class_whitening=known.whitening.numpy(),
        unit_mean=z.mean(axis=0),
        unit_covariance=_covariance(z, SHRINKAGE["units"]),
        anatomy_mean=anatomy.mean(axis=0),
        anatomy_covariance=_covariance(anatomy, SHRINKAGE["anatomy"]),
        anatomy_most=np.quantile(anatomy, 0.99, axis=0),
        smallest_mm2=np.zeros(1),
        log_areas=np.zeros(1),
        quantiles=np.zeros((3, 1, len(LEVELS))),
        tails=np.ones((3, 1)),
    )
    found = np.array([scores(unit, without_null) for unit in held_out])  # (N, 3)
    log_areas = np.log([max(unit.area_mm2, 1e-12) for unit in held_out])
    sizes, quantiles, tails = null_distribution(found, log_areas)
    smallest = np.exp(log_areas.min(keepdims=True))
    return replace(without_null, smallest_mm2=smallest, log_areas=sizes, quantiles=quantiles, tails=tails)


def null_distribution(found: Floats, log_areas: Floats) -> tuple[Floats, Floats, Floats]:
    """Scores (N, 3) and sizes (N,) of held-out units → sizes (M,), quantiles (3, M, Q) and tails (3, M)."""
    order = np.argsort(log_areas, kind="stable")
    groups = np.array_split(order, min(MOST_SIZES, max(1, len(order) // UNITS_PER_SIZE)))
    sizes = np.array([np.median(log_areas[group]) for group in groups])
    quantiles = np.array([[np.quantile(found[group, aspect], LEVELS) for group in groups] for aspect in range(3)])
    tails = np.array([[_excess(found[group, aspect]) for group in groups] for aspect in range(3)])
    return np.maximum.accumulate(sizes + np.arange(len(sizes)) * 1e-9), quantiles, tails


def _excess(values: Floats) -> float:
    above = values - np.quantile(values, LEVELS[-1])
    return max(float(above[above > 0].mean()) if (above > 0).any() else 0.0, 0.05)
