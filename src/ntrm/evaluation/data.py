"""The dataset of an evaluation: whether a network fits it, and what is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import resampling
from ntrm.data.split import DatasetSplits
from ntrm.models.config import ModelConfig


def class_table(config: ModelConfig, splits: DatasetSplits) -> NDArray[np.uint8]:
    """(256,) from the dataset's classes to the network's, matched by name.

    Refuses a dataset of another resolution, or with classes that the network does not know.
    """
    root = splits.dataset.root
    config.check_mpp()
    own, found = Resolution.square(config.mpp or 0), splits.resolution
    if not own.same_as(found):
        finer = f"images cannot be made finer: choose a network that was trained at {found} or coarser"
        raise RefusedError(
            "network and dataset differ in resolution",
            got=f"{found} in {root}",
            expected=f"{own}, at which the network was trained",
            hint=resampling(root, own.x) if found < own else finer,
        )
    if unknown := [name for name in splits.schema.names if name not in config.schema.names]:
        raise RefusedError(
            f"the network does not know every class of {root}",
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
