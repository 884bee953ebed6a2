import numpy as np
from scipy import ndimage

from ntrm.core.labels import SKIN
from ntrm.phantom.render import Artefacts, Ink, render
from ntrm.phantom.stain import Stain
from ntrm.phantom.texture.canvas import Window

MPP = 6.7


def excision():
    """Keratin on top, dermis below with a hole, glass around."""
    mask = np.full((200, 240), SKIN.index("BKG"), dtype=np.uint8)
    mask[40:160, 40:200] = SKIN.index("RET")
    mask[40:50, 40:200] = SKIN.index("KER")
    mask[90:110, 110:130] = SKIN.index("BKG")
    return mask


def inked(mask, seed, share):
    window = Window((0.0, 0.0), mask.shape, MPP)
    return Ink.on(mask, MPP, seed, share).transmission(window)


def test_ink_lies_on_the_cut_margin_only(seed):
    mask = excision()
    darkened = inked(mask, seed, 1.0).min(axis=2) < 0.95
    assert darkened.any()
    outline = np.ones(mask.shape, bool)
    outline[40:160, 40:200] = False
    from_margin_um = (
        np.where(outline, ndimage.distance_transform_edt(outline), ndimage.distance_transform_edt(~outline)) * MPP
    )
    assert from_margin_um[darkened].max() < 60
    assert not darkened[34:46, 60:180].any(), "the skin's own surface is not a margin"
    assert not darkened[85:115, 105:135].any(), "a hole is not a margin"


def test_more_of_the_margin_carries_more_ink(seed):
    mask = excision()
    amounts = [
        (1 - np.mean(inked(mask, seed, share))) if inked(mask, seed, share) is not None else 0
        for share in (0.0, 0.3, 1.0)
    ]
    assert amounts[0] == 0
    assert amounts[0] <= amounts[1] <= amounts[2]
    assert amounts[2] > 0


def test_render_draws_the_ink(seed):
    mask, stain = excision(), Stain()
    clean = render(mask, MPP, seed, stain=stain, artefacts=Artefacts.none())
    marked = render(mask, MPP, seed, stain=stain, artefacts=Artefacts(ink=1.0))
    changed = (clean != marked).any(axis=2)
    assert 0 < changed.mean() < 0.2
    assert marked[changed].mean() < clean[changed].mean() - 5
