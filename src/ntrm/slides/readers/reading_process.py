"""The child process that reads slides for ``ntrm.slides.isolated``, and the messages that go between the two.

Messages are lines of JSON and bare pixels, never pickles, and are checked on arrival: whatever a hostile file has
turned the child into must not be able to run anything in its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.processes import limit_memory
from ntrm.slides.readers.reader import Pixels, SlideReader


def message(document: dict[str, Any]) -> bytes:
    """A JSON document as it is sent."""
    return json.dumps(document).encode() + b"\n"


def receive(pipe: RawIOBase) -> dict[str, Any]:
    """The next document; ``EOFError`` where the other side is gone, ``ValueError`` where it sends something else."""
    line = pipe.readline(2**20)
    if not line.endswith(b"\n"):
        raise EOFError("the other side is gone, or goes on for ever")
    return dict(json.loads(line))


def fill(pipe: RawIOBase, pixels: Pixels) -> None:
    """Read so many bytes into an array."""
    left = memoryview(pixels).cast("B")  # type: ignore[arg-type]
    while left:
        if not (count := pipe.readinto(left)):
            raise EOFError("the other side is gone")
        left = left[count:]


def rebuild_error(document: dict[str, Any]) -> NtrmError:
    """An error from its kind and texts."""
    kinds: dict[str, type[NtrmError]] = {kind.__name__: kind for kind in (RefusedError, UsageError)}
    what, got, expected, hint = (document.get(key) for key in ("what", "got", "expected", "hint"))
    kind = kinds.get(str(document.get("kind")), DataError)
    return kind(str(what), got=got, expected=expected, hint=str(hint or ""))


def main(arguments: list[str]) -> None:
    """Answer requests from standard input until it closes; the arguments are bytes of memory, and seconds for one."""
    memory, seconds = (int(argument) for argument in arguments)
    # Before memory is limited: libraries reserve far more than they use, and are no part of a slide's cost.
    for name in ("imagecodecs", "openslide", "tifffile", "ntrm.slides.readers.formats"):
        with suppress(ImportError, OSError):
            __import__(name)
    from ntrm.slides.readers.formats import open_slide  # the parent needs no decoders

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
            if "open" in request:
                if reader is not None:
                    reader.close()
                reader = open_slide(Path(os.fsdecode(bytes.fromhex(request["open"]))), alone=request["alone"])
                answers.write(message({"info": asdict(reader.info)}))
            elif reader is not None:
                pixels = np.ascontiguousarray(reader.read(*request["read"]))
                answers.write(message({"pixels": list(pixels.shape)}))
                answers.write(pixels.data.cast("B"))
        except NtrmError as error:
            answers.write(message({"error": {"kind": type(error).__name__, **error.texts()}}))
        except MemoryError:
            answers.write(message({"memory": True}))
        answers.flush()
        alarm(0)


if __name__ == "__main__":
    main(sys.argv[1:])
