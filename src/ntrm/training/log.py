"""The log of a run: one row a round, as a table for everybody and as an event file for TensorBoard."""

from __future__ import annotations

import csv
import io
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ntrm.core.io import write_text

COLUMNS = (
    "step", "epoch", "train_loss", "train_final", "train_initial", "val_loss", "val_final", "val_initial", "val_iou",
    "val_dice", "val_accuracy", "learning_rate", "seconds", "windows_per_second", "waiting",
)  # fmt: skip
"""``seconds`` since the run began, interruptions left out; ``waiting``: share of training time spent on data."""

LogRow = Mapping[str, float | None]


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
