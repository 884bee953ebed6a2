"""Architectures by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ntrm.errors import UsageError, choices_error
from ntrm.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.baselines.attention_unet import AttentionUNet
from ntrm.models.baselines.deeplab import DeepLabV3Plus
from ntrm.models.baselines.mit import SegFormer
from ntrm.models.baselines.unet import ResNetUNet
from ntrm.models.baselines.unet_vgg import VGGUNet
from ntrm.models.config import ModelConfig, schema_for
from ntrm.models.mit_trm import MiTTRM
from ntrm.models.ntrm import NTRM

Builder = Callable[..., SegmentationModel]


ARCHITECTURES: dict[str, Builder] = {
    "ntrm-paper": NTRM,
    "ntrm": NTRM,
    "ntrm-control": partial(NTRM, relate=False),
    "unet-resnet18": ResNetUNet,
    "unet-vgg16": VGGUNet,
    "attention-unet": AttentionUNet,
    "deeplabv3plus": DeepLabV3Plus,
    "mit-b0": partial(SegFormer, size="b0"),
    "mit-b2": partial(SegFormer, size="b2"),
    "mit-trm": MiTTRM,
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
    network.config = ModelConfig(arch=name, schema=schema, options=dict(options))
    return network
