"""Architectures by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ntrm.core.errors import UsageError, choices_error, plain_number
from ntrm.core.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.baselines import AttentionUNet, DeepLabV3Plus, ResNetUNet, VGGUNet
from ntrm.models.config import DEFAULT, ModelConfig, network_named, schema_for
from ntrm.models.ntrm import NTRM
from ntrm.models.segformer import MiTTRM, SegFormer
from ntrm.models.trm import RelationConfig
from ntrm.models.weights import load_encoder_weights

Builder = Callable[..., SegmentationModel]


def _paper(classes: int, encoder: str = "resnet18", width: float = 1.0, coarse: str = "e5", **variant: Any) -> NTRM:
    return NTRM(classes, encoder, width, coarse, RelationConfig(**variant))


def _released(
    classes: int, encoder: str = "resnet18", width: float = 1.0, dim: int = 128, layers: int = 3, tau: float = 0.5
) -> NTRM:
    relation = RelationConfig(graph="complete", boundary=False, layer="sum", dim=dim, layers=layers, tau=tau)
    return NTRM(classes, encoder, width, relation=relation, released=True)


def _control(classes: int, encoder: str = "resnet18", width: float = 1.0, coarse: str = "e5") -> NTRM:
    return NTRM(classes, encoder, width, coarse, relation=None)


def _mit(size: str, classes: int, width: float = 1.0, drop_path: float = 0.1) -> SegFormer:
    return SegFormer(classes, size, width, drop_path)


ARCHITECTURES: dict[str, Builder] = {
    "ntrm-paper": _paper,
    "ntrm-control": _control,
    "ntrm-released": _released,
    "unet-resnet18": ResNetUNet,
    "unet-vgg16": VGGUNet,
    "attention-unet": AttentionUNet,
    "deeplabv3plus": DeepLabV3Plus,
    "mit-b0": partial(_mit, "b0"),
    "mit-b2": partial(_mit, "b2"),
    "mit-trm": MiTTRM,
}
"""Builders by name: ``builder(classes, **options)``; ``ntrm`` is another name of one of these."""

RELATED = ("ntrm-paper", "mit-trm")
"""Architectures with a tissue relation module; they take the fields of ``RelationConfig`` as options."""

DEFAULT_ENCODERS = {"unet-vgg16": "vgg16"}  # Encoders of architectures that do not have a ResNet


def list_models() -> list[str]:
    """Names of the architectures that ``create`` builds and ``ntrm train --arch`` trains; the first is the default.

    >>> list_models()[:3]
    ['ntrm', 'ntrm-paper', 'ntrm-control']
    """
    return [DEFAULT, *ARCHITECTURES]


def create(
    name: str, classes: int | LabelSchema | Sequence[str] = 12, *, weights: str | Path | None = None, **options: Any
) -> SegmentationModel:
    """Build an untrained network by name; ``weights`` fills its encoder.

    ``classes`` are names in index order (``["stroma", "tumour"]``), a ``LabelSchema``, or how many there are; 12 are
    the skin's. ``weights`` is a file, ``imagenet`` (looked up by the encoder's name) or a hub id. ``ntrm`` is the
    default of this version; the network's config names the network itself.

    >>> create("ntrm-paper", classes=12, encoder="resnet18", width=0.25).config.schema.name
    'skin'
    >>> create("ntrm", width=0.125).config.arch
    'ntrm-paper'
    """
    if not isinstance(name, str):
        raise UsageError("the name of an architecture is text", got=repr(name), expected="one of ntrm.list_models()")
    arch = network_named(name)
    if arch not in ARCHITECTURES:
        raise choices_error("unknown architecture", name, list_models())
    options = {key: plain_number(value) for key, value in options.items()}
    if unknown := sorted(options.keys() - option_names(arch)):
        what, expected = f"{arch} does not take these options", f"one of {', '.join(sorted(option_names(arch)))}"
        raise UsageError(what, got=", ".join(unknown), expected=expected)
    schema = schema_for(classes)
    try:
        network = ARCHITECTURES[arch](len(schema), **options)
    except TypeError as error:
        raise UsageError(f"{arch} does not take these options", got=f"{options} ({error})") from error
    network.config = ModelConfig(arch=arch, schema=schema, options=dict(options))
    if weights is not None:
        encoder = getattr(network, "encoder", None)
        if not isinstance(encoder, nn.Module):
            raise UsageError(f"{arch} has no encoder of its own to fill", got=weights)
        load_encoder_weights(encoder, weights, encoder_name(arch, options))
    return network


def encoder_name(arch: str, options: Mapping[str, object]) -> str:
    """The encoder of an architecture with these options, by which its weights are found.

    >>> encoder_name("unet-vgg16", {}), encoder_name("ntrm-paper", {"encoder": "resnet34"})
    ('vgg16', 'resnet34')
    """
    return str(options.get("encoder", DEFAULT_ENCODERS.get(arch, "resnet18")))


def option_names(name: str) -> frozenset[str]:
    """Options that an architecture takes; the number of classes is not among them.

    >>> "tau" in option_names("ntrm-paper"), "tau" in option_names("ntrm-control"), sorted(option_names("mit-b0"))
    (True, False, ['drop_path', 'width'])
    """
    arch = network_named(name)
    own = set(inspect.signature(ARCHITECTURES[arch]).parameters) - {"classes", "variant"}
    return frozenset(own | {field.name for field in fields(RelationConfig)} if arch in RELATED else own)
