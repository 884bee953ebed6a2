"""The log of a run: the losses of its steps, and one row a round, as a table and as an event file for TensorBoard."""

from __future__ import annotations

import csv
import io
import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ntrm.core.errors import NtrmError
from ntrm.core.io import write_text
from ntrm.core.progress import Progress
from ntrm.training.losses import Loss

COLUMNS = (
    "step", "epoch", "train_loss", "train_final", "train_coarse", "val_loss", "val_final", "val_coarse", "val_iou",
    "val_dice", "val_accuracy", "learning_rate", "seconds", "windows_per_second", "waiting",
)  # fmt: skip
"""``seconds`` since the run began, interruptions left out; ``waiting``: share of training time spent on data."""

LogRow = Mapping[str, float | None]

INTERVAL = 20
"""Steps whose losses travel together."""

Row = list[float]
"""Total, final and coarse loss of a step; the last is NaN for a network without a coarse head."""


# --- losses of the steps ---


class _Parcel(NamedTuple):
    first: int
    values: Tensor
    arrived: torch.cuda.Event | None


class LossBuffer:
    """Losses of one round from ``step`` on, brought to the host without any step waiting for them, and checked there.

    They are looked at when the next ones are sent off. ``rows`` are the first losses of a round that was interrupted.
    """

    def __init__(self, step: int = 0, rows: list[Row] | None = None) -> None:
        self.rows = list(rows or [])
        """Losses that have arrived."""
        self._fresh: list[Tensor] = []
        self._parcel: _Parcel | None = None
        self._next = step

    def add(self, loss: Loss) -> None:
        """The loss of the next step."""
        coarse = torch.full_like(loss.final, math.nan) if loss.coarse is None else loss.coarse
        self._fresh.append(torch.stack([loss.total, loss.final, coarse]).detach())
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
    """Mean total, final and coarse loss; exact, so that it does not matter where a round was interrupted."""
    total, final, coarse = (math.fsum(column) / len(rows) for column in zip(*rows, strict=True))
    return total, final, None if math.isnan(coarse) else coarse


def _no_number(step: int, row: Row) -> NtrmError:
    total, final, coarse = row
    return NtrmError(
        f"the loss is no number at step {step + 1}",
        got=f"total {total}, final {final}" + ("" if math.isnan(coarse) else f", coarse {coarse}"),
        expected="a finite number, as at every step before",
        hint="train again in a new folder with a lower learning_rate, gradient_clip=1 or precision=float32",
    )


@contextmanager
def ticking(progress: Progress, total: int, label: str) -> Iterator[Callable[[], None]]:
    """Progress for a loop that is not over its items: every call of what is yielded is one item done.

    >>> from ntrm.core.progress import SILENT
    >>> with ticking(SILENT, total=2, label="steps") as tick:
    ...     tick()
    """
    track = progress.track(iter(range(total)), total=total, label=label)
    next(track, None)

    def tick() -> None:
        next(track, None)

    try:
        yield tick
    finally:
        close = getattr(track, "close", None)  # a generator has it, another iterator need not
        if close is not None:
            close()


# --- rows of the rounds ---


def write_log(path: Path, rows: Sequence[LogRow]) -> None:
    """Write the whole table: a run that is killed never leaves half a row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="raise")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if value is None else value for key, value in row.items()})
    write_text(path, text.getvalue())


def read_log(path: Path) -> list[dict[str, float | None]]:
    """The rows of a table that ``write_log`` wrote."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [{key: float(value) if value else None for key, value in row.items()} for row in csv.DictReader(stream)]


class EventFile:
    """Scalars as TensorBoard reads them: records of length, checksum, event, checksum; appended as they come.

    Written here, because TensorBoard itself is a web server with many dependencies, and this is all we need of it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.ntrm"
        self._append(_text(3, b"brain.Event:2"))

    def write(self, step: int, row: LogRow) -> None:
        """One event with every value of a row; ``train_loss`` becomes ``train/loss``."""
        values = b"".join(
            _text(1, _text(1, key.replace("_", "/", 1).encode()) + b"\x15" + struct.pack("<f", value))
            for key, value in row.items()
            if value is not None and key != "step"
        )
        self._append(b"\x10" + _varint(step) + _text(5, values))

    def _append(self, fields: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + fields
        length = struct.pack("<Q", len(event))
        with self.path.open("ab") as stream:
            stream.write(length + _checksum(length) + event + _checksum(event))


def _varint(number: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _text(field: int, content: bytes) -> bytes:
    """A field that holds bytes."""
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the format wants it."""
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(content: bytes) -> int:
    """Castagnoli's checksum.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
