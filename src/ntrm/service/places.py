"""Server paths that a request may name: files under an allowed root, whatever way they are spelt."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ntrm.service.problems import ProblemError
from ntrm.service.settings import HIDDEN

LONGEST_PATH = 4096
LONGEST_NAME = 200


def file_under(roots: Sequence[Path], text: str) -> Path:
    """The file that ``text`` names, absolute or below a root; refuses whatever lies outside, also through links.

    Nothing tells a file outside from one that is not there.
    """
    refusal = ProblemError(
        403,
        "outside",
        "no such slide under an allowed root",
        expected="a file below a folder that was given with --root",
        mend="start the service with --root FOLDER, or upload the slide",
    )
    if not text or len(text) > LONGEST_PATH or "\x00" in text or not roots:
        raise refusal
    given = Path(text)
    for root in roots:
        base = root.resolve()
        try:
            found = (base / given).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            continue
        # After every link is followed: what counts is where the file lies. The service's own files are no slides.
        below = found.is_relative_to(base) and found != base and HIDDEN not in found.parts
        if below and (found.is_file() or found.is_dir()):
            if found.is_dir():
                raise ProblemError(
                    422, "unreadable", "the path names a folder", expected="the slide's main file", mend="name a file"
                )
            return found
    raise refusal


def display_name(text: str) -> str:
    r"""A name as it may be shown: one line, no control characters, nothing that turns the direction of writing.

    >>> display_name("a\x1b[31m\u202eb.svs")
    'a[31mb.svs'
    """
    last = text.replace("\\", "/").rsplit("/", 1)[-1]
    shown = "".join(each for each in last if unicodedata.category(each)[0] != "C")
    return " ".join(shown.split())[:LONGEST_NAME]
