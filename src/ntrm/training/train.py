"""One training, from a dataset on disk to a model folder that loads anywhere."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ntrm.core.errors import RefusedError, UsageError, check_seed, plain_number
from ntrm.core.io import sha256_of
from ntrm.core.progress import SILENT, Progress, as_progress
from ntrm.core.wording import counted
from ntrm.data.dataset import check_outside
from ntrm.data.tensors import TileDataset
from ntrm.familiarity.build import build_reference
from ntrm.models.base import SegmentationModel
from ntrm.models.config import DEFAULT, ModelConfig, network_named
from ntrm.models.folders import CONFIG, WEIGHTS, locate, read_config
from ntrm.models.predictor import Predictor
from ntrm.training.batches import StepPlan, WindowStore, class_pixels
from ntrm.training.checkpoint import CheckpointFolder
from ntrm.training.device import training_precision, tuned
from ntrm.training.distributed import Launch, connect, find_launch, from_first
from ntrm.training.initial_weights import build_network
from ntrm.training.log import CHECKPOINTS, Recorder
from ntrm.training.loop import Interruption, Training, run_rounds
from ntrm.training.recipe import FINETUNE, Recipe, check_start, load_recipe
from ntrm.training.run import MODEL, RunResult, TrainingRun, locked, read_result
from ntrm.training.training_data import CorrectedSlides, TrainingData, open_training_data, selection
from ntrm.version import __version__

Say = Callable[[str], None]


def train(
    data: str | Path | None,
    out: str | Path,
    *,
    arch: str | None = None,
    recipe: str | Path | Recipe | None = None,
    resolution: str | None = None,
    splits: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    init: str | Path | None = None,
    corrections: CorrectedSlides | None = None,
    sections: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    num_devices: int = 1,
    resume: bool = False,
    name: str = "",
    command: Sequence[str] = (),
    pictures: bool = True,
    reference: bool = True,
    progress: Progress | bool = True,
    say: Say = lambda text: None,
) -> RunResult:
    """Train a network and write the run to ``out``.

    The result is a function of architecture, options, data, recipe and seed. Stopped by a signal, the training raises
    ``InterruptedTrainingError``; called again with ``resume`` it continues and ends with the same result.

    Args:
        data: dataset folder; None where corrected slides are all there is.
        out: folder of the run, new or empty unless ``resume``.
        arch: name of an architecture; the run and its model name the network that ``ntrm`` stands for. By default that
            of ``init``, with its options, else ``ntrm``.
        recipe: how to train: a name, a YAML file, or a result of ``load_recipe``; by default ``fast``, with
            ``corrections`` ``finetune``.
        resolution: resolution level, needed only where several are present.
        splits: what ``ntrm data split`` wrote; by default the dataset's own splits.
        options: options of the architecture.
        init: a trained model to start from.
        corrections: corrected slides to learn from, alone or beside ``data``. What a person clicked on chooses no
            weights, since these are the places where the network was wrong: the last ones are kept, unless the slides'
            table has put some into the split ``val``. Such a model has no reference.
        sections: train on so many sections only.
        seed: of everything random but the split.
        device: by name.
        num_devices: processes on this machine, one for each device, which ``torchrun`` has started.
        resume: continue the run in ``out`` if there is one.
        name: of the model; by default the architecture's.
        command: for the provenance.
        pictures: whether to draw curves and examples.
        reference: whether to leave a reference of the training sections with the model, by which slides are judged.
        progress: whether to show the steps, in a terminal or a notebook; or what shows them.
        say: called with each validation score and note, a line each.

    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe or default_recipe(corrections))
    check_seed(seed)
    seed, sections = plain_number(seed), plain_number(sections)
    if corrections is not None and init is None:
        what, hint = "there are too few corrections to train from scratch", "name the slides' model with --init"
        raise UsageError(what, expected="a trained model to start from", hint=hint)
    check_start(recipe, init)
    start, digest = (None, None) if init is None else read_config(locate(init) / CONFIG)
    launch = find_launch(str(device), num_devices)
    say, progress = (say, as_progress(progress)) if launch.leads else (lambda text: None, SILENT)
    if arch is None and start is not None:
        arch, options = start.arch, {**start.options, **(options or {})}
    asked, arch = arch or DEFAULT, network_named(arch or DEFAULT)
    if arch != asked:
        say(f"{asked} is {arch} in this version of ntrm")
    if data is not None:
        check_outside(Path(out), Path(data))
    with locked(Path(out), resume=resume) if launch.leads else nullcontext():
        training_precision(recipe, launch.device)
        given = open_training_data(
            None if data is None else Path(data),
            Path(out),
            resolution=resolution,
            splits=None if splits is None else Path(splits),
            sections=sections,
            corrections=corrections,
            mpp=None if start is None else start.mpp,
            progress=progress,
        )
        recipe, data_splits = selection(recipe, given, start, say), given.splits
        run = TrainingRun(
            out=Path(out),
            arch=arch,
            # As the record of the run has them, with which it is compared when it goes on.
            options={key: plain_number(value) for key, value in (options or {}).items()},
            level=resolution or "".join(data_splits.dataset.levels),
            mpp=data_splits.resolution.mean,
            sections=sections,
            init=None if init is None else str(init),
            init_sha256=digest,
            seed=seed,
            recipe=recipe,
            data=data_splits.fingerprint() if launch.leads else "",
            name=name or arch,
            device=launch.device,
            command=tuple(command),
            corrections=given.record,
        )
        if launch.leads:
            run.check()
        done = read_result(run.out) if resume else None
        if done is not None:
            say(f"{run.out} is finished already; nothing to do")
            return done
        with (
            torch.random.fork_rng(devices=[launch.device] if launch.device.type == "cuda" else []),
            tuned(run.recipe, launch.device),
        ):
            torch.manual_seed(seed)
            result = _train(run, launch, given, start, progress, say, pictures=pictures, reference=reference)
        if launch.device.type == "cuda":
            # CUDA graphs, and what errors refer to, hold memory until they are collected.
            gc.collect()
            torch.cuda.empty_cache()
        return result


