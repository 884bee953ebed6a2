"""Architectures by name."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from ntrm.errors import UsageError, choices_error
from ntrm.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.config import ModelConfig, schema_for
from ntrm.models.ntrm import NTRM

Builder = Callable[..., SegmentationModel]


def _control(classes: int, **options: Any) -> SegmentationModel:
    return NTRM(classes, relate=False, **options)


ARCHITECTURES: dict[str, Builder] = {
    "ntrm-paper": NTRM,
    "ntrm": NTRM,
    "ntrm-control": _control,
}
"""Builders by name: ``builder(classes, **options)``."""


def create(name: str, classes: int | LabelSchema = 12, **options: Any) -> SegmentationModel:
    """Build an untrained network by name.

    >>> create("ntrm-paper", classes=12, encoder="resnet18", width=0.25).config.schema.name
    'skin'
    """
    if name not in ARCHITECTURES:
        raise choices_error("unknown architecture", name, ARCHITECTURES)
    schema = schema_for(classes)
    try:
        network = ARCHITECTURES[name](len(schema), **options)
    except TypeError as error:
        raise UsageError(f"{name} does not take these options", got=f"{options} ({error})") from error
    network.config = ModelConfig(arch=name, schema=schema, options=MappingProxyType(dict(options)))
    return network
