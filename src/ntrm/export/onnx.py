"""A network as one ONNX file that carries its class names, checked in onnxruntime before it gets its name."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ntrm.core.errors import RefusedError, UsageError, check_seed
from ntrm.core.io import whole_file
from ntrm.models.base import SegmentationModel, check_described
from ntrm.models.config import ModelConfig
from ntrm.models.weights import weights_digest
from ntrm.version import __version__

INPUT, OUTPUTS = "image", ("final", "coarse")
TOLERANCE = 1e-4
AGREEMENT = 0.999  # Least fraction of pixels at which both runtimes must choose the same class
BATCHES = (1, 3)  # Batch sizes the two runtimes are compared on: the file must take any


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how close it is to the network."""

    path: Path
    opset: int
    window: int  # Height and width of the input; the batch is free
    outputs: tuple[str, ...]
    difference: float
    """Largest difference of a logit, over the largest logit where that is above 1: rounding grows with the value."""
    agreement: float  # Fraction of pixels at which the most probable class is the same
    model_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {**asdict(self), "path": str(self.path), "outputs": list(self.outputs)}


def export_onnx(
    network: SegmentationModel,
    path: str | Path,
    *,
    window: int | None = None,
    opset: int | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> ExportReport:
    """Write ``network`` as ONNX: normalised RGB ``image`` (B, 3, window, window) → logits ``final`` and ``coarse``.

    The metadata hold what one needs to use it: class names, µm/px, mean, std, temperature, the model's SHA-256.
    The file is compared with the network on random images of ``seed`` before it gets its name; one that differs by
    more than ``tolerance`` is refused and leaves nothing behind.
    """
    check_seed(seed)
    check_described(network)
    path = Path(path)
    if path.suffix != ".onnx":
        raise UsageError("cannot write the network there", got=path, expected="a file that ends in .onnx")
    try:
        for module in ("onnx", "onnxruntime", "onnxscript"):
            importlib.import_module(module)
    except ImportError as error:
        raise UsageError("ONNX export needs an extra", got=error, hint='pip install "ntrm[export]"') from error
    plain = _Logits(network)
    side = network.config.window if window is None else window
    probes = [_probe(batch, side, network.config, seed) for batch in BATCHES]
    expected = [plain(probe) for probe in probes]  # also refuses an impossible window before the long work
    outputs = OUTPUTS[: len(expected[0])]
    program, digest = _trace(plain, probes[-1], outputs, opset), weights_digest(network)
    metadata = {
        **network.config.as_dict(),
        "class_names": list(network.config.schema.names),
        "window": side,
        "input": "RGB / 255, minus mean, over std; (B, 3, window, window)",
        "output": "logits; divide final by temperature before the softmax",
        "ntrm_version": __version__,
        "model_sha256": digest,
    }
    texts = {key: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for key, v in metadata.items()}
    program.model.metadata_props.update(texts)
    with whole_file(path) as partial:
        program.save(partial)
        difference, agreement = _compare(_run(partial, probes), expected)
        if not (difference <= tolerance and agreement >= AGREEMENT):
            raise RefusedError(
                "the ONNX file does not compute what the network computes",
                got=f"logits differ by {difference:.2g}, {agreement:.2%} of the pixels agree",
                expected=f"at most {tolerance:g}, at least {AGREEMENT:.1%}",
                hint="try another seed (a coarse probability may lie on the threshold), "
                "then another opset or torch version",
            )
    reached = program.model.opset_imports[""]
    return ExportReport(path, reached, side, outputs, difference, agreement, digest)


class _Logits(nn.Module):
    """A copy of the network on the CPU that returns plain tensors, as ONNX wants them."""

    def __init__(self, network: SegmentationModel) -> None:
        super().__init__()
        shared = {id(network.config): network.config}  # immutable, so the copy may share it
        self.network = copy.deepcopy(network, shared).float().cpu()
        self.requires_grad_(False).eval()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        out = self.network(image)
        return (out.final,) if out.coarse is None else (out.final, out.coarse)


def _probe(batch: int, side: int, config: ModelConfig, seed: int) -> Tensor:
    """Random patches of colour with grain, normalised: unlike plain noise they make a network see several classes."""
    random = torch.Generator().manual_seed(seed + batch)
    patches = torch.rand(batch, 3, 4, 4, generator=random)
    grain = 0.1 * torch.randn(batch, 3, side, side, generator=random)
    colours = (F.interpolate(patches, size=(side, side)) + grain).clamp(0, 1)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (config.mean, config.std))
    return (colours - mean) / std


def _trace(plain: _Logits, example: Tensor, outputs: Sequence[str], opset: int | None) -> Any:
    # The exporter's remarks about itself are silenced; what goes wrong becomes an error of ours.
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(
                plain,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=opset,
                input_names=[INPUT],
                output_names=list(outputs),
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
    except torch.onnx.OnnxExporterError as error:
        name = plain.network.config.arch
        raise RefusedError(f"{name} cannot be exported", got=str(error).strip().splitlines()[0]) from error
    finally:
        logging.disable(logging.NOTSET)
    reached = program.model.opset_imports[""]
    if opset not in (None, reached):
        raise UsageError("the network cannot be written in this opset", got=opset, expected=f"for example {reached}")
    # The exporter's notes hold stack traces with the paths of this machine.
    program.model.graph.metadata_props.clear()
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    return program


def _run(path: Path, probes: Sequence[Tensor]) -> list[list[NDArray[np.float32]]]:
    """Outputs of the file in onnxruntime on the CPU, in their order, for each batch."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return [session.run(None, {INPUT: probe.numpy()}) for probe in probes]
    except (state.Fail, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented) as error:
        reason = str(error).strip().splitlines()[0]
        raise RefusedError("onnxruntime cannot run the file", got=reason, hint="use a lower opset") from error


def _compare(
    outputs: Sequence[Sequence[NDArray[np.float32]]], expected: Sequence[Sequence[Tensor]]
) -> tuple[float, float]:
    """Largest relative difference over all outputs, and the fraction of pixels of the final one that agree."""
    differences, agreements = [], []
    for ours, theirs in zip(expected, outputs, strict=True):
        for tensor, array in zip(ours, theirs, strict=True):
            scale = max(1.0, float(tensor.abs().max()))
            differences.append(float(np.abs(tensor.numpy() - array).max()) / scale)
        agreements.append((ours[0].numpy().argmax(axis=1) == theirs[0].argmax(axis=1)).mean(axis=(1, 2)))
    # The maximum of a list leaves NaN out where it stands behind a number; numpy's keeps it.
    return float(np.max(differences)), float(np.concatenate(agreements).mean())
