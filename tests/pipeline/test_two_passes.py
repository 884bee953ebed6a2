"""Networks that see the whole slide before they predict it: the same as in evaluation, and killed at any moment."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import tifffile
from tests.evaluation.small import COLOURS, NAMES, InSection, count, write_dataset
from tests.pipeline.small import fingerprints, paint, write_slide

from ntrm.evaluation.evaluate import evaluate
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import stitch
from ntrm.pipeline.batch import segment
from ntrm.pipeline.options import Options

ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal, sys
from tests.evaluation.small import InSection
from ntrm.inference.window_checkpoint import Checkpoints
from ntrm.pipeline.batch import segment
slide, out, times = *sys.argv[1:3], int(sys.argv[3])
Checkpoints.due = lambda self: True
replace = os.replace

def dying(*arguments):
    global times
    times -= 1
    if times < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*arguments)

os.replace = dying
import torch; torch.set_num_threads(1)
segment(slide, out=out, model=InSection(), device="cpu", batch=2)
"""


def run(slide, out, **options):
    found = segment(slide, out=out, model=InSection(), device="cpu", batch=2, options=Options(**options))
    assert found.exit_code == 0
    return fingerprints(out)


def mask_of(folder):
    return tifffile.imread(folder / "mask.ome.tif").astype(int) - 1


def test_killed_at_any_moment_the_same_command_ends_with_the_same_bytes(tmp_path, random):
    slide = write_slide(tmp_path / "a.tif", paint(random, pieces=2))
    whole = run(slide, tmp_path / "whole")
    times = int(random.integers(0, 16))
    print("killed after", times)  # noqa: T201 - shown with a failure
    words = [sys.executable, "-c", KILLED, str(slide), str(tmp_path / "out"), str(times)]
    dead = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert dead.returncode == -9, dead.stderr
    assert run(slide, tmp_path / "out") == whole


def test_evaluation_and_slides_say_the_same_of_the_same_picture(tmp_path, random, monkeypatch):
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    truth = paint(random, pieces=2)
    data = write_dataset(tmp_path / "data", {"a": ("test", "p", truth, truth)})
    slide = data / "Images" / "a.tif"
    run(slide, tmp_path / "out", tissue_mask=False)
    mask = mask_of(tmp_path / "out" / "a")
    evaluation = evaluate(InSection(), data, None, device="cpu", batch=2, boundaries=False)
    np.testing.assert_array_equal(evaluation.sections[0].confusion, count(truth, mask))
    image = np.array(COLOURS, dtype=np.uint8)[truth]
    np.testing.assert_array_equal(stitch(Predictor(InSection(), "cpu", batch=2), image).mask, mask)
    # Another network than the one that needs its window alone: the glass has made everything lighter.
    assert (mask != truth).any()


def test_glass_that_is_not_segmented_does_not_count(tmp_path, random):
    """With a tissue mask the slide is what lies around tissue, however much glass there is beside it."""
    mask = paint(random)
    wide = np.full((mask.shape[0], 900), NAMES.index("BKG"), dtype=np.uint8)
    wide[:, : mask.shape[1]] = mask
    slides = [write_slide(tmp_path / f"{name}.tif", each) for name, each in (("narrow", mask), ("wide", wide))]
    for slide in slides:
        run(slide, tmp_path / slide.stem)
    narrow, other = (mask_of(tmp_path / slide.stem / slide.stem) for slide in slides)
    inside = np.s_[70:120, 30:100]
    np.testing.assert_array_equal(narrow[inside], other[inside])
