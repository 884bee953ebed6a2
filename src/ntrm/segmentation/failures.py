"""Why a slide failed, in one line that may be written anywhere: no file name, no folder, nothing that was quoted."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from ntrm.errors import NtrmError
from ntrm.slide.inputs import SlideInput
from ntrm.slide.naming import without_name

LONGEST = 600
"""Characters of a reason: some libraries write pages."""

_PACKAGE = Path(__file__).parents[1]
_QUOTED = re.compile(r"(?<!\w)(['\"`]).*?\1(?!\w)")
_PLACE = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[/\\][^\s/\\'\":;,]+){2,}")
EXPECTED = (NtrmError, OSError, MemoryError)
"""What a slide, a disk or a full memory may bring about; everything else is a bug, ours or a library's."""


def is_expected(error: Exception) -> bool:
    """Whether the process that met it is as good as before."""
    return isinstance(error, EXPECTED)


def reason_of(error: Exception, slide: SlideInput, slide_id: str) -> str:
    """What went wrong, with the id wherever the slide's name would stand."""
    kind = type(error).__name__
    if isinstance(error, NtrmError):
        text = without_name(_own(error), slide, slide_id)
    elif isinstance(error, MemoryError):
        text = f"{kind}: the memory is full; close other programs, or take a machine with more"
    else:
        # The slide's own name first: what is left of a path with spaces could still hold a part of it.
        message = _harmless(error, without_name(" ".join(_message(error).split()), slide, slide_id))
        text = f"{kind}: {message}" if is_expected(error) else f"unexpected {kind}: {message}{_where(error)}"
    if kind == "OutOfMemoryError":
        text += "; the device's memory is full: end what else uses it"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _message(error: Exception) -> str:
    """Of the system's errors what happened, without the file to which it happened."""
    return str((isinstance(error, OSError) and error.strerror) or error) or "no message"


def _harmless(error: Exception, message: str) -> str:
    """A library's message without what it quotes (it may come from a header) and without places on this machine."""
    # These quote names of the program, which a developer needs, and never what a file holds.
    of_program = isinstance(error, AttributeError | NameError | ImportError)
    return _PLACE.sub("…", message if of_program else _QUOTED.sub("…", message))


def _own(error: NtrmError) -> str:
    """What, got, expected and how to mend it."""
    got = [] if error.got is None else [f"got {error.got}"]
    expected = [] if error.expected is None else [f"expected {error.expected}"]
    parts = [error.what, *got, *expected, *([error.mend] if error.mend else [])]
    return "; ".join(" ".join(part.split()) for part in parts)


def _where(error: Exception) -> str:
    """The last line of ours on the way to the error: what a developer asks for first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    if not frames:
        return ""
    return f" (at {Path(frames[-1].filename).relative_to(_PACKAGE).as_posix()}:{frames[-1].lineno})"
