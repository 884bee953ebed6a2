"""Epidermis from thin to acanthotic, and its islands."""

import numpy as np
import pytest

from ntrm.phantom.anatomy.bodies import Structure
from ntrm.phantom.anatomy.epithelium import EpidermisParameters, Net, draw_islands, vary_epidermis
from ntrm.phantom.anatomy.frame import BKG, EPI, RET, Axis, Frame, PhantomGrid, Skin
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin
from ntrm.phantom.anatomy.specimen import NORMAL, SAMPLING, SpecimenParameters, draw_specimen
from ntrm.phantom.anatomy.tumours import InSitu, add_in_situ

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
