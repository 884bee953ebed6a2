"""Which sides of an outline are surface and which were cut, on hand-made blocks."""

import numpy as np
import pytest
from tests.regions.blocks import BCC, BOTTOM, KER, LEFT, RIGHT, SCC, TOP, block, measured

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.regions import outline as module
from ntrm.regions.outline import trace_outline
from ntrm.regions.runs import runs_of

MPP = Resolution.square(6.7)


def test_the_surface_is_the_top_of_a_block_and_the_rest_is_cut():
    outline = trace_outline(runs_of(block()), SKIN, MPP)
    assert set(outline.outer[outline.is_surface][:, 0]) == {TOP - 1}
    assert sorted(outline.outer[outline.is_surface][:, 1]) == list(range(LEFT, RIGHT))
    assert (~outline.is_surface).sum() == (RIGHT - LEFT) + 2 * (BOTTOM - TOP)
    assert np.allclose(np.hypot(*outline.normals.T), 1.0)
    assert outline.fragments == 1


def test_fine_masks_are_thinned_and_keep_their_measures(monkeypatch):
    mask = block()
    mask[40:50, 60:80] = BCC
    fine = np.kron(mask, np.ones((3, 3), dtype=np.uint8))
    monkeypatch.setattr(module, "MOST_PIXELS", mask.size)
    thinned = measured(fine, SKIN, Resolution.square(6.7 / 3))
    assert thinned.outline.stride == 3
    plain = measured(mask, SKIN, MPP)
    for one, other in ((thinned.depth, plain.depth), (thinned.deep, plain.deep)):
        assert one.value == pytest.approx(other.value, abs=0.0067)


def test_a_pearl_at_the_cut_is_no_surface():
    mask = block()
    mask[30:80, 120:RIGHT] = SCC
    plain = trace_outline(runs_of(mask), SKIN, MPP)
    mask[50:58, RIGHT - 6 : RIGHT] = KER
    assert np.array_equal(trace_outline(runs_of(mask), SKIN, MPP).is_surface, plain.is_surface)
