import numpy as np
import pytest
from tests.slide.pictures import BROWN, HAEMATOXYLIN, MPP, PENS, clean, marked, skin_mask, stained

from ntrm.phantom.artefacts import Artefacts
from ntrm.phantom.render import render
from ntrm.slide.pen import find_pen


@pytest.mark.parametrize("pen", PENS)
def test_finds_a_stroke_over_glass_and_over_tissue(seed, pen):
    stroke = np.zeros((220, 330), dtype=bool)
    stroke[80:110] = True
    found = find_pen(marked(clean(seed), slice(80, 110), slice(0, 330), pen), MPP)
    assert found[stroke].mean() > 0.9
    assert found[:70].mean() < 0.01
    assert found[120:].mean() < 0.01


def test_no_pen_on_a_clean_section_in_either_stain(seed):
    assert not find_pen(clean(seed), MPP).any()
    assert not find_pen(stained(seed, HAEMATOXYLIN, BROWN), MPP).any()


def test_surgical_ink_on_the_margin_is_no_pen(seed):
    inked = render(skin_mask(), MPP, seed, artefacts=Artefacts(ink=1.0))
    assert find_pen(inked, MPP).mean() < 0.002
