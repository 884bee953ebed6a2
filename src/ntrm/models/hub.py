"""Load a network from a folder or from the hub. Loading reads tensors; it never runs code from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ntrm.core.errors import DataError
from ntrm.models.base import SegmentationModel
from ntrm.models.folders import CONFIG, locate, read_config, read_model
from ntrm.models.registry import create
from ntrm.models.weights import STORED, check_finite, check_tensors, float32_digest, read_tensors


def load(source: str | Path, revision: str | None = None) -> SegmentationModel:
    """Load a network from a folder, by the name ``bundled``, or from a hub id at a revision.

    The result is on the CPU and in evaluation mode.
    """
    folder = locate(source, revision)
    config, path = read_model(folder)
    options: dict[str, Any] = dict(config.options)
    with torch.device("meta"):  # shapes without memory: a config can ask for far more than the file holds
        own = create(config.arch, config.schema, **options).state_dict()
    state = read_tensors(path)
    check_tensors(
        path,
        state,
        own,
        fits=f"{config.arch} with {config.classes} classes",
        expected="exactly the tensors of that network",
        hint="use the config.json that belongs to these weights",
    )
    kinds = [
        f"{key} {value.dtype}"
        for key, value in state.items()
        if value.dtype not in (STORED if own[key].dtype == torch.float32 else (own[key].dtype,))
    ]
    if kinds:
        got, expected = f"{len(kinds)} such tensors: {', '.join(kinds[:3])}", ", ".join(map(str, STORED))
        raise DataError(f"{path} holds weights of another kind of number", got=got, expected=f"one of {expected}")
    check_finite(path, state)
    with torch.random.fork_rng(devices=[]):  # what a seeded script draws next must not depend on what it loads
        network = create(config.arch, config.schema, **options)
    network.config = config
    network.load_state_dict(state)
    network.loaded_weights = (float32_digest(network), read_config(folder / CONFIG)[1])
    return network.eval()
