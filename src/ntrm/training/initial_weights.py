"""The network a training starts from: random, with ImageNet weights in its encoder, or a trained model's weights.

Tensors of a trained model are matched by name and shape, classes by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ntrm.core.errors import DataError, RefusedError, first_names
from ntrm.core.io import sha256_of
from ntrm.core.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.folders import CONFIG, locate, read_config
from ntrm.models.registry import create, encoder_name, load
from ntrm.models.weights import IMAGENET_HUB, find_weights, load_encoder_weights, stored_weights
from ntrm.training.recipe import Recipe

_COUNTER = "num_batches_tracked"


@dataclass(frozen=True, eq=False)
class WeightTransfer:
    """Tensors of a model that fit a network."""

    copied: Mapping[str, Tensor] = field(default_factory=dict)  # The model's, for every class of the network
    partly: Mapping[str, Tensor] = field(default_factory=dict)
    """The network's own, with the model's values for the classes in common."""
    left: tuple[str, ...] = ()  # Names of the network's tensors that the model has nothing for
    dropped: tuple[str, ...] = ()  # Names of the model's tensors that the network does not have
    classes: tuple[str, ...] = ()  # Classes in common, in the network's order
    new_classes: tuple[str, ...] = ()  # Classes of the network that the model does not know

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that is taken over."""
        return {**self.copied, **self.partly}


@dataclass(frozen=True)
class InitReport:
    """What a network starts with."""

    encoder: str  # imagenet, file (weights given by path), model (the trained model's) or scratch
    notes: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None
    """The trained model: name, architecture, data, µm/px, window, SHA-256 of its weights."""
    transfer: WeightTransfer = WeightTransfer()  # What was copied from it

    def as_dict(self) -> dict[str, Any]:
        """For provenance: names of what is new, a count of what is known."""
        return {
            "encoder": self.encoder,
            "source": None if self.source is None else dict(self.source),
            "copied": len(self.transfer.copied),
            **{name: list(getattr(self.transfer, name)) for name in ("partly", "left", "classes", "new_classes")},
            "notes": list(self.notes),
        }


def build_network(
    arch: str, schema: LabelSchema, *, options: Mapping[str, Any] | None, recipe: Recipe, init: str | Path | None = None
) -> tuple[SegmentationModel, InitReport]:
    """A network ready for training, and what it starts with.

    Random weights come from torch's own generator: seed it first. ``recipe.encoder_weights`` fills the encoder:
    ``auto`` uses the file if it is there and sound, ``imagenet`` must find it, both only where such weights fit.
    Weights of ``init``, a trained model, replace those; where they fill the encoder, no others are looked for.
    """
    network, weights = create(arch, schema, **dict(options or {})), recipe.encoder_weights
    if init is None:
        return network, _fill_encoder(network, weights)
    model = load(init)
    known, transfer = model.config, find_transfer(network, model)
    # Biases and norms mean nothing without their weights.
    if not any(value.ndim > 1 for value in transfer.tensors.values()):
        raise RefusedError(
            "the trained model has nothing that this network could start from",
            got=f"{known.arch} {dict(known.options)}",
            expected=f"tensors that fit {arch} {dict(network.config.options)}",
            hint="train the model's own architecture with its options, or leave --init out",
        )
    # A network without an attribute ``encoder`` counts as one, apart from its classifiers.
    axes = class_axes(network)
    encoder = [key for key in axes if key.startswith("encoder.")]
    filled = weights in ("auto", "imagenet") and encoder and all(key in transfer.copied for key in encoder)
    report = _fill_encoder(network, "none" if filled else weights)
    network.load_state_dict(transfer.tensors, strict=False)
    network.describe(trained_on=known.trained_on)
    encoder = encoder or [key for key in axes if not axes[key]]
    copied = sum(key in transfer.copied for key in encoder)
    if copied:
        # The features were learned from pixels normalised in this way, and ImageNet's weights are replaced.
        network.describe(mean=known.mean, std=known.std)
        notes = () if copied == len(encoder) else (f"{copied} of {len(encoder)} tensors of the encoder fit",)
        report = InitReport("model", notes)
    source = {key: getattr(known, key) for key in ("name", "version", "arch", "options", "data", "mpp", "window")}
    source |= {"options": dict(known.options), "weights_sha256": read_config(locate(init) / CONFIG)[1]}
    return network, InitReport(report.encoder, (*report.notes, *_notes(model, transfer)), source, transfer)


