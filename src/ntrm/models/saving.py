"""A network as a folder: ``config.json``, ``model.safetensors``, ``README.md``."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ntrm.errors import RefusedError
from ntrm.files import sha256_of, whole_file, write_json, write_text
from ntrm.models.card import model_card
from ntrm.models.config import ModelConfig
from ntrm.models.folders import CARD, CONFIG, FORMAT, WEIGHTS

__all__ = ["CARD", "CONFIG", "WEIGHTS", "write_model"]


def write_model(
    network: nn.Module, config: ModelConfig, folder: Path, dtype: torch.dtype = torch.float32, notes: str = ""
) -> str:
    """Write a network as a folder that loads anywhere; returns the SHA-256 of its weights.

    ``dtype=torch.float16`` halves the file and rounds the weights; float32 keeps every bit. ``notes`` go into the
    model card.
    """
    folder = Path(folder)
    state = {key: _stored(value, dtype) for key, value in network.state_dict().items()}
    broken = sorted(key for key, value in state.items() if not torch.isfinite(value).all())
    if broken:
        raise RefusedError("the network holds weights that are no numbers", got=broken[:3], mend="train it again")
    with whole_file(folder / WEIGHTS) as partial:
        save_file(state, partial)
    digest = sha256_of(folder / WEIGHTS)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    write_text(folder / CARD, model_card(config, parameters, digest, notes))
    # The config comes last and names the weights: a folder that was half replaced does not load.
    write_json(folder / CONFIG, {"format": FORMAT, **config.as_dict(), "weights_sha256": digest})
    return digest


def _stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    value = value.detach().cpu().contiguous()
    return value.to(dtype) if value.is_floating_point() else value
