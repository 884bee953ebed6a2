"""What a trained model has for another network: tensors by name and shape, classes by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ntrm.core.labels import LabelSchema
from ntrm.models.base import SegmentationModel
from ntrm.models.registry import create

_COUNTER = "num_batches_tracked"


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
