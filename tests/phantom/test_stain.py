"""Light through dyes and ink."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.render import Artefacts, render
from ntrm.phantom.stain import Ink, Stain

SEEDS = st.integers(0, 2**63)


@given(st.floats(0, 2), st.floats(0, 2), SEEDS, SEEDS)
def test_light_follows_beer_and_lambert(haematoxylin, eosin, patient, laboratory):
    stain = Stain.draw(patient, laboratory)
    got = stain.transmit(np.full((1, 1), haematoxylin, np.float32), np.full((1, 1), eosin, np.float32))[0, 0]
    for channel in range(3):
        of_h = stain.haematoxylin[channel] / sum(v * v for v in stain.haematoxylin) ** 0.5 * stain.haematoxylin_strength
        of_e = stain.eosin[channel] / sum(v * v for v in stain.eosin) ** 0.5 * stain.eosin_strength
        expected = stain.illumination[channel] * 10 ** -(haematoxylin * of_h + eosin * of_e)
        assert got[channel] == pytest.approx(expected, rel=1e-4)


MPP = 6.7


def excision():
    """Keratin on top, dermis below with a hole, glass around."""
    mask = np.full((200, 240), SKIN.index("BKG"), dtype=np.uint8)
    mask[40:160, 40:200] = SKIN.index("RET")
    mask[40:50, 40:200] = SKIN.index("KER")
    mask[90:110, 110:130] = SKIN.index("BKG")
    return mask


def test_ink_lies_on_the_cut_margin_only_and_is_drawn(seed):
    mask = excision()
    darkened = Ink.on(mask, MPP, seed, 1.0).transmission(PhantomGrid(mask.shape, MPP, (0.0, 0.0))).min(axis=2) < 0.95
    assert darkened.any()
    outline = np.ones(mask.shape, bool)
    outline[40:160, 40:200] = False
    from_margin_px = ndimage.distance_transform_edt(outline) + ndimage.distance_transform_edt(~outline)
    assert from_margin_px[darkened].max() * MPP < 60
    assert not darkened[34:46, 60:180].any(), "the skin's own surface is not a margin"
    assert not darkened[85:115, 105:135].any(), "a hole is not a margin"
    clean, marked = (render(mask, MPP, seed, stain=Stain(), artefacts=Artefacts(ink=share)) for share in (0.0, 1.0))
    changed = (clean != marked).any(axis=2)
    assert 0 < changed.mean() < 0.2
    assert marked[changed].mean() < clean[changed].mean() - 5
