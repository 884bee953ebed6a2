"""Each carcinoma keeps to its ways."""

import numpy as np

from ntrm.core.counts import boundary_counts, boundary_share
from ntrm.phantom.anatomy.frame import BCC, EPI, IEC, INF, KER, SCC, Axis
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.anatomy.tumours import Invasive, add_mass, envelope
from ntrm.phantom.layout import paint_mask

AXIS = Axis(3000.0)


def borders(seed: int, cancer: str) -> np.ndarray:
    """Boundary shares over a few sections of one cancer at 20.1 µm/px."""
    masks = [paint_mask(draw_plan(seed + i, cancer), 20.1) for i in range(5)]
    return boundary_share(sum(boundary_counts(mask, 12) for mask in masks))


def test_the_mass_stays_under_its_dome_and_is_inflamed_around(seed):
    before = normal_skin(seed, AXIS, SkinParameters())
    dome = envelope(AXIS, 0.0, 1200.0)
    after = add_mass(before, seed, AXIS, dome, 900.0, Invasive())
    assert (after.mass[dome == 0] == 0).all()
    assert (after.mass[dome > 0] > 0).all()
    just_outside = (np.abs(AXIS.u) > 1200.0) & (np.abs(AXIS.u) < 1280.0)
    assert (after.inflammation[just_outside] > 0).all()
    assert (after.inflammation[dome > 0.5] > 0).all()


def test_in_situ_lies_between_keratin_and_dermis(seed):
    share = borders(seed, "IEC")[IEC]
    assert share[KER] > 0.15
    assert share[INF] > 0.1
    assert share[[BCC, SCC]].sum() == 0


def test_squamous_carcinoma_meets_keratin_and_inflammation(seed):
    share = borders(seed, "SCC")[SCC]
    assert share[[KER, INF]].sum() > 0.7
    assert share[EPI] < 0.1


def test_nests_lie_in_inflamed_stroma(seed):
    share = borders(seed, "BCC")[BCC]
    assert share.argmax() == INF
    assert share[INF] > 0.5
