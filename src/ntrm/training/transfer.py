"""The network a training starts from: fresh, with an encoder that knows ImageNet, or from a trained model.

Of a trained model, tensors are taken by name and shape, and classes by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ntrm.core.errors import RefusedError
from ntrm.core.io import sha256_of
from ntrm.core.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.hub import load
from ntrm.models.registry import DEFAULT_ENCODERS, create
from ntrm.models.weights import IMAGENET_HUB, find_weights, load_encoder_weights, weights_folder
from ntrm.training.recipe import Recipe

_SHOWN = 6
_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class InitReport:
    """What a network starts with."""

    encoder: str
    """``imagenet``, ``file`` (weights given by path), ``model`` (the trained model's) or ``scratch``."""
    copied: tuple[str, ...] = ()
    """Tensors taken whole from the trained model."""
    partly: tuple[str, ...] = ()
    """Tensors of which only the classes in common were taken."""
    left: tuple[str, ...] = ()
    """Tensors of the network that the trained model had nothing for."""
    classes: tuple[str, ...] = ()
    """Classes in common with the trained model."""
    new_classes: tuple[str, ...] = ()
    """Classes that the trained model does not know."""
    source: Mapping[str, Any] | None = None
    """The trained model: name, architecture, data, µm/px, window."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For provenance: names of what is new, a count of what is known."""
        return {
            "encoder": self.encoder,
            "source": None if self.source is None else dict(self.source),
            "copied": len(self.copied),
            "partly": list(self.partly),
            "left": list(self.left),
            "classes": list(self.classes),
            "new_classes": list(self.new_classes),
            "notes": list(self.notes),
        }


def build_network(
    arch: str,
    schema: LabelSchema,
    *,
    options: Mapping[str, Any] | None,
    recipe: Recipe,
    init: str | Path | None = None,
) -> tuple[SegmentationModel, InitReport]:
    """A network ready for training, and what it starts with.

    Fresh weights are drawn from torch's own generator: seed it first. ``recipe.encoder_weights`` fills the encoder:
    ``auto`` if the file is at hand, ``imagenet`` must find it, both only where such weights fit; ``init``, a trained
    model, is laid over that.
    """
    network = create(arch, schema, **dict(options or {}))
    report = _fill_encoder(network, recipe.encoder_weights)
    return network, report if init is None else _take_over(network, load(init), report)


def _fill_encoder(network: SegmentationModel, source: str) -> InitReport:
    """Fill the encoder as the recipe says."""
    if source == "none":
        return InitReport("scratch")
    body = getattr(network, "encoder", None)
    name = str(network.config.options.get("encoder", DEFAULT_ENCODERS.get(network.config.arch, "resnet18")))
    if source not in ("auto", "imagenet"):
        return _fill_from_file(network, body, source, name)
    reason = _why_not(network, body, name)
    path = None if reason else _local_weights(name) if source == "auto" else find_weights("imagenet", name)
    if path is None or not isinstance(body, nn.Module):
        missing = f"no file {name}-… in the weights folder, which NTRM_WEIGHTS names"
        return InitReport("scratch", notes=(f"encoder from scratch: {reason or missing}",))
    load_encoder_weights(body, path, name)
    return InitReport("imagenet", notes=(f"encoder from {_named(path)}",))


def _fill_from_file(network: SegmentationModel, body: object, source: str, name: str) -> InitReport:
    if not isinstance(body, nn.Module):
        raise RefusedError(
            f"{network.config.arch} has no encoder that a file could fill",
            got=f"encoder_weights={source}",
            expected="auto, imagenet or none",
        )
    path = load_encoder_weights(body, source, name)
    return InitReport("file", notes=(f"encoder from {_named(path)}",))


def _why_not(network: SegmentationModel, body: object, name: str) -> str:
    """Why ImageNet weights cannot fill this network; empty where they can."""
    if not isinstance(body, nn.Module):
        return f"{network.config.arch} has none that public ImageNet weights fit"
    if name not in IMAGENET_HUB:
        return f"no ImageNet weights are known for {name}"
    width = network.config.options.get("width", 1.0)
    return "" if width == 1 else f"ImageNet weights fit width 1 alone, not {width}"


def _local_weights(name: str) -> Path | None:
    """The file that ``imagenet`` means, if it lies in the weights folder: ``auto`` never waits for a network."""
    kinds = ("safetensors", "pth")
    return min((path for kind in kinds for path in weights_folder().glob(f"{name}[-._]*{kind}")), default=None)


def _named(path: Path) -> str:
    return f"{path.name} (sha256 {sha256_of(path)[:12]})"


def _take_over(network: SegmentationModel, model: SegmentationModel, report: InitReport) -> InitReport:
    """Lay what a trained model has over a network."""
    transfer = find_transfer(network, model)
    if transfer.empty:
        ours, theirs = network.config, model.config
        raise RefusedError(
            "the trained model has nothing that this network could start from",
            got=f"{theirs.arch} {dict(theirs.options)}",
            expected=f"tensors that fit {ours.arch} {dict(ours.options)}",
            hint="train the model's own architecture with its options, or leave --init out",
        )
    transfer.apply(network)
    taken, whole = _encoder_share(network, transfer)
    if taken:
        # The features were learned from pixels normalised in this way, and ImageNet's share in them is gone.
        network.describe(mean=model.config.mean, std=model.config.std)
        notes = () if taken == whole else (f"{taken} of {whole} tensors of the encoder fit",)
        report = replace(report, encoder="model", notes=notes)
    names = network.config.schema.names
    return replace(
        report,
        copied=tuple(transfer.copied),
        partly=tuple(transfer.partly),
        left=transfer.left,
        classes=transfer.classes,
        new_classes=tuple(name for name in names if name not in transfer.classes),
        source=_source(model),
        notes=(*report.notes, *_remarks(names, model, transfer)),
    )


def _encoder_share(network: SegmentationModel, transfer: Transfer) -> tuple[int, int]:
    """How many tensors of the encoder were taken, and how many it has.

    A network without a part of that name counts as one, apart from what speaks of classes.
    """
    axes = class_axes(network)
    keys = [key for key in axes if key.startswith("encoder.")] or [key for key in axes if not axes[key]]
    return sum(key in transfer.copied for key in keys), len(keys)


def _remarks(names: Sequence[str], model: SegmentationModel, transfer: Transfer) -> list[str]:
    theirs = model.config.schema.names
    notes = []
    if transfer.left:
        fit = f"{len(transfer.copied)} tensors of {model.config.arch} fit"
        notes.append(f"{fit}, {len(transfer.left)} are new: {_some(transfer.left)}")
    if transfer.dropped:
        notes.append(f"{len(transfer.dropped)} tensors of {model.config.arch} are dropped: {_some(transfer.dropped)}")
    if set(names) != set(theirs):
        new = ", ".join(name for name in names if name not in theirs) or "none"
        gone = ", ".join(name for name in theirs if name not in names) or "none"
        notes.append(f"{len(transfer.classes)} classes matched by name; new: {new}; dropped: {gone}")
    return notes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")


def _source(model: SegmentationModel) -> dict[str, Any]:
    told = {key: getattr(model.config, key) for key in ("name", "version", "arch", "options", "data", "mpp", "window")}
    return {**told, "options": dict(model.config.options)}


# --- what a trained model has for another network ---


@dataclass(frozen=True, eq=False)
class Transfer:
    """Tensors for a network, and how they were found."""

    copied: Mapping[str, Tensor]
    """Taken whole, or with every class of the network."""
    partly: Mapping[str, Tensor]
    """The network's own, with the classes in common taken."""
    left: tuple[str, ...]
    """Tensors of the network that nothing was found for."""
    dropped: tuple[str, ...]
    """Tensors of the model that the network has no place for, whatever their shape."""
    classes: tuple[str, ...]
    """Classes in common, in the network's order."""

    @property
    def empty(self) -> bool:
        """Whether nothing was found that says anything: biases and norms alone mean nothing without their weights."""
        return not any(value.ndim > 1 for value in (*self.copied.values(), *self.partly.values()))

    def apply(self, network: SegmentationModel) -> None:
        """Put the tensors into the network they were found for."""
        network.load_state_dict({**self.copied, **self.partly}, strict=False)


def find_transfer(network: SegmentationModel, model: SegmentationModel) -> Transfer:
    """What ``model`` has for ``network``; neither is changed.

    A tensor fits if name and shape are the same apart from the axes of the classes. Along these the classes in common
    are taken, whatever their order, and the others keep what the network has.
    """
    classes = _ClassMatch(network.config.schema, model.config.schema)
    axes, their_axes = class_axes(network), class_axes(model)
    given = model.state_dict()
    copied: dict[str, Tensor] = {}
    partly: dict[str, Tensor] = {}
    for key, value in network.state_dict().items():
        known = given.get(key)
        if known is None or axes[key] != their_axes[key] or not _fits(value, known, axes[key]):
            continue
        if not axes[key] or classes.identical:
            copied[key] = known
        elif classes.names:
            (copied if classes.whole else partly)[key] = classes.merge(value, known, axes[key])
    copied = _without_orphans(copied)
    left = tuple(key for key in network.state_dict() if key not in copied and key not in partly)
    return Transfer(copied, partly, left, tuple(key for key in given if key not in axes), classes.names)


def class_axes(network: SegmentationModel) -> dict[str, tuple[int, ...]]:
    """Which axes of each tensor count the classes: those that grow when the network is built for one class more.

    Sizes alone would not tell: with eight classes a thin network has many other axes of eight.
    """
    options: dict[str, Any] = dict(network.config.options)
    with torch.device("meta"):  # shapes without memory, and without touching the random generator
        few, more = (create(network.config.arch, count, **options).state_dict() for count in (2, 3))
    return {
        key: tuple(axis for axis, (a, b) in enumerate(zip(few[key].shape, more[key].shape, strict=True)) if a != b)
        for key in network.state_dict()
    }


class _ClassMatch:
    """Classes of two schemas, matched by name."""

    def __init__(self, ours: LabelSchema, theirs: LabelSchema) -> None:
        self.names = tuple(name for name in ours.names if name in theirs.names)
        self.identical = ours.names == theirs.names
        self.whole = len(self.names) == len(ours)
        self.rows = torch.tensor([ours.index(name) for name in self.names], dtype=torch.long)
        self.their_rows = torch.tensor([theirs.index(name) for name in self.names], dtype=torch.long)

    def merge(self, own: Tensor, given: Tensor, axes: Sequence[int]) -> Tensor:
        """``own`` with the entries of the common classes from ``given``."""
        for axis in axes:
            given = given.index_select(axis, self.their_rows)
        places = [self.rows if axis in axes else torch.arange(size) for axis, size in enumerate(own.shape)]
        merged = own.clone()
        merged[torch.meshgrid(*places, indexing="ij")] = given
        return merged


def _fits(own: Tensor, given: Tensor, axes: Sequence[int]) -> bool:
    same = (axis in axes or own.shape[axis] == given.shape[axis] for axis in range(own.ndim))
    return own.ndim == given.ndim and own.dtype == given.dtype and all(same)


def _without_orphans(copied: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Counters of batch norm fit everywhere; only those stay whose statistics were copied."""
    statistics = {key: key.replace(_COUNTER, "running_mean") for key in copied if key.endswith(_COUNTER)}
    return {key: value for key, value in copied.items() if statistics.get(key, key) in copied}
