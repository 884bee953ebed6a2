"""A plain training of a section network: one process, from the first step to the last, without resumption.

Data, augmentation, loss, schedule and recipe are the package's own. The order of windows and what augmentation draws
are functions of seed and step, so that a section network sees the very batches that ``ntrm train`` gives to its
control. There is no validation; the last weights are the model, as in the relation study (``keep: last``).
"""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from research.section_networks.memory import SectionMemory
from research.section_networks.networks import BASES, SectionModel, create
from torch import Tensor, nn

from ntrm.core.devices import choose_device, choose_layout, choose_precision
from ntrm.core.errors import NtrmError, UsageError
from ntrm.core.io import whole_file, write_json
from ntrm.core.labels import LabelSchema
from ntrm.data.split import few_sections, open_splits
from ntrm.data.tensors import TileDataset
from ntrm.models.config import ModelConfig
from ntrm.training.batches import StepPlan, WindowStore, class_pixels
from ntrm.training.initial_weights import build_network
from ntrm.training.losses import SegmentationLoss
from ntrm.training.recipe import Recipe
from ntrm.training.schedule import Rounds, learning_rate
from ntrm.version import __version__

MODEL, RESULT, LOSSES = "model", "result.json", "losses.csv"
OPTIMISERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
LOG_EVERY = 50


@dataclass(frozen=True)
class Trained:
    """What a training has come to."""

    model: Path
    steps: int
    seconds: float


def train(
    arch: str,
    data: Path,
    out: Path,
    *,
    recipe: Recipe,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    splits: Path | None = None,
    sections: int | None = None,
    device: str = "auto",
    name: str = "",
) -> Trained:
    """Train ``arch`` on the split ``train`` of ``data`` and write the model to ``out/model``.

    A training that has ended is not done again; one that was interrupted starts anew.
    """
    if (out / RESULT).exists():
        done = json.loads((out / RESULT).read_text())
        return Trained(out / MODEL, done["steps"], done["seconds"])
    place = choose_device(device)
    parts = open_splits(data, splits=splits)
    part = parts["train"] if sections is None else few_sections(parts["train"], sections)
    tiles = TileDataset(part, size=recipe.window, overlap=recipe.overlap, drop_background=recipe.drop_background)
    store = WindowStore(tiles, place, resident=recipe.resident, workers=recipe.workers)
    torch.manual_seed(seed)
    network = start(arch, parts.schema, dict(options or {}), recipe)
    network.describe(
        mpp=parts.resolution.mean, window=recipe.window, data=parts.fingerprint(), name=name or arch,
        version=__version__,
    )  # fmt: skip
    network = network.to(place, memory_format=choose_layout(place)).train()
    begun = time.monotonic()
    losses = _steps(network, store, StepPlan(len(tiles), recipe.batch, seed), recipe)
    seconds = time.monotonic() - begun
    network.cpu().eval().save_pretrained(out / MODEL)
    with whole_file(out / LOSSES) as partial, partial.open("w", newline="") as stream:
        csv.writer(stream).writerows([("step", "loss"), *losses])
    write_json(out / RESULT, {"steps": losses[-1][0], "seconds": seconds, "recipe": recipe.as_dict(), "seed": seed})
    return Trained(out / MODEL, losses[-1][0], seconds)


def start(arch: str, schema: LabelSchema, options: dict[str, Any], recipe: Recipe) -> SectionModel:
    """A fresh network whose encoder and decoder start as those of the package's network that it is made of."""
    network = create(arch, schema, **options)
    base, shared = BASES[arch]
    own = {key: value for key, value in options.items() if key in shared}
    weights = build_network(base, schema, options=own, recipe=recipe)[0].state_dict()
    network.load_state_dict({**network.state_dict(), **{k: v for k, v in weights.items() if "relation." not in k}})
    return network


def _steps(network: SectionModel, store: WindowStore, plan: StepPlan, recipe: Recipe) -> list[tuple[int, float]]:
    """All steps; the loss of some of them."""
    device, total = store.device, Rounds.of(recipe, plan.steps_per_epoch).total
    if recipe.schedule == "plateau" or recipe.freeze_batch_norm or recipe.fill:
        raise UsageError(
            "this loop has no validation, freezes nothing and fills nothing",
            got=f"schedule {recipe.schedule}, freeze_batch_norm {recipe.freeze_batch_norm}, fill {recipe.fill:g}",
            expected="a cosine or constant schedule, freeze_batch_norm false, fill 0",
            hint="take the recipe fast",
        )
    frequencies = class_pixels(store.tiles) if recipe.weighting == "dataset" else None
    criterion = SegmentationLoss(
        network.config.classes, weighting=recipe.weighting, balance=recipe.balance, frequencies=frequencies,
        coarse=recipe.coarse, dice=recipe.dice,
    ).to(device)  # fmt: skip
    optimiser = OPTIMISERS[recipe.optimiser](network.parameters(), weight_decay=recipe.weight_decay)
    precision = _precision(recipe, device)
    memory = SectionMemory(section_numbers(store.tiles), device) if network.sees_section else None
    augment, losses = recipe.augmentation, []
    for step, batch in enumerate(store.batches([plan.indices(step) for step in range(total)])):
        images, masks = augment(*batch, plan.generator(step))
        sections = None if memory is None else memory.sections(plan.indices(step))
        others = None if memory is None else memory.recalled(sections)
        torch.manual_seed(plan.seed * 2**32 + step)  # what dropout draws is a function of seed and step, too
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            output, added = network.step(normalised(images, network.config), others=others, truth=masks)
            loss = criterion(output, masks).total
        _learn(network, optimiser, loss, learning_rate(recipe, step, total), recipe.gradient_clip)
        if memory is not None:
            memory.update(sections, added)
        if (step + 1) % LOG_EVERY == 0 or step + 1 == total:
            losses.append((step + 1, _number(loss)))
    return losses


def _learn(network: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor, rate: float, clip: float | None) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(network.parameters(), clip)
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.step()


def _precision(recipe: Recipe, device: torch.device) -> torch.dtype:
    precision = choose_precision(recipe.precision, device)
    # Half precision of another range would need its gradients scaled.
    return torch.float32 if precision == torch.float16 else precision


def _number(loss: Tensor) -> float:
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NtrmError("the loss is no number any more", got=value, hint="lower the learning rate")
    return value


def normalised(images: Tensor, config: ModelConfig) -> Tensor:
    """Bytes (B, 3, H, W) → what the network expects."""
    mean, std = (torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (config.mean, config.std))
    return ((images.float() / 255 - mean) / std).contiguous(memory_format=choose_layout(images.device))


def section_numbers(tiles: TileDataset) -> list[int]:
    """The section of each window, counted from 0 in their order."""
    known: dict[str, int] = {}
    return [known.setdefault(place.case.name, len(known)) for place in tiles.sources]
