"""Sections for simulated clicks: their stains, their words, their graphs."""

import numpy as np
from research.correction_sets import Picture, keep, names_of, random_laboratory, stained
from research.simulated_clicks import CORES, CORES_AS_SKIN, GLANDS_AS_SKIN, SKIN_PAS, Names, read_section

from ntrm.core.labels import SKIN, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.inference.predictor import Predictor
from ntrm.models.registry import create


def schema_of(*names):
    return LabelSchema(tuple(Tissue(index, name, "", (index, 0, 0)) for index, name in enumerate(names)))


def test_a_set_is_told_in_the_words_that_the_model_has():
    assert names_of("report", SKIN) == Names.same(SKIN)
    assert names_of("skin-pas", SKIN) is SKIN_PAS
    assert names_of("glas", SKIN) is GLANDS_AS_SKIN
    assert names_of("gleason", SKIN) is CORES_AS_SKIN
    assert names_of("gleason", schema_of("background", "benign gland", "malignant gland")) is CORES


def test_a_random_laboratory_stains_a_section_always_alike_and_leaves_glass_white(random):
    image = random.integers(60, 200, (20, 20, 3)).astype(np.uint8)
    image[:5] = 255
    one, again, other = (random_laboratory(image, seed) for seed in (3, 3, 4))
    assert (one == again).all()
    assert (one != other).any()
    assert one[:5].min() >= 250
    assert (stained("own", image, 3, 0) == image).all()


def test_what_is_kept_is_read_again_with_its_truth(tmp_path, random):
    image = random.integers(0, 256, (40, 50, 3)).astype(np.uint8)
    truth, there = random.integers(0, 4, (40, 50)).astype(np.uint8), random.random((40, 50)) < 0.5
    predictor = Predictor(create("ntrm-control", SKIN, width=0.125).describe(window=32), "cpu", batch=4)
    keep(Picture("skin-pas-A", image, truth, Resolution.square(6.7), there), predictor, tmp_path, 16)
    section = read_section(tmp_path, "skin-pas-A", SKIN, SKIN_PAS)
    assert (section.truth.mask == truth).all()
    assert (section.there == there).all()
    assert section.nodes.shape == truth.shape
    assert section.pixels.sum() == truth.size
