"""A network with its metadata, provenance and reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ntrm.core.io import read_json
from ntrm.familiarity.reference import Reference, read_reference
from ntrm.models.base import SegmentationModel, check_described, evaluating
from ntrm.models.config import ModelConfig
from ntrm.models.folders import locate
from ntrm.models.predictor import Predictor
from ntrm.models.registry import load
from ntrm.models.weights import weights_digest

PROVENANCE = "provenance.json"  # What a training writes next to its model folder


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A network and where it comes from."""

    network: SegmentationModel = field(repr=False)
    sha256: str  # Of the weights
    provenance: dict[str, Any]  # Of its training; empty where it is not known
    reference: Reference | None = field(default=None, repr=False)
    """What its training sections are like; None where the model does not say."""

    @property
    def config(self) -> ModelConfig:
        """The network's metadata."""
        return self.network.config

    def predictor(self, device: str | torch.device = "auto", *, batch: int = 16, precision: str = "auto") -> Predictor:
        """A predictor; a network in memory, which its owner may be training, stays in the mode it is in."""
        with evaluating(self.network):
            return Predictor(self.network, device, batch=batch, precision=precision)

    def as_dict(self) -> dict[str, Any]:
        """``model`` in ``metrics.json``; what is not known is None."""
        described = ("name", "arch", "version", "mpp", "window", "temperature", "data")
        trained = ("seed", "recipe", "encoder_init", "level", "sections", "init")
        known = {key: getattr(self.config, key) for key in described}
        known |= {"options": dict(self.config.options), "sha256": self.sha256}
        return known | {key: self.provenance.get(key) for key in trained}


def open_subject(model: str | Path | SegmentationModel) -> LoadedModel:
    """Load a network from a folder, a hub id or ``bundled``, or take one in memory as it is."""
    if isinstance(model, nn.Module):
        check_described(model)
        return LoadedModel(model, weights_digest(getattr(model, "_orig_mod", model)), {})
    folder = locate(model)
    network, record = load(folder), folder.resolve().parent / PROVENANCE
    sha256 = weights_digest(network)
    # Without the record of a training where the model was copied away from its run.
    provenance = read_json(record, hint="copy the run again, or the model without it") if record.exists() else {}
    reference = read_reference(folder, sha256, network.config.schema.names)
    return LoadedModel(network, sha256, provenance if isinstance(provenance, dict) else {}, reference)
