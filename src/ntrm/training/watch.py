"""The losses of the steps, brought to the host without any step waiting for them, and checked there."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ntrm.core.errors import NtrmError
from ntrm.training.losses import Loss

INTERVAL = 20
"""Steps whose losses travel together."""

Row = list[float]
"""Total, final and initial loss of a step; the last is NaN for a network without a coarse head."""


class _Parcel(NamedTuple):
    first: int
    values: Tensor
    arrived: torch.cuda.Event | None


class LossWatch:
    """Losses of one round. They are looked at when the next ones are sent off, so that nothing waits for the device."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        """Losses that have arrived."""
        self._fresh: list[Tensor] = []
        self._parcel: _Parcel | None = None
        self._next = 0

    def begin(self, step: int, rows: list[Row] | None = None) -> None:
        """Start a round, or go on in the middle of one whose first losses are ``rows``."""
        self.rows, self._fresh, self._parcel, self._next = list(rows or []), [], None, step

    def add(self, loss: Loss) -> None:
        """The loss of the next step."""
        initial = torch.full_like(loss.final, math.nan) if loss.initial is None else loss.initial
        self._fresh.append(torch.stack([loss.total, loss.final, initial]).detach())
        if len(self._fresh) >= INTERVAL:
            self._send()

    def collect(self) -> list[Row]:
        """Losses of all steps of the round so far; waits for the device."""
        self._send()
        self._receive()
        return self.rows

    def _send(self) -> None:
        self._receive()
        if not self._fresh:
            return
        values, arrived = torch.stack(self._fresh), None  # (n, 3)
        if values.device.type == "cuda":
            host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            host.copy_(values, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
            values = host
        self._parcel = _Parcel(self._next, values, arrived)
        self._next += len(self._fresh)
        self._fresh = []

    def _receive(self) -> None:
        if self._parcel is None:
            return
        parcel, self._parcel = self._parcel, None
        if parcel.arrived is not None:
            parcel.arrived.synchronize()
        for step, row in enumerate(parcel.values.tolist(), start=parcel.first):
            if not math.isfinite(row[0]):
                raise _no_number(step, row)
            self.rows.append(row)


def means(rows: list[Row]) -> tuple[float, float, float | None]:
    """Mean total, final and initial loss; exact, so that it does not matter where a round was interrupted."""
    total, final, initial = (math.fsum(column) / len(rows) for column in zip(*rows, strict=True))
    return total, final, None if math.isnan(initial) else initial


def _no_number(step: int, row: Row) -> NtrmError:
    total, final, initial = row
    return NtrmError(
        f"the loss is no number at step {step + 1}",
        got=f"total {total}, final {final}" + ("" if math.isnan(initial) else f", coarse {initial}"),
        expected="a finite number, as at every step before",
        mend="train again in a new folder with a lower learning_rate, gradient_clip=1 or precision=float32",
    )
