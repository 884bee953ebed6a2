"""A folder of results to report on: real ones of small painted slides, made once for each test process."""

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.small import ByColour
from tests.segment.judged import judge_as
from tests.segment.small import paint, write_slide

from ntrm.segment.batch import segment_slides


@functools.cache
def made():
    """One slide of one piece, one of two, and one that failed."""
    random = np.random.default_rng(0)
    folder = Path(tempfile.mkdtemp(prefix="ntrm-report-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    slides = [write_slide(folder / f"{name}.tif", paint(random, pieces=n)) for name, n in (("one", 1), ("two", 2))]
    broken = folder / "broken.svs"
    broken.write_bytes(b"nothing")
    segment_slides([*slides, broken], out=folder / "out", model=ByColour(), device="cpu", batch=2)
    return folder / "out"


def judged(folder, slide, pieces=None, windows=()):
    """Segment the slide of two pieces that lies beside the results anew into ``folder``, judged like this."""
    with pytest.MonkeyPatch.context() as patch:
        judge_as(patch, slide, pieces, windows)
        segment_slides(made().parent / "two.tif", out=folder, model=ByColour(), device="cpu", batch=2)
    return folder / "two"


def document(path):
    return json.loads(path.read_text(encoding="utf-8"))


def change(path, edit):
    """Apply ``edit`` to a JSON file; returns the document."""
    found = document(path)
    edit(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    return found


def network_relations(names):
    """Relations of a network between classes of these names, the k-th pair stronger than the one before."""
    size = len(names)
    attention = [[0.0 if i == j else (1 + i * size + j) / 1000 for j in range(size)] for i in range(size)]
    strongest = {"top": 10, "left": 20, "height": 64, "width": 50, "attention": 0.75}
    return {
        "names": list(names),
        "attention": [attention, [[round(value / 3, 6) for value in row] for row in attention]],
        "edge_windows": [[i * size + j for j in range(size)] for i in range(size)],
        "edge_weight": [[round(value / 2, 6) for value in row] for row in attention],
        "strongest_windows": [{"source": names[-1], "target": names[-2], "windows": [strongest]}],
        "windows": 7,
        "note": "what was used",
    }
