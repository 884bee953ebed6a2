"""What all networks share: their output, a config, a check of the input, and saving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ntrm.core.errors import RefusedError, UsageError, choices_error
from ntrm.core.io import sha256_of, whole_file, write_json, write_text
from ntrm.core.wording import short_repr
from ntrm.models.blocks import check_input
from ntrm.models.config import ModelConfig
from ntrm.models.folders import CARD, CONFIG, FORMAT, WEIGHTS, model_card
from ntrm.models.weights import not_finite, stored_state


class NetworkGraph(NamedTuple):
    """The graph of tissues of each image. Edges are directed: first index sends, second receives."""

    presence: Tensor  # (B, K) bool: the tissue's hard mask is not empty
    area: Tensor
    """(B, K) pixels of the hard mask on the 1/8 grid. Masks may overlap, so areas need not sum to the grid."""
    adjacency: Tensor  # (B, K, K) bool: an edge from src to dst
    boundary: Tensor  # (B, K, K) ``b[i, j]``: fraction of tissue i's pixels that touch tissue j
    attention: Tensor
    """(B, L, K, K) ``alpha[src, dst]``; over the senders of a receiver it sums to one, or is zero without any.
    Without attention layers L is 0."""
    edge_weights: Tensor
    """(B, K, K) ``w[src, dst]`` in (0, 1), 0 where there is no edge;
    untrained where no message is multiplied by them."""
    nodes: Tensor  # (B, K, d) node states after message passing

    def __repr__(self) -> str:
        return short_repr(self)


class Segmentation(NamedTuple):
    """Logits at input size, and the graph where it was asked for and the network has one."""

    final: Tensor  # (B, K, H, W)
    coarse: Tensor | None = None  # (B, K, H, W) of the coarse head, upsampled; None for networks without one
    graph: NetworkGraph | None = None

    def __repr__(self) -> str:
        return short_repr(self)


class SegmentationModel(nn.Module):
    """A network that turns normalised RGB windows into class logits at input size."""

    config: ModelConfig
    multiple = 32  # Height and width of the input must be multiples of this
    loaded_weights: tuple[str, str] = ("", "")
    """For ``weights_digest``: that of the weights as they were loaded, and that of their file."""

    def forward(self, x: Tensor, *, coarse: bool = True, graph: bool = False) -> Segmentation:
        """(B, 3, H, W) → logits (B, K, H, W); the ``coarse`` head's, and the ``graph``, where the network has them."""
        check_input(x, self.multiple)
        return self.segment(x, coarse=coarse, graph=graph)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """The network's own pipeline."""
        raise NotImplementedError

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this network, with the reason, as its modules report them."""
        modules: dict[str, Any] = {k: v for k, v in self.named_children() if hasattr(v, "without_gradient")}
        return {f"{name}.{key}": why for name, own in modules.items() for key, why in own.without_gradient().items()}

    def describe(self, **changes: Any) -> Self:
        """Set fields of the config (µm/px, name, data …), but not what the network is made of; returns the network."""
        check_described(self)
        old = self.config
        if unknown := changes.keys() - {field.name for field in fields(old)}:
            raise choices_error("unknown field of the config", min(unknown), [field.name for field in fields(old)])
        new = replace(old, **changes)
        ours, theirs = ((of.arch, dict(of.options), of.classes) for of in (old, new))
        if ours != theirs:
            got, expected = ("{} {} of {} classes".format(*of) for of in (theirs, ours))
            hint = "make another network with ntrm.create"
            raise UsageError("the description contradicts the network", got=got, expected=expected, hint=hint)
        self.config = new
        return self

    def save_pretrained(self, folder: str | Path, *, dtype: torch.dtype = torch.float32) -> str:
        """Write ``config.json``, ``model.safetensors`` and ``README.md``; returns the SHA-256 of the weights.

        ``dtype=torch.float16`` (or ``torch.bfloat16``) halves the file and rounds the weights; float32 keeps every bit.
        """
        check_described(self)
        folder = Path(folder)
        state = stored_state(self, dtype)
        if broken := not_finite(state):
            raise RefusedError("the network holds weights that are no numbers", got=broken[:3], hint="train it again")
        parameters = sum(parameter.numel() for parameter in self.parameters())
        with whole_file(folder / WEIGHTS) as partial:
            save_file(state, partial)
            digest = sha256_of(partial)
            # Made before the weights take their place: what fails here leaves the folder as it was.
            card = model_card(self.config, parameters, digest)
            config = {"format": FORMAT, **self.config.as_dict(), "weights_sha256": digest}
            json.dumps(config, allow_nan=False)
        write_text(folder / CARD, card)
        # The config comes last and names the weights: a folder that was half replaced does not load.
        write_json(folder / CONFIG, config)
        return digest


def check_described(network: object) -> None:
    """Refuse what is no network of ours with a config; a compiled one has that of the network inside it."""
    ours = isinstance(getattr(network, "_orig_mod", network), SegmentationModel)
    if not ours or not isinstance(getattr(network, "config", None), ModelConfig):
        expected = "a network from ntrm.create or ntrm.load, or the .module inside a parallel one"
        raise UsageError("the network does not say what it predicts", got=type(network).__name__, expected=expected)


def normalise(images: Tensor, network: SegmentationModel) -> Tensor:
    """RGB bytes (B, 3, H, W), as ``TileDataset`` gives them → float32 as the network expects it."""
    check_described(network)
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim < 3 or images.shape[-3] != 3:
        got = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise UsageError("these are no RGB bytes", got=got, expected="a uint8 tensor (B, 3, H, W)")
    colours = torch.tensor([network.config.mean, network.config.std], device=images.device)[..., None, None]
    return (images.float() / 255 - colours[0]) / colours[1]


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Modules in evaluation mode; afterwards every layer is in the mode that it was in."""
    modes = {layer: layer.training for module in modules for layer in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
