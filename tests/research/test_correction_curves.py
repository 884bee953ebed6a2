"""Sections that clicks are simulated on, and means and intervals over them."""

import numpy as np
import pytest
from research.correction_curves import Picture, interval, keep, wrong_regions
from research.simulated_clicks import SKIN_PAS, Section, Truth, read_section
from tests.correct.engine.test_graph import made
from tests.correct.engine.test_parts import blocks

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create


def test_intervals_are_over_sections_whatever_the_number_of_stains(random):
    values = random.random(6)
    alone, twice = interval(values, list("abcdef")), interval(np.repeat(values, 2), list("aabbccddeeff"))
    assert twice == pytest.approx(alone)
    assert alone[0] < values.mean() < alone[1]


def test_a_region_is_wrong_if_most_of_what_is_known_of_it_is(random):
    mask, truth = blocks(random), blocks(random)
    section = Section(made(mask), Truth.of_phantom(truth))
    pixels, wrong = wrong_regions(section)
    regions = np.append(section.graph.region, -1)[section.graph.runs.dense()]
    known = (truth != IGNORE) & (mask != IGNORE)
    for region in range(len(pixels)):
        own = regions == region
        assert pixels[region] == own.sum()
        assert wrong[region] == (2 * (own & known & (mask != truth)).sum() > (own & known).sum())


def test_what_is_kept_is_read_again_with_its_truth(tmp_path, random):
    image = random.integers(0, 256, (40, 50, 3)).astype(np.uint8)
    truth, there = random.integers(0, 4, (40, 50)).astype(np.uint8), random.random((40, 50)) < 0.5
    predictor = Predictor(create("ntrm-control", SKIN, width=0.125).describe(window=32), "cpu", batch=4)
    keep(Picture("skin-pas-A", image, truth, Resolution.square(6.7), there), predictor, tmp_path)
    section = read_section(tmp_path, "skin-pas-A", SKIN, SKIN_PAS)
    assert (section.truth.mask == truth).all()
    assert (section.there == there).all()
    assert section.nodes.shape == truth.shape
    assert section.pixels.sum() == truth.size
