"""The child process that reads slides for ``ntrm.slides.isolated``, and the messages that go between the two.

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
from typing import Any, BinaryIO, TypeVar

import numpy as np

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.processes import limit_memory
from ntrm.slides.readers.reader import Pixels, SlideInfo, SlideReader

Buffer = TypeVar("Buffer", bytearray, Pixels)
_LENGTH = struct.Struct("!I")
_ERRORS: dict[str, type[NtrmError]] = {kind.__name__: kind for kind in (DataError, RefusedError, UsageError)}


def message(document: dict[str, Any]) -> bytes:
    """A JSON document as it is sent: its length, and its text."""
    text = json.dumps(document).encode()
    return _LENGTH.pack(len(text)) + text


def receive(pipe: RawIOBase) -> dict[str, Any]:
    """The next document; ``EOFError`` where the other side is gone, ``ValueError`` where it sends something else."""
    (size,) = _LENGTH.unpack(filled(pipe, bytearray(_LENGTH.size)))
    if size > 2**20:
        raise ValueError(f"a message of {size} bytes")
    return dict(json.loads(filled(pipe, bytearray(size))))


def filled(pipe: RawIOBase, buffer: Buffer) -> Buffer:
    """The buffer, full of what comes next."""
    left = memoryview(buffer).cast("B")  # type: ignore[arg-type]
    while left:
        if not (count := pipe.readinto(left)):
            raise EOFError("the other side is gone")
        left = left[count:]
    return buffer


def rebuild_error(document: dict[str, Any]) -> NtrmError:
    """An error from its kind and texts."""
    kind = _ERRORS.get(str(document.get("kind")), DataError)
    what, got, expected, hint = (document.get(key) for key in ("what", "got", "expected", "hint"))
    return kind(str(what), got=got, expected=expected, hint=str(hint or ""))


def rebuild_info(document: object) -> SlideInfo:
    """What ``dataclasses.asdict`` made of a ``SlideInfo``; ``ValueError`` for anything else."""
    from pydantic import TypeAdapter  # the child does not need it

    return TypeAdapter(SlideInfo).validate_python(document)


def main(arguments: list[str]) -> None:
    """Answer requests from standard input until it closes; the arguments are bytes of memory, and seconds for one."""
    memory, seconds = (int(argument) for argument in arguments)
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
            reader = _serve(answers, request, reader)
        except NtrmError as error:
            answers.write(message({"error": {"kind": type(error).__name__, **error.texts()}}))
        except MemoryError:
            answers.write(message({"memory": True}))
        answers.flush()
        alarm(0)


def _serve(answers: BinaryIO, request: dict[str, Any], reader: SlideReader | None) -> SlideReader | None:
    """Do what is asked; returns the reader that is open afterwards."""
    from ntrm.slides.readers.formats import open_slide  # the parent needs no decoders

    if "open" in request:
        if reader is not None:
            reader.close()
        reader = open_slide(Path(os.fsdecode(bytes.fromhex(request["open"]))), alone=request["alone"])
        answers.write(message({"info": asdict(reader.info)}))
    elif reader is not None:
        pixels = np.ascontiguousarray(reader.read(*request["read"]))
        answers.write(message({"pixels": list(pixels.shape)}))
        answers.write(pixels.data.cast("B"))
    return reader


def _load_libraries() -> None:
    """Before memory is limited: libraries reserve far more than they use, and are no part of a slide's cost."""
    for name in ("imagecodecs", "openslide", "tifffile", "ntrm.slides.readers.formats"):
        try:
            __import__(name)
        except (ImportError, OSError):
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
