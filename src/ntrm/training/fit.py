"""One training, from a dataset on disk to a model folder that loads anywhere."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ntrm.core.devices import choose_layout
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import Dataset
from ntrm.data.split import DatasetSplits, few_sections, open_parts
from ntrm.data.tensors import TileDataset
from ntrm.models.base import SegmentationModel
from ntrm.models.names import network_named
from ntrm.training.batches import StepPlan, TileStore
from ntrm.training.callbacks import CHECKPOINTS, RunKeeper
from ntrm.training.checkpoints import CheckpointFolder
from ntrm.training.engine import quiet
from ntrm.training.initial import InitReport, build_network
from ntrm.training.interruption import Interruption
from ntrm.training.launch import Launch, find_launch
from ntrm.training.module import TrainingModule
from ntrm.training.recipe import Recipe
from ntrm.training.run import MODEL, Run, RunResult, check_folder, read_result
from ntrm.training.trainer import fast_matrices, make_trainer, memory_explained, sound_attention
from ntrm.version import __version__

Say = Callable[[str], None]


def _silent(text: str) -> None:
    """Say nothing."""


def fit(
    arch: str,
    data: Path,
    out: Path,
    *,
    recipe: Recipe,
    level: str | None = None,
    split_file: Path | None = None,
    options: Mapping[str, Any] | None = None,
    init: str | Path | None = None,
    sections: int | None = None,
    seed: int = 0,
    device: str = "auto",
    num_devices: int = 1,
    resume: bool = False,
    name: str = "",
    command: Sequence[str] = (),
    pictures: bool = True,
    progress: Progress = SILENT,
    say: Say = _silent,
) -> RunResult:
    """Train a network and write the run to ``out``.

    The training is a function of architecture, options, data, recipe and seed. Stopped by a signal it raises
    ``InterruptedTrainingError``; called again with ``resume`` it goes on, and comes to the same end.

    Args:
        arch: name of an architecture; the run and its model name the network that ``ntrm`` stands for.
        data: dataset folder.
        out: folder of the run, new or empty unless ``resume``.
        recipe: how to train.
        level: resolution level, needed only where several are present.
        split_file: what ``ntrm data split`` wrote; the dataset's own splits if not given.
        options: options of the architecture.
        init: a trained model to start from.
        sections: train on so many sections only.
        seed: of everything random but the split.
        device: by name.
        num_devices: processes on this machine, one for each device. Without ``torchrun`` or ``srun`` the calling
            program is started again for every further process.
        resume: go on with the run in ``out`` if there is one.
        name: of the model; the architecture's if not given.
        command: for the provenance.
        pictures: whether to draw curves and examples.
        progress: where steps are shown.
        say: where validation scores and notes go, a line each.

    """
    launch = find_launch(device, num_devices)
    say, progress = (say, progress) if launch.leads else (_silent, SILENT)
    named, arch = arch, network_named(arch)
    if named != arch:
        say(f"{named} is {arch} in this version of ntrm")
    if launch.leads:
        check_folder(Path(out), resume=resume)
    parts = open_parts(data, level=level, split_file=split_file)
    training, validation = _part(parts, "train"), _part(parts, "val")
    training = training if sections is None else few_sections(training, sections)
    run = Run(
        out=Path(out),
        arch=arch,
        options=dict(options or {}),
        level=level or "".join(parts.whole.levels),
        mpp=parts.resolution.mean,
        sections=sections,
        init=None if init is None else str(init),
        seed=seed,
        recipe=recipe,
        data=parts.fingerprint() if launch.leads else "",
        name=name or arch,
        device=launch.device,
        command=tuple(command),
    )
    if launch.leads:
        run.check()
    done = read_result(run.out) if resume else None
    if done is not None:
        say(f"{run.out} is finished already; nothing to do")
        return done
    with torch.random.fork_rng(devices=[launch.device] if launch.device.type == "cuda" else []):
        torch.manual_seed(seed)
        network, report = build_network(arch, parts.schema, options=options, recipe=recipe, init=init)
        for note in report.notes:
            say(note)
        network.describe(
            mpp=run.mpp, window=recipe.window, data=run.data, name=run.name, version=__version__, temperature=1.0
        )
        with quiet(), fast_matrices(recipe, launch.device), sound_attention(), memory_explained(recipe, launch.device):
            return _Training(run, report, launch, pictures, progress, say)(network, training, validation)


class _Training:
    """The heavy part: tiles, steps, model."""

    def __init__(
        self, run: Run, report: InitReport, launch: Launch, pictures: bool, progress: Progress, say: Say
    ) -> None:
        self.run = run
        self.report = report
        self.launch = launch
        self.pictures = pictures
        self.progress = progress
        self.say = say

    def __call__(self, network: SegmentationModel, training: Dataset, validation: Dataset) -> RunResult:
        recipe, launch, run = self.run.recipe, self.launch, self.run
        stores = self._store(training, recipe.overlap, recipe.drop_background), self._store(validation)
        module = self._module(network, *stores)
        resumed = None
        if launch.leads:
            # Not sooner: whoever stops the reading of a large dataset leaves no half-begun run behind.
            run.begin(self.report.encoder, self.report.as_dict())
            resumed = CheckpointFolder(run.out / CHECKPOINTS).latest(self.say)
        with Interruption() as interruption:
            keeper = RunKeeper(
                run.out,
                module,
                interruption,
                leads=launch.leads,
                resumed=resumed,
                examples=stores[1].tiles if self.pictures else None,
                progress=self.progress,
                say=self.say,
            )
            try:
                # Few sections may do a trained model more harm than good. By loss the start cannot be compared: the
                # weights of classes change in the course of a training.
                start_counts = run.init is not None and recipe.keep == "iou"
                make_trainer(recipe, launch, run.out, keeper, start_counts=start_counts).fit(module)
            finally:
                keeper.close()
        result = self._finish(module, keeper)
        del module, stores
        release_memory(launch.device)
        return result

    def _store(self, part: Dataset, overlap: int = 0, drop_background: bool = False) -> TileStore:
        recipe, progress = self.run.recipe, self.progress
        tiles = TileDataset(
            part, size=recipe.window, overlap=overlap, drop_background=drop_background, progress=progress
        )
        return TileStore(tiles, self.launch.device, resident=recipe.resident, workers=recipe.workers, progress=progress)

    def _module(self, network: SegmentationModel, training: TileStore, validation: TileStore) -> TrainingModule:
        recipe, launch = self.run.recipe, self.launch
        if len(validation) < launch.world:
            raise UsageError(
                "fewer validation windows than processes",
                got=f"{len(validation)} windows",
                expected=f"at least {launch.world}",
                mend="use fewer processes",
            )
        plan = StepPlan(len(training), recipe.batch, self.run.seed, launch.rank, launch.world)
        frequencies = class_pixels(training.tiles) if recipe.weighting == "dataset" else None
        network.to(memory_format=choose_layout(launch.device))  # type: ignore[call-overload]
        if recipe.compile:
            network.compile()
        self.say(
            f"{len(training):,} training windows, {len(validation):,} validation windows; "
            f"{plan.steps_per_epoch:,} steps of {recipe.batch} an epoch on {launch.device}"
        )
        return TrainingModule(network, recipe, plan, training=training, validation=validation, frequencies=frequencies)

    def _finish(self, module: TrainingModule, keeper: RunKeeper) -> RunResult:
        """The kept weights become the model."""
        run, network = self.run, module.network
        best = {} if keeper.kept is None else dict(keeper.kept["scores"])
        if self.launch.leads:
            weights = keeper.folder.kept_weights({"kept": keeper.kept})
            if weights is not None:
                network.load_state_dict(weights)
            network.cpu().eval().save_pretrained(run.out / MODEL)
            if self.pictures:
                module.to(self.launch.device)
                keeper.draw()
        return run.end(
            steps=module.steps_done,
            epochs=module.steps_done / module.rounds.per_epoch,
            best=best,
            seconds=keeper.seconds,
            write=self.launch.leads,
        )


def class_pixels(tiles: TileDataset) -> list[float]:
    """Pixels of each class in the sections of a dataset."""
    sections = {place.case.name: place.section for place in tiles.places}
    counts = sum(
        (np.bincount(np.asarray(section.mask).ravel(), minlength=256) for section in sections.values()),
        np.zeros(256, np.int64),
    )
    return [float(count) for count in counts[: len(tiles.schema)]]


def release_memory(device: torch.device) -> None:
    """Give a GPU's memory back: trainer, module and callbacks hold each other until they are collected."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _part(parts: DatasetSplits, split: str) -> Dataset:
    if not any(case.split == split for case in parts.whole):
        raise RefusedError(
            f"{parts.whole.root}: no section is in the split {split}",
            got=f"{len(parts.whole)} sections",
            mend="write splits with `ntrm data split` and give them with --splits",
        )
    return parts[split]
