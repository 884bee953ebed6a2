"""What is evaluated: a network with its metadata, and whether it fits a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ntrm.core.errors import RefusedError
from ntrm.core.io import read_json
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import resampling
from ntrm.data.layouts import survey_dataset
from ntrm.data.split import DatasetSplits
from ntrm.familiarity.reference import Reference, read_reference
from ntrm.inference.predictor import Predictor
from ntrm.models.base import SegmentationModel, check_described, evaluating
from ntrm.models.config import ModelConfig
from ntrm.models.folders import locate
from ntrm.models.hub import load
from ntrm.models.weights import weights_digest

PROVENANCE = "provenance.json"
"""What a training writes next to its model folder."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A network and where it comes from."""

    network: SegmentationModel = field(repr=False)
    sha256: str
    """Of the weights."""
    provenance: dict[str, Any]
    """Of its training; empty where it is not known."""
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
        config, trained = self.config, ("seed", "recipe", "encoder_init", "level", "sections", "init")
        return {
            "name": config.name,
            "arch": config.arch,
            "options": dict(config.options),
            "version": config.version,
            "sha256": self.sha256,
            **{key: self.provenance.get(key) for key in trained},
            "mpp": config.mpp,
            "window": config.window,
            "temperature": config.temperature,
            "data": config.data,
        }


def open_subject(model: str | Path | SegmentationModel) -> LoadedModel:
    """Load a network from a folder, a hub id or ``bundled``, or take one in memory as it is."""
    if isinstance(model, nn.Module):
        check_described(model)
        return LoadedModel(model, weights_digest(getattr(model, "_orig_mod", model)), {})
    folder = locate(model)
    network = load(folder)
    sha256 = weights_digest(network)
    reference = read_reference(folder, sha256, network.config.schema.names)
    return LoadedModel(network, sha256, _read_provenance(folder.resolve().parent / PROVENANCE), reference)


def class_table(config: ModelConfig, splits: DatasetSplits) -> NDArray[np.uint8]:
    """(256,) from the dataset's classes to the network's, matched by name.

    Refuses a dataset of another resolution, or with classes that the network does not know.
    """
    _check_resolution(config, splits)
    unknown = [name for name in splits.schema.names if name not in config.schema.names]
    if unknown:
        raise RefusedError(
            f"the network does not know every class of {splits.dataset.root}",
            got=", ".join(unknown),
            expected=f"only classes of the network: {', '.join(config.schema.names)}",
            hint="choose a network trained on these classes, or rename them in classes.csv",
        )
    return config.schema.remap_table(splits.schema)


def describe_data(splits: DatasetSplits, split: str) -> dict[str, Any]:
    """``data`` in ``metrics.json`` and ``calibration.json``."""
    sections = splits[split]
    return {
        "fingerprint": splits.fingerprint(split),
        "split": split,
        "level": sections.cases[0].level,
        "mpp": splits.resolution.mean,
        "sections": len(sections),
        "patients": len({case.group for case in sections}),
    }


def _check_resolution(config: ModelConfig, splits: DatasetSplits) -> None:
    if config.mpp is None:
        raise RefusedError(
            "the network does not state its µm/px",
            got="none",
            expected=f"{splits.resolution}, as {splits.dataset.root} has",
            hint="train it, or state it with network.describe(mpp=…) before saving",
        )
    own = Resolution.square(config.mpp)
    if not own.same_as(splits.resolution):
        raise RefusedError(
            "network and dataset differ in resolution",
            got=f"{splits.resolution} in {splits.dataset.root}",
            expected=f"{own}, at which the network was trained",
            hint=_at_resolution(own, splits),
        )


def _at_resolution(wanted: Resolution, splits: DatasetSplits) -> str:
    """How to get the dataset at that resolution."""
    root = splits.dataset.root
    found = [(case.resolution, case.level) for case in survey_dataset(root).cases if case.resolution is not None]
    level = next((level for resolution, level in found if level and resolution.same_as(wanted)), None)
    if level is not None:
        return f"choose --resolution {level}"
    if min(found)[0] > wanted:
        return f"images cannot be made finer: choose a network that was trained at {splits.resolution} or coarser"
    return resampling(root, wanted.x)


def _read_provenance(path: Path) -> dict[str, Any]:
    """The provenance of the training; empty where the model was copied away from its run."""
    if not path.exists():
        return {}
    document = read_json(path, hint="copy the run again, or the model without it")
    return document if isinstance(document, dict) else {}
