"""Elastosis, oedema and scars where they belong; vessels with a wall around their lumen."""

from dataclasses import replace

import numpy as np
import pytest

from ntrm.phantom.anatomy.dermis import DermisParameters, draw_dermis, draw_vessels
from ntrm.phantom.anatomy.frame import PAP, RET, Frame, PhantomGrid, Skin
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin, paint_dermis
from ntrm.phantom.anatomy.specimen import NORMAL, SAMPLING, SpecimenParameters, draw_specimen
from ntrm.phantom.tissues import KINDS

ALWAYS = DermisParameters(
    elastosis=1.0, elastosis_fraction=(1.0, 1.0), oedema=1.0, oedema_fraction=(1.0, 1.0), scar=1.0
)
NEVER = replace(ALWAYS, elastosis=0.0, oedema=0.0, scar=0.0)


@pytest.fixture
def specimen(seed):
    return draw_specimen(seed, SAMPLING[NORMAL], SpecimenParameters())


def painted(seed, specimen, kind):
    """A strip of skin with its changed dermis, and its layers."""
    strata = normal_skin(seed, specimen.axis, SkinParameters(inflamed_fraction=(0.0, 0.0)))
    grid = PhantomGrid((300, 400), 8.0, (-300.0, -1600.0))
    skin = Skin(grid, Frame(seed, 0.0, 1e6, warp_um=0.0), specimen.axis, strata.lift)
    paint_dermis(skin, strata)
    draw_dermis(seed, specimen, strata, kind).paint(skin, strata)
    return skin, strata


@pytest.mark.parametrize(("name", "labels"), [("elastosis", (PAP, RET)), ("oedema", (PAP,)), ("scar", (RET,))])
def test_changed_dermis_lies_where_it_belongs(seed, specimen, name, labels):
    skin, strata = painted(seed, specimen, replace(NEVER, **{name: 1.0}))
    there = skin.kinds == KINDS[name]
    assert there.any() or name == "scar"
    assert np.isin(skin.mask[there], labels).all()
    if name == "scar":
        assert skin.v[there].max(initial=0) < 1.5 * ALWAYS.scar_depth[1]
    if name == "elastosis":  # the upper dermis, but not the very edge of it
        depth = skin.v - skin.along_bent(strata.epidermis)
        assert (depth + 0.8 * skin.sway)[there].min() >= ALWAYS.spared
        assert depth[there].max() < 2000


def test_every_vessel_has_a_wall_around_its_lumen(seed, specimen):
    walls, lumina, blood, nerves = draw_vessels(seed, specimen, DermisParameters(nerves_per_mm2=2.0))
    inside = {(lumen.u_um, lumen.v_um): lumen for lumen in (*lumina.bodies, *blood.bodies)}
    assert len(inside) == len(walls.bodies) > 0
    for wall in walls.bodies:
        assert 0.5 <= inside[wall.u_um, wall.v_um].radius_um / wall.radius_um <= 0.85
        assert wall.v_um > 0
    assert walls.tissue is None
    assert nerves.tissue == RET
