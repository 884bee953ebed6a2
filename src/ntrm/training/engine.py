"""Lightning under one name, and quiet: NTRM has progress, notes and errors of its own."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import lightning.pytorch as pl
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
except ModuleNotFoundError:  # some machines have the same code under its older name alone
    import pytorch_lightning as pl  # type: ignore[no-redef]
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment  # type: ignore[assignment]

__all__ = ["SLURMEnvironment", "pl", "quiet"]

_VOICES = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what Lightning tells about itself (devices, tips, why it stopped); its warnings and errors come."""
    loggers = [logging.getLogger(name) for name in _VOICES]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # Lightning asks torch in a way that torch no longer likes; whoever trains cannot mend that.
            warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated")
            # Gradients of grouped convolutions are laid out otherwise than their weights: a copy, no fault.
            warnings.filterwarnings("ignore", message=r"Grad strides do not match bucket view strides")
            # On a cluster's node: that srun is there and was not used is no fault.
            warnings.filterwarnings("ignore", message=r"The `srun` command is available")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
