"""The child process that reads slides for ``ntrm.wsi.isolated``; started as a module, never imported by the rest.

Answers are JSON and bare pixels, never pickles: what a hostile file may have turned this process into must not be able
to run anything in its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.errors import NtrmError
from ntrm.core.processes import limit_memory
from ntrm.wsi.readers.formats import SlideReader, open_slide
from ntrm.wsi.readers.wire import describe


def main(arguments: list[str]) -> None:
    """Serve requests from the pipe until it closes: descriptor, bytes of memory, seconds for a request."""
    descriptor, memory, seconds = (int(argument) for argument in arguments)
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
                reader = _serve(pipe, request, reader)
            except NtrmError as error:
                pipe.send_bytes(json.dumps({"error": describe(error)}).encode())
            except MemoryError:
                pipe.send_bytes(json.dumps({"memory": True}).encode())
            signal.alarm(0)


def _serve(pipe: Connection, request: dict[str, Any], reader: SlideReader | None) -> SlideReader | None:
    """Do what is asked; returns the reader that is open afterwards."""
    if "open" in request:
        if reader is not None:
            reader.close()
        reader = open_slide(Path(os.fsdecode(bytes.fromhex(request["open"]))), alone=request["alone"])
        pipe.send_bytes(json.dumps({"info": describe(reader.info)}).encode())
    elif reader is not None:
        pixels = np.ascontiguousarray(reader.read(*request["read"]))
        pipe.send_bytes(json.dumps({"pixels": list(pixels.shape)}).encode())
        pipe.send_bytes(pixels.data.cast("B"))
    return reader


def _load_libraries() -> None:
    """Before memory is limited: libraries reserve far more than they use, and are no part of a slide's cost."""
    for name in ("imagecodecs", "openslide", "tifffile", "PIL.PngImagePlugin", "PIL.JpegImagePlugin"):
        try:
            __import__(name)
        except (ImportError, OSError):
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
