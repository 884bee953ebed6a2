"""Keratin, compact and woven, and ulcers under their crust."""

from dataclasses import replace

import pytest
from scipy.ndimage import minimum_filter1d

from ntrm.phantom.anatomy.epithelium import SurfaceParameters, draw_surface
from ntrm.phantom.anatomy.frame import BKG, EPI, INF, KER, Frame, PhantomGrid, Skin
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin, paint_dermis, paint_surface
from ntrm.phantom.anatomy.specimen import NORMAL, SAMPLING, SpecimenParameters, draw_specimen
from ntrm.phantom.tissues import KINDS

WOVEN = SurfaceParameters(woven=1.0, woven_fraction=(1.0, 1.0), ulcer=0.0)
ULCER = SurfaceParameters(woven=0.0, ulcer=1.0, ulcer_half_width=(500.0, 500.0))


def painted(seed, kind):
    """A strip of skin 8 µm/px with its surface, the layers before and after, and where there is air."""
    specimen = draw_specimen(seed, SAMPLING[NORMAL], SpecimenParameters())
    before = normal_skin(seed, specimen.axis, SkinParameters(bare_fraction=(0.0, 0.0)))
    strata, surface = draw_surface(seed, specimen, before, (), kind)
    half = int(specimen.half_um // 8)
    grid = PhantomGrid((100, 2 * half), 8.0, (-400.0, -8.0 * half))
    skin = Skin(grid, Frame(seed, 0.0, 1e6, warp_um=0.0), specimen.axis, strata.lift)
    paint_dermis(skin, strata)
    air = paint_surface(skin, strata)
    surface.paint(skin)
    skin.mask[air] = BKG
    return skin, before, strata, surface


def test_woven_keratin_lies_over_a_compact_layer_and_takes_more_room(seed):
    skin, before, strata, _ = painted(seed, replace(WOVEN, compact=(12.0, 12.0), growth=(50.0, 50.0)))
    woven = (skin.kinds == KINDS["basket weave"]) & (skin.mask == KER)
    assert woven.any()
    assert (-skin.v[woven]).min() > 12.0
    assert (strata.keratin >= before.keratin).all()
    assert strata.keratin.mean() > before.keratin.mean() + 10.0


@pytest.mark.failed_once(348449402, 1545933385)  # a column at the very rim of the ulcer
def test_an_ulcer_has_a_crust_and_no_epidermis(seed):
    skin, before, strata, surface = painted(seed, ULCER)
    crust = (skin.kinds == KINDS["crust"]) & (skin.mask == INF)
    assert crust.any()
    assert (skin.v[crust] < 0).all()
    # The border of the epidermis sways by less than 150 µm.
    lost = skin.along(minimum_filter1d(surface.ulcer, 301)) > 0.999
    assert not (skin.mask == EPI)[lost].any()
    within = surface.ulcer > 0.999
    assert (strata.epidermis[within] <= 0.001 * before.epidermis[within]).all()
    assert strata.inflammation[within].min() >= 0.999 * ULCER.inflamed[0]
