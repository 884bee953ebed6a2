"""Networks as folders: ``config.json``, ``model.safetensors``, ``README.md``. Loading reads, it never runs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ntrm.core.errors import DataError
from ntrm.models.base import SegmentationModel
from ntrm.models.folders import BUNDLED, CARD, CONFIG, MOST_CONFIG_BYTES, WEIGHTS, locate, read_model
from ntrm.models.registry import create
from ntrm.models.weights import read_tensors

__all__ = ["BUNDLED", "CARD", "CONFIG", "MOST_CONFIG_BYTES", "WEIGHTS", "load", "locate", "save_pretrained"]


def save_pretrained(
    network: SegmentationModel, folder: Path, *, dtype: torch.dtype = torch.float32, notes: str = ""
) -> str:
    """Write a network as a folder that ``load`` reads; returns the SHA-256 of its weights."""
    return network.save_pretrained(folder, dtype=dtype, notes=notes)


def load(source: str | Path, revision: str | None = None) -> SegmentationModel:
    """Load a network from a folder, by the name ``bundled``, or from a hub id at a revision.

    The result is on the CPU and in evaluation mode.
    """
    config, path = read_model(locate(source, revision))
    options: dict[str, Any] = dict(config.options)
    network = create(config.arch, config.schema, **options)
    network.config = config
    _fill(network, read_tensors(path), path)
    return network.eval()


def _fill(network: SegmentationModel, state: dict[str, Tensor], path: Path) -> None:
    own = network.state_dict()
    missing, extra = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    wrong = [
        f"{key} {tuple(state[key].shape)}" for key in own.keys() & state.keys() if own[key].shape != state[key].shape
    ]
    if missing or extra or wrong:
        raise DataError(
            f"{path} does not fit {network.config.arch} with {network.config.classes} classes",
            got=f"missing {missing[:3]}, unknown {extra[:3]}, other shape {sorted(wrong)[:3]}",
            expected="exactly the tensors of that network",
            hint="use the config.json that belongs to these weights",
        )
    kinds = {key: value.dtype for key, value in state.items() if not _fits(value.dtype, own[key].dtype)}
    if kinds:
        raise DataError(f"{path} holds weights of another kind of number", got=kinds, expected="float32 or float16")
    broken = sorted(key for key, value in state.items() if not torch.isfinite(value).all())
    if broken:
        raise DataError(f"{path} holds weights that are no numbers", got=broken[:3], hint="fetch or train it again")
    network.load_state_dict(state)


def _fits(stored: torch.dtype, own: torch.dtype) -> bool:
    return stored == own or (own == torch.float32 and stored in (torch.float16, torch.bfloat16))