def _train(
    run: TrainingRun,
    launch: Launch,
    given: TrainingData,
    start: ModelConfig | None,
    progress: Progress,
    say: Say,
    *,
    pictures: bool,
    reference: bool,
) -> RunResult:
    """A training from the first window to the model."""
    recipe, device = run.recipe, launch.device
    network, init_report = _make_network(run, given, launch, say)

    def store(tiles: TileDataset) -> WindowStore:
        return WindowStore(tiles, device, resident=recipe.resident, workers=recipe.workers, progress=progress)

    windows, validation = store(given.windows(recipe, progress)), None
    if given.validation is not None:
        validation = store(TileDataset(given.validation, size=recipe.window, progress=progress))
    plan, state = _plan(run, launch, given, windows, 0 if validation is None else len(validation), say), None
    if launch.leads:
        # Not sooner: a training that is stopped while it reads a large dataset leaves no empty run behind.
        run.begin(init_report, len(windows), windows.tiles.unknown)
        state = CheckpointFolder(run.out / CHECKPOINTS).latest(say)
    connect(launch)
    with Interruption() as interruption, warnings.catch_warnings():
        # Gradients of grouped convolutions have another memory layout than their weights: a copy, no fault.
        warnings.filterwarnings("ignore", message=r"Grad strides do not match bucket view strides")
        interruption.connect()
        state = from_first(state)
        current = Training(network, recipe, plan, device)
        tiles = validation.tiles if pictures and validation is not None else None
        recorder = Recorder(run.out, leads=launch.leads, state=state, examples=tiles, say=say)
        try:
            if state is not None:
                current.restore(state)
                say(f"continuing after step {current.steps_done:,}")
            elif run.init is not None and recipe.keep == "iou" and validation is not None:
                # Few sections may do a trained model more harm than good. The loss of the start cannot be compared:
                # class weights change during a training.
                recorder.record(current, current.validate(validation))
            if not current.finished:
                left = current.rounds.total - current.steps_done
                rounds = run_rounds(current, windows, validation, recorder, interruption)
                for _ in progress.track(rounds, left, "training steps"):
                    pass
        finally:
            recorder.close()
    kept = recorder.kept
    if launch.leads:
        if kept is not None:
            network.load_state_dict(kept["weights"])
            if start is not None and kept["scores"]["step"] == 0:
                # It learned no more than its start, whose temperature holds if it is the same network.
                one, other = ((each.arch, dict(each.options), each.schema.names) for each in (network.config, start))
                temperature = start.temperature if one == other else 1.0
                network.describe(trained_on=start.trained_on, temperature=temperature)
        network.cpu().eval().save_pretrained(run.out / MODEL)
        if pictures:
            network.to(device)
            recorder.draw(current)
        if reference:
            _leave_reference(Predictor(network, str(device)), given, run, progress, say)
    best = {} if kept is None else dict(kept["scores"])
    return run.end(current.steps_done, current.epochs, best, recorder.seconds, write=launch.leads)


