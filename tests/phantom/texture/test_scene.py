import numpy as np
import pytest
from tests.phantom.masks import blobs

from ntrm.core.labels import SKIN
from ntrm.phantom.texture.scene import survey
from ntrm.phantom.texture.table import texture_table


def halves(above, below, shape=(80, 60)):
    mask = np.full(shape, SKIN.index(above), dtype=np.uint8)
    mask[shape[0] // 2 :] = SKIN.index(below)
    return mask


@pytest.mark.parametrize("mpp", [1.34, 3.35, 6.7, 13.4])
def test_distances_and_shares_are_right_at_a_straight_border(mpp):
    rows = round(536 / mpp)
    geometry = survey(halves("KER", "PAP", (rows, 40)), mpp, texture_table(0.5))
    border, x = rows // 2 * mpp, np.array([100.0 if mpp > 3 else 25.0])
    for below in (-100.0, 60.0, 150.0):
        assert geometry.from_keratin_um.at(np.array([border + below]), x)[0] == pytest.approx(below, abs=15)
    near = geometry.dermis_near.at(np.array([border - 60, border, border + 60]), np.repeat(x, 3))
    assert near == pytest.approx([0, 0.5, 1], abs=0.06)


def test_connective_tissues_pass_into_each_other():
    geometry = survey(halves("PAP", "RET"), 6.7, texture_table(0.5))
    shares = geometry.papillary.at(np.arange(0.0, 536, 10), np.full(54, 200.0))
    assert shares[0] == pytest.approx(1)
    assert shares[-1] == pytest.approx(0)
    assert (np.diff(shares) <= 1e-6).all()
    assert 60 < 10 * ((shares > 0.05) & (shares < 0.95)).sum() < 160


def test_swapping_look_alikes_leaves_every_map(seed):
    mask = blobs(seed, (90, 70), 6.7, ["PAP", "RET", "BCC", "FOL", "INF", "KER", "BKG"])
    swap = np.arange(256, dtype=np.uint8)
    for one, other in (("PAP", "RET"), ("BCC", "FOL"), ("EPI", "SCC")):
        swap[SKIN.index(one)], swap[SKIN.index(other)] = SKIN.index(other), SKIN.index(one)
    before, after = (survey(m, 6.7, texture_table(1.0)) for m in (mask, swap[mask]))
    for name in ("from_keratin_um", "depth_um", "from_nest_um", "dermis_near", "cleft_near", "inflamed", "fatty"):
        assert np.array_equal(getattr(before, name).values, getattr(after, name).values), name


@pytest.mark.parametrize("name", SKIN.names)
def test_a_mask_of_one_tissue_can_be_measured(name):
    geometry = survey(np.full((9, 7), SKIN.index(name), dtype=np.uint8), 6.7, texture_table(0.5))
    assert all(np.isfinite(coarse.values).all() for coarse in vars(geometry).values())
