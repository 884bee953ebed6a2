"""``ntrm export``: a network for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console as RichConsole

from ntrm.cli.common import Seed
from ntrm.cli.console import Console, command


@command
def export(
    model: Annotated[str, typer.Option("--model", metavar="M", help="Model folder or hub id.")],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="ONNX file to write.")],
    opset: Annotated[
        int | None, typer.Option("--opset", help="ONNX operator set; torch's default if not given.")
    ] = None,
    seed: Seed = 0,
    *,
    console: Console,
) -> None:
    """Write a network as ONNX, with its class names inside, and compare it with the original in onnxruntime.

    A file that does not compute the same is refused.

    Example: ntrm export --model run/model --onnx skin.onnx
    """
    from ntrm.export.onnx import export_onnx
    from ntrm.models.hub import load

    report = export_onnx(load(model), onnx, opset=opset, seed=seed)

    def show(to: RichConsole) -> None:
        side = report.window
        to.print(
            f"{report.path}: (B, 3, {side}, {side}) → {', '.join(report.outputs)}, opset {report.opset}",
            markup=False,
            soft_wrap=True,
        )
        to.print(
            f"compared in onnxruntime: logits differ by {report.difference:.1g}, "
            f"{report.agreement:.2%} of the pixels agree",
            markup=False,
        )

    console.result(report.as_dict(), show)
