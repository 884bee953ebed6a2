"""The child process that reads slides for ``ntrm.wsi.isolated``, and the messages that go between the two.

Messages are JSON and bare pixels, never pickles, and are checked on arrival: whatever a hostile file has turned the
child into must not be able to run anything in its parent.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from dataclasses import asdict
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.processes import limit_memory
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel, SlideReader

SHARED_BYTES = 16 * 2**20
"""Pixels that go through a file in memory: a block of ``grid.BLOCK_PIXELS`` fits. More go through the pipe."""
_MOST_BYTES = 2**20
"""Of a message."""
_LENGTH = struct.Struct("!I")
_ERRORS: dict[str, type[NtrmError]] = {kind.__name__: kind for kind in (DataError, RefusedError, UsageError)}


def message(document: dict[str, Any]) -> bytes:
    """A JSON document as it is sent: its length, and its text."""
    text = json.dumps(document).encode()
    return _LENGTH.pack(len(text)) + text


def receive(pipe: RawIOBase) -> dict[str, Any]:
    """The next document; ``EOFError`` where the other side is gone, ``ValueError`` where it sends something else."""
    length = bytearray(_LENGTH.size)
    receive_into(pipe, memoryview(length))
    if (size := _LENGTH.unpack(length)[0]) > _MOST_BYTES:
        raise ValueError(f"a message of {size} bytes")
    text = bytearray(size)
    receive_into(pipe, memoryview(text))
    return dict(json.loads(text))


def receive_into(pipe: RawIOBase, left: memoryview) -> None:
    """Fill a buffer."""
    while left:
        if not (count := pipe.readinto(left)):
            raise EOFError("the other side is gone")
        left = left[count:]


def rebuild_error(document: dict[str, Any]) -> NtrmError:
    """An error from its kind and texts."""
    kind = _ERRORS.get(str(document.get("kind")), DataError)
    what, got, expected, hint = (document.get(key) for key in ("what", "got", "expected", "hint"))
    return kind(str(what), got=got, expected=expected, hint=str(hint or ""))


def rebuild_info(document: dict[str, Any]) -> SlideInfo:
    """What ``dataclasses.asdict`` made of a ``SlideInfo``; ``LookupError``, ``TypeError``, ``ValueError`` otherwise."""
    return SlideInfo(
        reader=str(document["reader"]),
        vendor=str(document["vendor"]),
        levels=tuple(
            SlideLevel(level["width"], level["height"], float(level["downsample"]), _numbers(int, level["tile"], 2))
            for level in document["levels"]
        ),
        stated_mpp=_numbers(float, document["stated_mpp"], 2),
        bounds=_numbers(int, document["bounds"], 4),
    )


def _numbers(kind: type, values: Any, count: int) -> Any:
    """None, or so many numbers as a tuple."""
    if values is None:
        return None
    numbers = tuple(kind(value) for value in values)
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} numbers")
    return numbers


def main(arguments: list[str]) -> None:
    """Answer requests from standard input until it closes.

    The arguments are bytes of memory, seconds for a request, and the descriptor of a file for pixels if there is any.
    """
    memory, seconds, *shared = (int(argument) for argument in arguments)
    _load_libraries()
    limit_memory(memory)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints goes nowhere: standard output carries the answers.
    requests, answers = os.fdopen(0, "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # By default the alarm ends the process, inside a library's endless loop as well.
    alarm = getattr(signal, "alarm", lambda _: None)
    reader: SlideReader | None = None
    while True:
        try:
            request = receive(requests)
        except (EOFError, OSError):
            return
        alarm(seconds)
        try:
            reader = _serve(answers, request, reader, *shared)
        except NtrmError as error:
            answers.write(message({"error": {"kind": type(error).__name__, **error.texts()}}))
        except MemoryError:
            answers.write(message({"memory": True}))
        answers.flush()
        alarm(0)


def _serve(
    answers: BinaryIO, request: dict[str, Any], reader: SlideReader | None, shared: int | None = None
) -> SlideReader | None:
    """Do what is asked; returns the reader that is open afterwards."""
    from ntrm.wsi.readers.formats import open_slide  # the parent needs no decoders

    if "open" in request:
        if reader is not None:
            reader.close()
        reader = open_slide(Path(os.fsdecode(bytes.fromhex(request["open"]))), alone=request["alone"])
        answers.write(message({"info": asdict(reader.info)}))
    elif reader is not None:
        pixels = np.ascontiguousarray(reader.read(*request["read"]))
        through_file = shared is not None and _written(pixels.data.cast("B"), shared)
        answers.write(message({"pixels": list(pixels.shape), "shared": through_file}))
        if not through_file:
            answers.write(pixels.data.cast("B"))
    return reader


def _written(pixels: memoryview, shared: int) -> bool:
    """Whether pixels are in the file that both processes have open now."""
    try:
        return len(pixels) <= SHARED_BYTES and os.pwrite(shared, pixels, 0) == len(pixels)
    except OSError:  # the largest file that this process may write counts in memory, too
        return False


def _load_libraries() -> None:
    """Before memory is limited: libraries reserve far more than they use, and are no part of a slide's cost."""
    for name in ("imagecodecs", "openslide", "tifffile", "ntrm.wsi.readers.formats"):
        try:
            __import__(name)
        except (ImportError, OSError):
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
