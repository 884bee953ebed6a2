"""What tests of several packages share: tiny datasets, the smallest network, waiting for processes, a trap."""

import io
import os
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ntrm.core.errors import RefusedError
from ntrm.core.io import holding
from ntrm.core.labels import SKIN
from ntrm.core.mpp import level_resolution
from ntrm.data.image_files import write_image, write_rgb_mask
from ntrm.models.base import Segmentation, SegmentationModel

PATIENCE = 300.0  # Seconds: the machine may be busy with everything else


def real_data(*names):
    """A file or folder of the public data; without NTRM_REAL_DATA the test is skipped."""
    if not os.environ.get("NTRM_REAL_DATA"):
        pytest.skip("NTRM_REAL_DATA is not set")
    return Path(os.environ["NTRM_REAL_DATA"], *names)


def imagenet_weights():
    """The public ResNet-18 beside the real data; where it is not there, the test is skipped."""
    path = real_data().parent / "weights" / "resnet18-imagenet1k-v1.safetensors"
    if not path.is_file():
        pytest.skip(f"no {path.name} beside the real data")
    return path


def training_that_waits(rounds, then):
    """The program ``then`` with trainings that wait after so many rounds: one may else be done before it is killed."""
    return f"""
import sys
import time
import tracemalloc
from contextlib import contextmanager

from ntrm.training.log import Recorder

record = Recorder.record


def record_and_wait(*arguments, **named):
    record(*arguments, **named)
    if len(arguments[0].rows) == {rounds}:
        time.sleep({PATIENCE})


Recorder.record = record_and_wait
{then}
"""


def write_plain(root, sections, rows, classes, header="name,group,split,mpp"):
    """A dataset in the plain layout: ``{name: (image, mask)}``, rows of cases.csv, and classes.csv as text."""
    for number, folder in enumerate(("Images", "Masks")):
        (root / folder).mkdir(parents=True)
        for name, pixels in sections.items():
            Image.fromarray(pixels[number]).save(root / folder / f"{name}.png")
    (root / "classes.csv").write_text(classes)
    (root / "cases.csv").write_text("\n".join([header, *rows]) + "\n")
    return root


def write_section(folder, level, name, image, mask):
    """A section in the layout of the skin dataset."""
    write_image(folder / level / "Images" / f"{name}.tif", image, level_resolution(level))
    write_rgb_mask(folder / level / "Masks" / f"{name}.png", mask, SKIN)


class Convolution(SegmentationModel):
    """One convolution: enough for everything that does not depend on the network."""

    def __init__(self, classes, size=1):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, classes, size, padding=size // 2)

    def segment(self, x, *, coarse, graph):
        return Segmentation(self.conv(x))


def star(rng, centre, radius, corners):
    """(corners, 2) of a polygon around a centre that does not cross itself."""
    angle = np.sort(rng.uniform(0, 2 * np.pi, corners))
    reach = radius * rng.uniform(0.4, 1, corners)
    return np.stack([centre[0] + reach * np.cos(angle), centre[1] + reach * np.sin(angle)], axis=1)


def wait_for(what, condition, seconds=PATIENCE):
    """Wait for a condition; returns what it gave."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"waited too long for {what}"
        time.sleep(0.02)
    return found


def is_alive(pid):
    """Whether a process runs; one that has ended and is not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Terminal(io.StringIO):
    """What is written to it is kept; a program takes it for a terminal."""

    def isatty(self):
        return True


class Trap:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@contextmanager
def memory_below(most_mb):
    """What happens inside takes no more memory than this, as far as Python and numpy ask for it."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    assert peak < most_mb


def is_held(path):
    """Whether a process holds the lock file ``path``."""
    try:
        with holding(path):
            return False
    except RefusedError:
        return True
