"""The dataset of an evaluation: whether a network fits it, and what is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import resampling
from ntrm.data.layouts import survey_dataset
from ntrm.data.split import DatasetSplits
from ntrm.models.config import ModelConfig


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
