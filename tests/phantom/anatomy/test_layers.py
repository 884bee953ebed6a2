"""Normal skin: the order of its layers and the helpers that draw it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.phantom.anatomy.frame import BKG, EPI, HYP, INF, KER, PAP, RET, Axis, Frame, PhantomGrid, Skin
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin, paint_dermis, paint_surface, stretches
from ntrm.phantom.noise import profile


@given(seed=st.integers(0, 2**32), fraction=st.floats(0.1, 0.9))
def test_stretches_cover_their_fraction(seed, fraction):
    on = stretches(profile(seed, np.arange(0.0, 20000.0, 10.0), 700.0), fraction)
    assert on.min() >= 0.0
    assert on.max() <= 1.0
    assert np.mean(on > 0) == pytest.approx(fraction, abs=0.01)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_layers_lie_in_their_order(seed):
    """Keratin and air above the surface; below it epidermis, papillary or inflamed dermis, reticular dermis, fat."""
    axis = Axis(900.0)
    strata = normal_skin(seed, axis, SkinParameters())
    skin = Skin(PhantomGrid((700, 30), 5.0, (-400.0, -75.0)), Frame(seed, 0.0, 1e6, warp_um=0.0), axis, strata.lift)
    paint_dermis(skin, strata)
    skin.mask[paint_surface(skin, strata)] = BKG
    above = skin.v < 0
    assert set(np.unique(skin.mask[above])) <= {BKG, KER}
    assert set(np.unique(skin.mask[~above])) <= {EPI, PAP, INF, RET, HYP}
    assert (skin.mask[(skin.v > 0) & (skin.v < 15)] == EPI).all()
    # Its lower border sways, and may sway through a papillary dermis that is thinner than that.
    thick = skin.along(strata.papillary) - 0.6 * skin.sway > 10
    assert np.isin(skin.mask[1:][(skin.mask[:-1] == EPI) & thick[1:]], (EPI, PAP, INF)).all()
    assert (skin.w[skin.mask == HYP] > 300).all()
