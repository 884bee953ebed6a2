"""``ntrm train``: one training; ``ntrm export``: its network for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command
from ntrm.core.errors import UsageError
from ntrm.core.wording import counted
from ntrm.models.config import DEFAULT, DEFAULT_NETWORK

ARCH = (
    f"Architecture; default that of --init, else {DEFAULT} ({DEFAULT_NETWORK} in this version). "
    "An unknown name lists all."
)


@command
def train(
    console: Console,
    out: Path,
    data: Path | None = None,
    arch: Annotated[str | None, typer.Option(metavar="NAME", help=ARCH)] = None,
    recipe: str | None = None,
    resolution: options.Level = None,
    init: str | None = None,
    corrections: Path | None = None,
    slides: Path | None = None,
    trust: str = "all",
    resume: bool = False,
    splits: options.Splits = None,
    sections: options.CountOrNone = None,
    changes: options.Changes = None,
    option: list[str] | None = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    num_devices: options.Count = 1,
    name: str = "",
    pictures: options.Pictures = True,
    reference: options.Reference = True,
) -> int:
    """Train a network; the trained model is RUN/model.

    After Ctrl-C, SIGTERM or a crash, the same command with --resume continues the training, with the same result.

    Network: downloads ImageNet weights from the hub if the recipe needs them (paper does) and none are stored here, and
    the model of --init if it is a hub id.

    Example: ntrm train --data DIR --out RUN

    ntrm train --data DIR --resolution 10x --recipe paper --out RUN

    ntrm train --data DIR --out RUN --set steps=500 --set augment.stain=0 --option width=0.5

    ntrm train --data MINE --recipe finetune --init RUN/model --sections 10 --out RUN2

    ntrm train --init bundled --corrections RESULTS --slides DIR --out RUN3

    torchrun --nproc-per-node 4 -m ntrm train --data DIR --out RUN --resume

    Args:
        out (RUN): Folder of the run: new or empty.
        data (DIR): Dataset folder (layout queensland or plain).
        recipe (R): Recipe: paper, fast (default), robust, finetune (default with --corrections) or a YAML file.
        init (M): Trained model to start from: folder or hub id.
        corrections (RESULTS): Results folder with corrected slides to train on.
        slides (DIR): Folder of the corrected slides, needed for their images.
        trust (WHAT): What to learn from corrected slides: all, followed (what a person named and what followed) or
            hand.
        resume: Continue the run in RUN, or start it if there is none.
        sections (N): Train on N sections only.
        option (KEY=VALUE): Option of the architecture; may be repeated.
        num_devices (N): Number of devices of this machine to divide the batch over.
        name (TEXT): Name of the model.

    """
    from ntrm.training.distributed import find_launch, is_launched, run_by_torchrun

    if num_devices > 1 and not is_launched():
        return run_by_torchrun(num_devices, sys.argv[1:])
    from ntrm.training.recipe import load_recipe, parse_overrides
    from ntrm.training.train import default_recipe
    from ntrm.training.train import train as train_network

    corrected = None
    if corrections is not None:
        from ntrm.correct.dataset import CorrectedResults

        corrected = CorrectedResults(corrections, slides, trust)
    elif slides is not None or trust != "all":
        got = f"--trust {trust}" if slides is None else f"--slides {slides}"
        raise UsageError("this option needs corrected slides", got=got, expected="--corrections RESULTS beside it")
    result = train_network(
        **console.given("recipe", "changes", "option", "corrections", "slides", "trust"),
        recipe=load_recipe(recipe or default_recipe(corrections), parse_overrides(changes or [])),
        options=parse_overrides(option or []),
        corrections=corrected,
        command=["ntrm", *sys.argv[1:]],
        progress=console.progress,
        say=console.note,
    )
    if find_launch(device, num_devices).leads:
        best, shown = result.best, ("loss", "iou", "dice", "accuracy")
        scores = ", ".join(f"{key} {best[key]:.4f}" for key in shown if best.get(key) is not None)
        kept = f"kept step {best.get('step')}" + (f": {scores}" if scores else ", the last one")
        summary = f"{counted(result.steps, 'step')} in {result.seconds:,.0f} s; {kept}"
        console.result(result.as_dict(), summary, f"model: {result.model}")
    return 0


@command
def export(console: Console, model: str, onnx: Path, opset: int | None = None, seed: options.Seed = 0) -> None:
    """Write a network as ONNX, including its class names, and compare it with the original in onnxruntime.

    A file that does not give the same result is refused.

    Example: ntrm export --model run/model --onnx skin.onnx

    Args:
        model (M): Model folder or hub id.
        onnx (FILE): ONNX file to write.
        opset: ONNX operator set; torch's default if not given.

    """
    from ntrm.export.onnx import export_onnx
    from ntrm.models.registry import load

    report = export_onnx(load(model), onnx, opset=opset, seed=seed)
    shape = f"(B, 3, {report.window}, {report.window})"
    console.result(
        report.as_dict(),
        f"{report.path}: {shape} → {', '.join(report.outputs)}, opset {report.opset}",
        f"compared in onnxruntime: logits differ by {report.difference:.1g}, "
        f"{report.agreement:.2%} of the pixels agree",
    )
