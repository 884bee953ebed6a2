"""What flows through a network: tensors and shapes, kept by hooks during one forward pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntrm.core.arrays import Singles
from ntrm.core.errors import UsageError
from ntrm.core.labels import LabelSchema
from ntrm.inference.predictor import Predictor, TissueRelations
from ntrm.models.base import SegmentationModel
from ntrm.models.ntrm import NTRM
from ntrm.models.trm import RelationConfig, TissueRelation

Hook = Callable[[tuple[Any, ...], Any], None]


@dataclass(frozen=True)
class Shape:
    """Channels, height and width of one tensor."""

    channels: int
    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.channels} × {self.height} × {self.width}"


@dataclass(frozen=True)
class ArchitectureTrace:
    """Sizes in an NTRM for one window."""

    shapes: dict[str, Shape]
    """By name: image, E1 … E5, D1 … D5, φ (coarse logits), coarse, final, and with a relation D2'."""
    coarse_from: str
    """Where the coarse head reads: E5 or D2."""
    relation: RelationConfig | None
    nodes: tuple[int, int] | None
    """Tissues K and node width d."""
    layers: int
    """Layers that passed messages."""
    parameters: int


@dataclass(frozen=True, eq=False)
class RelationTrace:
    """What went into the relation of tissues and what came out, on its own grid, padding cut off."""

    image: NDArray[np.uint8]
    schema: LabelSchema
    config: RelationConfig
    names: tuple[str, str]
    """What the features are called before and after: D2 and D2' in NTRM."""
    features: Singles
    """(C, H2, W2)"""
    probabilities: Singles
    """(K, H2, W2) coarse prediction p."""
    masks: Singles
    """(K, H2, W2) Reg's masks as Proj uses them: 0 or 1, or probabilities in the soft variant."""
    projected: Singles
    """(C, H2, W2) S'."""
    refined: Singles
    """(C, H2, W2)"""
    graph: TissueRelations
    mask: NDArray[np.uint8]
    """(H, W) final prediction."""

    @property
    def present(self) -> list[int]:
        """Tissues whose mask is not empty."""
        return [int(tissue) for tissue in np.flatnonzero(self.graph.presence)]

    @property
    def coarse(self) -> NDArray[np.uint8]:
        """(H2, W2) most probable tissue of the coarse prediction."""
        highest: NDArray[np.uint8] = self.probabilities.argmax(axis=0).astype(np.uint8)
        return highest


def trace_architecture(network: SegmentationModel, window: int = 256) -> ArchitectureTrace:
    """Run an empty window through an NTRM and note the size of every stage."""
    if not isinstance(network, NTRM):
        expected = "ntrm-paper or ntrm-control"
        raise UsageError("only NTRM's own architecture can be drawn", got=network.config.arch, expected=expected)
    network = copy.deepcopy(network).cpu().eval()
    relation, shapes = network.relation, dict[str, Shape]()
    passed: list[Any] = []
    nodes: list[Tensor] = []
    hooks = [(block, _note_shapes(shapes, names)) for block, names in _blocks(network)]
    hooks += [(layer, lambda _, output: passed.append(output)) for layer in getattr(relation, "layers", [])]
    if relation is not None:
        hooks.append((relation.projection, lambda inputs, _: nodes.append(inputs[0])))
    image = torch.zeros(1, 3, window, window)
    with _hooked(hooks), torch.inference_mode():
        output = network(image)
    tensors = {"image": image, "coarse": output.coarse, "final": output.final}
    shapes |= {name: Shape(*tensor.shape[1:]) for name, tensor in tensors.items()}
    return ArchitectureTrace(
        shapes=shapes,
        coarse_from=network.coarse_from.upper(),
        relation=None if relation is None else relation.config,
        nodes=(nodes[0].shape[1], nodes[0].shape[2]) if nodes else None,
        layers=len(passed),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
    )


def trace_relation(network: SegmentationModel, image: NDArray[np.uint8]) -> RelationTrace:
    """Run one RGB window through a network with a tissue relation module, as the predictor does."""
    # A copy, because the predictor moves a network and puts it in evaluation mode.
    network = copy.deepcopy(network)
    relation = next((module for module in network.modules() if isinstance(module, TissueRelation)), None)
    if relation is None:
        raise UsageError(
            "the network has no tissue relation module",
            got=network.config.arch,
            expected="ntrm-paper or mit-trm",
            hint="draw this figure of one of those; ntrm, the default, is ntrm-paper",
        )
    caught: dict[str, Tensor] = {}

    def keep_relation(inputs: tuple[Any, ...], output: Any) -> None:
        caught.update(features=inputs[0], probabilities=inputs[1], refined=output[0])

    def keep_projection(inputs: tuple[Any, ...], output: Any) -> None:
        caught.update(masks=inputs[1], projected=output)

    predictor = Predictor(network, device="cpu", precision="float32")
    with _hooked([(relation, keep_relation), (relation.projection, keep_projection)]):
        predicted = predictor.predict(image, graph=True)
    if predicted.graph is None:
        raise UsageError("the network gave no tissue graph", got=network.config.arch)
    stride = -(-image.shape[0] // network.multiple) * network.multiple // caught["features"].shape[2]
    high, wide = (-(-side // stride) for side in image.shape[:2])
    maps = {name: tensor[0, :, :high, :wide].float().numpy() for name, tensor in caught.items()}
    names = ("D2", "D2'") if isinstance(network, NTRM) else ("features", "refined")
    schema, config = network.config.schema, relation.config
    return RelationTrace(image, schema, config, names, graph=predicted.graph, mask=predicted.mask, **maps)


def _blocks(network: NTRM) -> list[tuple[nn.Module, list[str]]]:
    """Modules with the names of their outputs."""
    decoder = [*network.upper.blocks, *network.lower.blocks]
    return [
        (network.encoder, ["E1", "E2", "E3", "E4", "E5"]),
        (network.coarse, ["φ"]),
        *((block, [f"D{number}"]) for number, block in enumerate(decoder, start=1)),
        *([] if network.relation is None else [(network.relation, ["D2'"])]),
    ]


def _note_shapes(shapes: dict[str, Shape], names: list[str]) -> Hook:
    def note(_: tuple[Any, ...], output: Any) -> None:
        tensors = output if isinstance(output, tuple) else (output,)
        shapes.update((name, Shape(*tensor.shape[1:])) for name, tensor in zip(names, tensors, strict=False))

    return note


@contextmanager
def _hooked(hooks: list[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Call ``hook(inputs, output)`` after each forward of its module, as long as the block runs."""
    handles = [module.register_forward_hook(lambda _, *data, hook=hook: hook(*data)) for module, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
