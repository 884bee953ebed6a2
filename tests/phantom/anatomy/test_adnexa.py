"""Adnexa: inside the specimen, away from tumours, painted over dermis only."""

from dataclasses import replace

import numpy as np

from ntrm.phantom.anatomy.adnexa import AdnexaDetails, AdnexaParameters, draw_adnexa
from ntrm.phantom.anatomy.frame import EPI, FOL, GLD, HYP, INF, KER, PAP, RET
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import paint_mask

MANY = AdnexaParameters(follicles_per_mm=4.0, glands_per_mm=4.0)


def test_adnexa_lie_inside_and_are_spared(seed):
    adnexa = draw_adnexa(seed, 3000.0, 2000.0, lambda body: body.u_um > 0, MANY)
    halos, glands, follicles, plugs = (structure.bodies for structure in adnexa)
    assert follicles
    assert glands
    for body in (*follicles, *glands):
        assert 0 < body.u_um < 4500
    assert all(gland.v_um < 1800 for gland in glands)
    assert len(plugs) == sum(shaft.top_v_um < MANY.mouth_um for shaft in follicles)
    assert len(halos) <= len(glands)


def test_adnexa_change_dermis_and_epidermis_only(seed):
    pixels = 0
    for number in range(seed, seed + 3):
        plan = draw_plan(number, "IEC")
        bare = replace(plan, adnexa=())
        there, before = paint_mask(plan, 26.8), paint_mask(bare, 26.8)
        # The fat's edge is cut more raggedly than a follicle in its place, so background may change beside it.
        changed = (there != before) & np.isin(there, (FOL, GLD))
        assert np.isin(before[changed], (RET, PAP, INF, HYP, EPI, KER, 8)).all(), f"seed {number}"
        pixels += changed.sum()
    assert pixels > 0


def test_details_belong_to_the_same_adnexa(seed):
    where = (seed, 3000.0, 2000.0, lambda body: True, MANY)
    plain = {structure.name: structure.bodies for structure in draw_adnexa(*where)}
    details = AdnexaDetails(muscle_fraction=1.0, duct_fraction=1.0)
    fine = {structure.name: structure for structure in draw_adnexa(*where, details)}
    shafts = plain["follicles"]
    assert fine["follicles"].bodies[: len(shafts)] == shafts
    assert set(fine["coils"].bodies) < set(plain["glands"])
    assert len(fine["muscles"].bodies) == len(shafts)
    glands = [gland for gland in plain["glands"] if gland not in fine["coils"].bodies]
    for lobule in fine["sebaceous glands"].bodies:
        nearest = min(
            np.hypot(lobule.u_um - gland.u_um, lobule.v_um - gland.v_um) / gland.radius_um for gland in glands
        )
        assert nearest < 1.3
    for duct in fine["ducts"].bodies:
        assert duct.top_v_um >= 0
        assert any(duct.top_v_um < coil.v_um for coil in fine["coils"].bodies)