def _notes(model: SegmentationModel, transfer: WeightTransfer) -> list[str]:
    arch, notes = model.config.arch, []
    if transfer.left:
        fit, fresh = len(transfer.copied), len(transfer.left)
        notes.append(f"{fit} tensors of {arch} fit, {fresh} are new: {first_names(transfer.left)}")
    if transfer.dropped:
        notes.append(f"{len(transfer.dropped)} tensors of {arch} are dropped: {first_names(transfer.dropped)}")
    dropped = [name for name in model.config.schema.names if name not in transfer.classes]
    if dropped or transfer.new_classes:
        new, gone = (", ".join(names) or "none" for names in (transfer.new_classes, dropped))
        notes.append(f"{len(transfer.classes)} classes matched by name; new: {new}; dropped: {gone}")
    return notes


def _fill_encoder(network: SegmentationModel, source: str) -> InitReport:
    if source == "none":
        return InitReport("scratch")
    encoder = getattr(network, "encoder", None)
    name = encoder_name(network.config.arch, network.config.options)
    of_imagenet = source in ("auto", "imagenet")
    path: str | Path | None = source
    if of_imagenet:
        width = network.config.options.get("width", 1.0)
        reason = "" if width == 1 else f"ImageNet weights only fit width 1, not {width}"
        if name not in IMAGENET_HUB:
            reason = f"no ImageNet weights are known for {name}"
        if not isinstance(encoder, nn.Module):
            reason = f"{network.config.arch} has none that public ImageNet weights fit"
        path = None if reason else stored_weights(name) if source == "auto" else find_weights("imagenet", name)
        if path is None:
            folder = "$NTRM_WEIGHTS or, if this is not set, ~/.cache/ntrm/weights"
            missing = f"no file {name}-… in the weights folder ({folder})"
            return InitReport("scratch", notes=(f"encoder from scratch: {reason or missing}",))
    if path is None or not isinstance(encoder, nn.Module):
        raise RefusedError(
            f"{network.config.arch} has no encoder that a file could fill",
            got=f"encoder_weights={source}",
            expected="auto, imagenet or none",
        )
    try:
        file = load_encoder_weights(encoder, path, name)
    except DataError as error:
        if source != "auto":
            raise
        return InitReport("scratch", notes=(f"encoder from scratch: {error.what} ({error.got})",))
    note = f"encoder from {file.name} (sha256 {sha256_of(file)[:12]})"
    return InitReport("imagenet" if of_imagenet else "file", notes=(note,))


# --- matching the tensors of two networks ---


def find_transfer(network: SegmentationModel, model: SegmentationModel) -> WeightTransfer:
    """What ``model`` has for ``network``; neither is changed.

    A tensor fits if name and shape are the same apart from the axes of the classes. Along these the classes in common
    are copied, whatever their order, and the others keep the network's values.
    """
    own_names, known_names = network.config.schema.names, model.config.schema.names
    common = tuple(name for name in own_names if name in known_names)
    new = tuple(name for name in own_names if name not in known_names)
    places, sources = (torch.tensor([*map(names.index, common)]).long() for names in (own_names, known_names))
    axes, their_axes = class_axes(network), class_axes(model)
    ours, theirs = network.state_dict(), model.state_dict()
    copied: dict[str, Tensor] = {}
    partly: dict[str, Tensor] = {}
    for key, value in ours.items():
        known, of_classes = theirs.get(key), axes[key]
        if known is None or of_classes != their_axes[key] or value.dtype != known.dtype or value.ndim != known.ndim:
            continue
        if any(value.shape[axis] != known.shape[axis] for axis in range(value.ndim) if axis not in of_classes):
            continue
        if not of_classes or own_names == known_names:
            copied[key] = known
        elif common:
            for axis in of_classes:
                known = known.index_select(axis, sources)
            indices = [places if axis in of_classes else torch.arange(size) for axis, size in enumerate(value.shape)]
            merged = value.clone()
            merged[torch.meshgrid(*indices, indexing="ij")] = known
            (partly if new else copied)[key] = merged
    # Counters of batch norm fit everywhere: only those stay whose statistics were copied.
    statistics = {key: key.replace(_COUNTER, "running_mean") for key in copied if key.endswith(_COUNTER)}
    copied = {key: value for key, value in copied.items() if statistics.get(key, key) in copied}
    left = tuple(key for key in ours if key not in copied and key not in partly)
    dropped = tuple(key for key in theirs if key not in axes)
    return WeightTransfer(copied, partly, left, dropped, common, new)


def class_axes(network: SegmentationModel) -> dict[str, tuple[int, ...]]:
    """Which axes of each tensor are the classes: those that grow when the network is built for one class more.

    Sizes alone are not enough: with eight classes a thin network has many other axes of eight.
    """
    options: dict[str, Any] = dict(network.config.options)
    with torch.device("meta"):  # shapes without memory, and without touching the random generator
        few, more = (create(network.config.arch, count, **options).state_dict() for count in (2, 3))
    return {
        key: tuple(axis for axis, (a, b) in enumerate(zip(few[key].shape, more[key].shape, strict=True)) if a != b)
        for key in network.state_dict()
    }