def _plan(
    run: TrainingRun, launch: Launch, given: TrainingData, training: WindowStore, validating: int, say: Say
) -> StepPlan:
    recipe, schema = run.recipe, training.tiles.schema
    if given.validation is not None and validating < launch.world:
        expected = f"at least {launch.world}"
        raise UsageError("fewer validation windows than processes", got=f"{validating} windows", expected=expected)
    counts = zip(schema.names, class_pixels(training.tiles), strict=True) if launch.leads else ()
    if given.training is not None and (absent := [name for name, count in counts if not count]):
        say(f"no training pixel of {', '.join(absent)}: the network learns nothing of it (255 in a mask is ignored)")
    fill = 0.0 if schema.background_index is None else recipe.fill
    plan = StepPlan(len(training), recipe.batch, run.seed, launch.rank, launch.world, fill)
    unknown = training.tiles.unknown
    left_out = f" ({unknown:,} more in which nothing is annotated are left out)" if unknown else ""
    say(
        f"{len(training):,} training windows{left_out}, {validating:,} validation windows; "
        f"{counted(plan.steps_per_epoch, 'step')} of {recipe.batch} an epoch on {launch.device}"
    )
    return plan


def _make_network(
    run: TrainingRun, given: TrainingData, launch: Launch, say: Say
) -> tuple[SegmentationModel, dict[str, Any] | None]:
    """The network with its metadata, and what its weights start from; None for a run that has a checkpoint."""
    # A checkpoint has all weights: files that filled the encoder then need not be there any more.
    begun = bool(CheckpointFolder(run.out / CHECKPOINTS).names())
    recipe = replace(run.recipe, encoder_weights="none") if begun else run.recipe
    network, report = build_network(run.arch, given.splits.schema, options=run.options, recipe=recipe, init=run.init)
    network.describe(mpp=run.mpp, window=recipe.window, data=run.data, name=run.name, version=__version__)
    network.describe(temperature=1.0)
    if launch.leads:
        # A part of them is enough to tell, and keeps config.json short.
        network.describe(trained_on=tuple(sorted({*network.config.trained_on, *given.hashes()})[:10_000]))
    if begun:
        return network, None
    for note in report.notes:
        say(note)
    return network, report.as_dict()


def default_recipe(corrections: object) -> str:
    """The recipe where none is named."""
    return "fast" if corrections is None else FINETUNE


def _leave_reference(predictor: Predictor, given: TrainingData, run: TrainingRun, progress: Progress, say: Say) -> None:
    """Leave the reference with the model; few sections make a model, but no reference."""
    if given.corrected is not None or given.training is None or given.validation is None:
        say("no reference of the training sections: corrected slides are not annotated completely")
        return
    cases, splits = (*given.training, *given.validation), given.splits
    known = replace(splits, dataset=replace(splits.dataset, cases=cases))
    try:
        made = build_reference(predictor, known, seed=run.seed, progress=progress)
        made.write(run.out / MODEL, sha256_of(run.out / MODEL / WEIGHTS))
    except RefusedError as error:
        say(f"no reference of the training sections: {error.what} ({error.got}, expected {error.expected})")
