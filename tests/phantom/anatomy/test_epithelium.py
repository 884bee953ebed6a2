"""Epidermis from thin to acanthotic, its islands and its keratin, and ulcers under their crust."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import minimum_filter1d

from ntrm.phantom.anatomy.bodies import Structure
from ntrm.phantom.anatomy.epithelium import (
    EpidermisParameters,
    Net,
    SurfaceParameters,
    draw_islands,
    draw_surface,
    vary_epidermis,
)
from ntrm.phantom.anatomy.frame import BKG, EPI, INF, KER, RET, Axis, Frame, PhantomGrid, Skin
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin, paint_dermis, paint_surface
from ntrm.phantom.anatomy.specimen import NORMAL, SAMPLING, SpecimenParameters, draw_specimen
from ntrm.phantom.anatomy.tumours import InSitu, add_in_situ
from ntrm.phantom.tissues import KINDS

AXIS = Axis(3000.0)


def thickness(seed, **chances):
    """Of an epidermis with these chances and without."""
    strata = normal_skin(seed, AXIS, SkinParameters())
    kind = EpidermisParameters(**{"atrophic": 0.0, "acanthotic": 0.0, "irregular": 0.0, **chances})
    return vary_epidermis(strata, seed, AXIS, kind).epidermis, strata.epidermis


def test_an_atrophic_epidermis_is_thin_and_flat(seed):
    changed, before = thickness(seed, atrophic=1.0)
    assert changed.min() >= 18.0
    assert changed.mean() <= 32.0
    assert changed.std() < 0.5 * before.std()


def test_a_net_is_cords_within_its_ellipse(seed):
    grid = PhantomGrid((300, 300), 4.0, (-600.0, -600.0))
    skin = Skin(grid, Frame(seed, 0.0, 1e6, warp_um=0.0), Axis(800.0), np.zeros(1601, dtype=np.float32))
    skin.mask[:] = RET
    Structure("net", [Net(0.0, 0.0, 300.0, 150.0, cord=0.5)], EPI, over=(RET,)).paint(skin)
    share = (skin.mask == EPI)[113:187, 75:225].mean()
    assert 0.1 < share < 0.7
    assert not (skin.mask == EPI)[:60].any()
    assert not (skin.mask == BKG).any()


@pytest.mark.parametrize("tumour", [False, True])
def test_islands_lie_below_the_epidermis_and_not_below_a_tumour_of_it(tumour, seed):
    specimen = draw_specimen(seed, SAMPLING[NORMAL], SpecimenParameters())
    strata = normal_skin(seed, specimen.axis, SkinParameters())
    if tumour:
        strata = add_in_situ(strata, seed, specimen.axis, np.ones_like(specimen.axis.u), InSitu())
    kind = EpidermisParameters(cut_ridges=1.0, cut_ridges_per_mm=(6.0, 6.0), tangential=1.0, cyst=1.0)
    islands = draw_islands(seed, specimen, strata, kind)
    bodies = [body for structure in islands for body in structure.bodies]
    assert bool(bodies) != tumour
    for ridge in islands[0].bodies:
        assert ridge.v_um - ridge.radius_um > specimen.axis.value(strata.epidermis, ridge.u_um)
    for cyst, content in zip(islands[2].bodies, islands[3].bodies, strict=True):
        assert 0.5 * cyst.radius_um <= content.radius_um < cyst.radius_um


WOVEN = SurfaceParameters(woven=1.0, woven_fraction=(1.0, 1.0), ulcer=0.0)
ULCER = SurfaceParameters(woven=0.0, ulcer=1.0, ulcer_half_width=(500.0, 500.0))


def painted_surface(seed, kind):
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
    skin, before, strata, _ = painted_surface(seed, replace(WOVEN, compact=(12.0, 12.0), growth=(50.0, 50.0)))
    woven = (skin.kinds == KINDS["basket weave"]) & (skin.mask == KER)
    assert woven.any()
    assert (-skin.v[woven]).min() > 12.0
    assert (strata.keratin >= before.keratin).all()
    assert strata.keratin.mean() > before.keratin.mean() + 10.0


@pytest.mark.failed_once(348449402, 1545933385)  # a column at the very rim of the ulcer
def test_an_ulcer_has_a_crust_and_no_epidermis(seed):
    skin, before, strata, surface = painted_surface(seed, ULCER)
    crust = (skin.kinds == KINDS["crust"]) & (skin.mask == INF)
    assert crust.any()
    assert (skin.v[crust] < 0).all()
    # The border of the epidermis sways by less than 150 µm.
    lost = skin.along(minimum_filter1d(surface.ulcer, 301)) > 0.999
    assert not (skin.mask == EPI)[lost].any()
    within = surface.ulcer > 0.999
    assert (strata.epidermis[within] <= 0.001 * before.epidermis[within]).all()
    assert strata.inflammation[within].min() >= 0.999 * ULCER.inflamed[0]
