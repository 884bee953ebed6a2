"""Sections of painted skin, each stained a little differently, and references made by hand."""

import atexit
import functools
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.small import COLOURS, NAMES, ByColour, schema_of
from tests.helpers import write_plain
from tests.segment.small import BKG, paint

from ntrm.data.split import open_splits
from ntrm.familiarity.build import build_reference
from ntrm.familiarity.reference import Reference, ReferenceNumbers
from ntrm.models.predictor import Predictor
from ntrm.models.registry import ARCHITECTURES, create

MPP, WINDOW = 6.7, 64
CLASSES = "index,name,r,g,b\n" + "".join(f"{k},{name},{k * 50},9,9\n" for k, name in enumerate(NAMES))
SPLITS = {"train": 13, "val": 11, "test": 2}


def stained(mask, random):
    """The mask painted in class colours, with a stain of its own and noise; the glass stays bright."""
    density = -np.log10((np.array(COLOURS)[mask] + 1) / 256)
    density *= np.where((mask == BKG)[..., None], 1, random.uniform(0.85, 1.15, 3))
    light = 256 * 10.0**-density - 1 + random.normal(0, random.uniform(3, 6), density.shape)
    return np.clip(np.rint(light), 0, 255).astype(np.uint8)


def write_skin(root, random, splits=None):
    """A dataset of such sections in the plain layout, a patient each."""
    sections, rows = {}, []
    for split, count in (splits or SPLITS).items():
        for number in range(count):
            mask = paint(random)
            name = f"{split}-{number}"
            sections[name] = stained(mask, random), mask
            rows.append(f"{name},{name},{split},{MPP}")
    return write_plain(root, sections, rows, CLASSES)


@functools.cache
def skin():
    """A dataset with enough sections for a reference, made once for each test process; no test changes it."""
    folder = Path(tempfile.mkdtemp(prefix="ntrm-skin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_skin(folder, np.random.default_rng(1))


@functools.cache
def skin_reference():
    """Made from all of it."""
    with pytest.MonkeyPatch.context() as patch:
        register(patch)
        return build_reference(Predictor(make_network(), "cpu", batch=8), open_splits(skin()))


def register(monkeypatch):
    """Networks of ``make_network`` can be saved and loaded."""
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)


def make_network():
    """A network that sees the painted classes."""
    return create("by-colour", schema_of()).describe(mpp=MPP, window=WINDOW)


def reference_of(schema, *, mean=None, most=None, spread=0.1):
    """A reference with round numbers: two sizes, quantiles from −2 to 1 and 2; ``spread`` is that of the anatomy."""
    classes = len(schema)
    numbers = classes + classes * (classes - 1) // 2
    anatomy = np.zeros(numbers) if mean is None else np.asarray(mean, dtype=np.float64)
    quantiles = np.array([[-2.0, -1.0, 0.0, 0.5, 1.0], [-2.0, -1.0, 0.0, 1.0, 2.0]])
    return Reference(
        ReferenceNumbers(
            class_means=np.zeros((classes, 9)),
            class_whitening=np.tile(np.eye(9), (classes, 1, 1)),
            unit_mean=np.zeros(9),
            unit_covariance=0.01 * np.eye(9),
            anatomy_mean=anatomy,
            anatomy_covariance=spread**2 * np.eye(numbers),
            anatomy_most=anatomy + 0.1 if most is None else np.asarray(most, dtype=np.float64),
            smallest_mm2=np.array([0.5]),
            log_areas=np.array([math.log(1.0), math.log(100.0)]),
            quantiles=np.tile(quantiles, (3, 1, 1)),
            tails=np.array([[0.5, 1.0]] * 3),
        ),
        schema.names,
        MPP,
        {"seed": 0},
    )
