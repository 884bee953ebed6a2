"""Networks by name, untrained, and from a folder or the hub, which never runs code from a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ntrm.core.errors import UsageError, choices_error, plain_number
from ntrm.core.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.baselines import AttentionUNet, DeepLabV3Plus, UNet, VGGEncoder
from ntrm.models.config import DEFAULT, ModelConfig, network_named, schema_for
from ntrm.models.encoders import make_encoder
from ntrm.models.folders import locate, read_model
from ntrm.models.ntrm import NTRM
from ntrm.models.segformer import MiTTRM, SegFormer
from ntrm.models.trm import RelationConfig
from ntrm.models.weights import check_tensors, float32_digest, load_encoder_weights, read_tensors

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


def _unet(classes: int, encoder: str = "resnet18", width: float = 1.0) -> UNet:
    made = make_encoder(encoder, width)
    return UNet(classes, made, made.channels, width)


def _vgg(classes: int, width: float = 1.0) -> UNet:
    made = VGGEncoder(width)
    return UNet(classes, made, made.channels, width)


def _mit(size: str, classes: int, width: float = 1.0, drop_path: float = 0.1) -> SegFormer:
    return SegFormer(classes, size, width, drop_path)


ARCHITECTURES: dict[str, Builder] = {
    "ntrm-paper": _paper,
    "ntrm-control": _control,
    "ntrm-released": _released,
    "unet-resnet18": _unet,
    "unet-vgg16": _vgg,
    "attention-unet": AttentionUNet,
    "deeplabv3plus": DeepLabV3Plus,
    "mit-b0": partial(_mit, "b0"),
    "mit-b2": partial(_mit, "b2"),
    "mit-trm": MiTTRM,
}
"""Builders by name: ``builder(classes, **options)``; ``ntrm`` is another name of one of these."""

RELATED = ("ntrm-paper", "mit-trm")
"""Architectures with a tissue relation module; they take the fields of ``RelationConfig`` as options."""


def list_models() -> list[str]:
    """Names of the architectures that ``create`` builds and ``ntrm train --arch`` trains; the first is the default."""
    return [DEFAULT, *ARCHITECTURES]


def create(
    name: str, classes: int | LabelSchema | Sequence[str] = 12, *, weights: str | Path | None = None, **options: Any
) -> SegmentationModel:
    """Build an untrained network by name; ``weights`` fills its encoder.

    ``classes`` are names in index order (``["stroma", "tumour"]``), a ``LabelSchema``, or how many there are; 12 are
    the skin's. ``weights`` is a file, ``imagenet`` (looked up by the encoder's name) or a hub id. ``ntrm`` is the
    default of this version; the network's config names the network itself.

    >>> create("ntrm", classes=12, encoder="resnet18", width=0.125).config.arch
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
    """The encoder of an architecture with these options, by which its weights are found."""
    return str(options.get("encoder", "vgg16" if arch == "unet-vgg16" else "resnet18"))


def option_names(name: str) -> frozenset[str]:
    """Options that an architecture takes; the number of classes is not among them.

    >>> "tau" in option_names("ntrm-paper"), sorted(option_names("mit-b0"))
    (True, ['drop_path', 'width'])
    """
    arch = network_named(name)
    own = set(inspect.signature(ARCHITECTURES[arch]).parameters) - {"classes", "variant"}
    return frozenset(own | {field.name for field in fields(RelationConfig)} if arch in RELATED else own)


def load(source: str | Path, revision: str | None = None) -> SegmentationModel:
    """Load a network from a folder, by the name ``bundled``, or from a hub id at a revision.

    The result is on the CPU and in evaluation mode.
    """
    config, path, digest = read_model(locate(source, revision))
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
    with torch.random.fork_rng(devices=[]):  # what a seeded script draws next must not depend on what it loads
        network = create(config.arch, config.schema, **options)
    network.config = config
    network.load_state_dict(state)
    network.loaded_weights = (float32_digest(network), digest)
    return network.eval()
