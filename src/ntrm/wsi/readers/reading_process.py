"""The child process that reads slides for ``ntrm.wsi.isolated``, and the JSON that goes between the two.

Answers are JSON and bare pixels, never pickles, and are checked on arrival: whatever a hostile file has turned the
child into must not be able to run anything in its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.processes import limit_memory
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel, SlideReader

_ERRORS: dict[str, type[NtrmError]] = {kind.__name__: kind for kind in (DataError, RefusedError, UsageError)}
_TEXTS = ("what", "got", "expected", "hint")


def describe_error(error: NtrmError) -> dict[str, Any]:
    """An error as a JSON document."""
    return {"kind": type(error).__name__, **error.texts()}


def rebuild_error(document: dict[str, Any]) -> NtrmError:
    """What ``describe_error`` made of an error."""
    kind = _ERRORS.get(str(document.get("kind")), DataError)
    what, got, expected, hint = (document.get(key) for key in _TEXTS)
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
    """Serve requests until the pipe closes.

    The arguments are bytes of memory, seconds for a request, and the descriptors of the pipe and of the memory for
    pixels, where there is one.
    """
    memory, seconds, descriptor, *shared = (int(argument) for argument in arguments)
    _load_libraries()
    limit_memory(memory)
    # By default the alarm ends the process, inside a library's endless loop as well.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader: SlideReader | None = None
    with Connection(descriptor) as pipe:
        while True:
            try:
                request = json.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                return
            signal.alarm(seconds)
            try:
                reader = _serve(pipe, request, reader, *shared)
            except NtrmError as error:
                _send(pipe, {"error": describe_error(error)})
            except MemoryError:
                _send(pipe, {"memory": True})
            signal.alarm(0)


def _serve(
    pipe: Connection, request: dict[str, Any], reader: SlideReader | None, shared: int | None = None
) -> SlideReader | None:
    """Do what is asked; returns the reader that is open afterwards."""
    from ntrm.wsi.readers.formats import open_slide  # the parent needs no decoders

    if "open" in request:
        if reader is not None:
            reader.close()
        reader = open_slide(Path(os.fsdecode(bytes.fromhex(request["open"]))), alone=request["alone"])
        _send(pipe, {"info": asdict(reader.info)})
    elif reader is not None:
        pixels = np.ascontiguousarray(reader.read(*request["read"]))
        through_pipe = shared is None or not request["shared"]
        if shared is not None and not through_pipe:
            os.pwrite(shared, pixels.data.cast("B"), 0)
        _send(pipe, {"pixels": list(pixels.shape)})
        if through_pipe:
            pipe.send_bytes(pixels.data.cast("B"))
    return reader


def _send(pipe: Connection, answer: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(answer).encode())


def _load_libraries() -> None:
    """Before memory is limited: libraries reserve far more than they use, and are no part of a slide's cost."""
    for name in ("imagecodecs", "openslide", "tifffile", "ntrm.wsi.readers.formats"):
        try:
            __import__(name)
        except (ImportError, OSError):
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
