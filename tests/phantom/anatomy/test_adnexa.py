"""Adnexa: inside the specimen, away from tumours, painted over dermis only."""

from dataclasses import replace

import numpy as np

from ntrm.phantom.anatomy.adnexa import AdnexaParameters, draw_adnexa
from ntrm.phantom.anatomy.frame import EPI, FOL, GLD, HYP, INF, KER, PAP, RET
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import paint_section

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
        there, before = paint_section(plan, 26.8).mask, paint_section(bare, 26.8).mask
        # The fat's edge is cut more raggedly than a follicle in its place, so background may change beside it.
        changed = (there != before) & np.isin(there, (FOL, GLD))
        assert np.isin(before[changed], (RET, PAP, INF, HYP, EPI, KER, 8)).all(), f"seed {number}"
        pixels += changed.sum()
    assert pixels > 0
