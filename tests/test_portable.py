"""What runs where POSIX is missing, tried by taking it away (``tests/without_posix.py``): all but the service."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ntrm.phantom.layout import layout
from ntrm.phantom.render import render

WITHOUT = Path(__file__).with_name("without_posix.py")


def run(*command: object, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, WITHOUT, *map(str, command)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == expected, done.stderr
    return done


@pytest.mark.slow
def test_a_slide_is_segmented_with_the_same_bytes(tmp_path):
    mask = layout(3, 6.7, "BCC").mask
    Image.fromarray(np.asarray(render(mask, 6.7, 3))).save(tmp_path / "slide.png")
    command = ("segment", tmp_path / "slide.png", "--mpp", "6.7", "--model", "bundled", "--device", "cpu", "--json")
    run("-m", "ntrm", *command, "--out", tmp_path / "hidden")
    subprocess.run(
        [sys.executable, "-m", "ntrm", *map(str, command), "--out", tmp_path / "plain"], check=True, capture_output=True
    )
    masks = [tmp_path / out / "slide" / "mask.ome.tif" for out in ("hidden", "plain")]
    assert masks[0].read_bytes() == masks[1].read_bytes()
    again = run("-m", "ntrm", *command, "--out", tmp_path / "hidden")
    assert [slide["status"] for slide in json.loads(again.stdout)["slides"]] == ["kept"]


@pytest.mark.slow
def test_the_demo_runs(tmp_path):
    run("-m", "ntrm", "demo", "--out", tmp_path / "demo", "--no-serve")
    assert (tmp_path / "demo" / "results" / "index.html").is_file()


def test_the_service_says_that_it_needs_posix(tmp_path):
    refused = run("-m", "ntrm", "serve", tmp_path, expected=2)
    assert "POSIX" in refused.stderr
