"""Confusion counts: the one table from which every overlap measure follows. Tables of sections add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.core.arrays import plain_array
from ntrm.core.errors import DataError, check_number
from ntrm.core.labels import IGNORE, Counts


def confusion(truth: NDArray[np.integer], prediction: NDArray[np.integer], classes: int) -> Counts:
    """(K, K) pixel counts: rows are the ground truth, columns the prediction; ignored pixels are left out.

    >>> confusion(np.array([0, 0, 1, 255]), np.array([0, 1, 1, 0]), classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    check_number("number of classes", classes, 1, IGNORE, whole=True)
    classes = int(classes)  # of a small type, its square may not fit
    truth, prediction = plain_array("the ground truth", truth), plain_array("the prediction", prediction)
    _check_shapes(tuple(truth.shape), tuple(prediction.shape))
    known = truth != IGNORE
    rows, columns = (
        _indices(what, labels, known, classes) for what, labels in (("ground truth", truth), ("prediction", prediction))
    )
    return np.bincount(rows * classes + columns, minlength=classes**2).reshape(classes, classes)


def confusion_tensor(truth: Tensor, prediction: Tensor, classes: int) -> Tensor:
    """The same table as an int64 tensor on the device of its inputs, without waiting for that device.

    On an accelerator a value that is no class can therefore not be refused with a message: it is sent out of the
    table's bounds, which stops the device instead of miscounting.

    >>> confusion_tensor(torch.tensor([0, 0, 1, 255]), torch.tensor([0, 1, 1, 0]), classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    if truth.device.type == "cpu":
        return torch.from_numpy(confusion(truth.numpy(), prediction.numpy(), classes))
    check_number("number of classes", classes, 1, IGNORE, whole=True)
    _check_shapes(tuple(truth.shape), tuple(prediction.shape))
    return scatter_pairs(truth.flatten().long(), prediction.flatten().long(), classes)


def scatter_pairs(truth: Tensor, prediction: Tensor, classes: int) -> Tensor:
    """Count pairs of int64 vectors; unlike ``torch.bincount`` this never reads a value back from the device."""
    cells = classes**2
    sound = (truth >= 0) & (truth < classes) & (prediction >= 0) & (prediction < classes)
    cell = torch.where(sound, truth * classes + prediction, cells + 1)
    cell = torch.where(truth == IGNORE, cells, cell)  # one cell more than the table has takes the ignored pixels
    counts = torch.zeros(cells + 1, dtype=torch.int64, device=truth.device)
    return counts.scatter_add_(0, cell, torch.ones_like(cell))[:cells].reshape(classes, classes)


def _check_shapes(truth: tuple[int, ...], prediction: tuple[int, ...]) -> None:
    if truth != prediction:
        raise DataError(
            "ground truth and prediction differ in size",
            got=f"ground truth {truth}, prediction {prediction}",
            expected="the same size",
            hint="predict at the resolution of the mask, or resample one of them",
        )


def _indices(what: str, labels: NDArray[Any], known: NDArray[np.bool_], classes: int) -> Counts:
    """The class indices of known pixels; refuses what is none: 0.9 would count as class 0."""
    if labels.size and labels.dtype.kind not in "iub":
        raise DataError(
            f"the {what} holds no class indices",
            got=f"values of type {labels.dtype}",
            expected="whole numbers",
            hint="take the class of the highest probability (argmax), or convert whole numbers with astype(np.uint8)",
        )
    indices = labels[known].astype(np.int64)
    if indices.size and not 0 <= indices.min() <= indices.max() < classes:
        raise DataError(
            f"the {what} holds values that are no class",
            got=f"values from {indices.min()} to {indices.max()}",
            expected=f"0 to {classes - 1}" + (" or the ignore value" if what == "ground truth" else ""),
            hint="read both with one label schema",
        )
    return indices
