"""Each carcinoma keeps to its ways."""

import numpy as np

from ntrm.phantom.anatomy.frame import Axis
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin
from ntrm.phantom.anatomy.tumours import Invasive, add_mass, envelope

AXIS = Axis(3000.0)


def test_the_mass_stays_under_its_dome_and_is_inflamed_around(seed):
    before = normal_skin(seed, AXIS, SkinParameters())
    dome = envelope(AXIS, 0.0, 1200.0)
    after = add_mass(before, seed, AXIS, dome, 900.0, Invasive())
    assert (after.mass[dome == 0] == 0).all()
    assert (after.mass[dome > 0] > 0).all()
    just_outside = (np.abs(AXIS.u) > 1200.0) & (np.abs(AXIS.u) < 1280.0)
    assert (after.inflammation[just_outside] > 0).all()
    assert (after.inflammation[dome > 0.5] > 0).all()
