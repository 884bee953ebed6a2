"""Truth against sections so simple that it can be told by hand, and against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.phantom.anatomy.frame import BCC, BKG, IEC, RET, SCC
from ntrm.phantom.anatomy.truth import IN_SITU_ONLY, NO_MARGIN, NO_SURFACE, NO_TUMOUR, Survey, measure

SIDE = 60


def block(tissue, rows: slice, columns: slice, turns: int = 0, **flags) -> Survey:
    """A box of dermis, surface along row 10, cut at row 50 and at columns 5 and 55; µm per pixel 10."""
    depth = np.broadcast_to((np.arange(SIDE)[:, None] - 9.5) * 10.0, (SIDE, SIDE)).astype(np.float32)
    uncut = np.zeros((SIDE, SIDE), dtype=bool)
    uncut[:50, 5:55] = True
    mask = np.full((SIDE, SIDE), BKG)
    mask[10:50, 5:55] = RET
    mask[rows, columns] = tissue
    turned = (np.rot90(a, turns).copy() for a in (mask, depth, uncut))
    flags = {"has_surface": True, "has_margin": True} | flags
    mask, depth, uncut = turned
    return Survey(mask, 10.0, depth, uncut, **flags)


@pytest.mark.parametrize(("turns", "facing"), [(0, 0.0), (3, 90.0), (2, 180.0), (1, 270.0)])
def test_surface_direction(turns, facing):
    assert measure(block(BCC, slice(20, 25), slice(20, 25), turns)).surface_deg == facing


@settings(deadline=None)
@given(top=st.integers(10, 45), left=st.integers(5, 50), height=st.integers(1, 5), width=st.integers(1, 5))
def test_clearance_and_depth_of_a_rectangle(top, left, height, width):
    truth = measure(block(SCC, slice(top, top + height), slice(left, left + width)))
    assert truth.clearance_um == 10.0 * min(left - 5, 55 - (left + width), 50 - (top + height))
    assert truth.depth_um == pytest.approx(10.0 * (top + height - 1 - 9), abs=0.1)
    assert truth.cancers == ("SCC",)


def test_tears_and_the_natural_surface_are_no_margin():
    survey = block(BCC, slice(10, 14), slice(28, 32))
    survey.mask[12:40, 33:36] = BKG
    assert measure(survey).clearance_um == 230.0


def test_tumour_at_the_cut_has_no_clearance():
    assert measure(block(BCC, slice(40, 50), slice(20, 25))).clearance_um == 0.0


def test_in_situ_has_clearance_but_no_depth():
    truth = measure(block(IEC, slice(10, 14), slice(20, 30)))
    assert (truth.depth_um, truth.depth_reason) == (None, IN_SITU_ONLY)
    assert truth.clearance_um == 150.0


def test_what_cannot_be_told_says_why():
    where = (slice(20, 25), slice(20, 25))
    hidden = measure(block(BCC, *where, has_surface=False))
    assert (hidden.surface_deg, hidden.depth_um, hidden.clearance_um) == (None, None, None)
    assert {hidden.surface_reason, hidden.depth_reason, hidden.clearance_reason} == {NO_SURFACE}
    pieces = measure(block(BCC, *where, has_margin=False))
    assert (pieces.clearance_um, pieces.clearance_reason) == (None, NO_MARGIN)
    assert pieces.depth_um is not None
    healthy = measure(block(RET, *where))
    assert (healthy.cancers, healthy.clearance_reason) == ((), NO_TUMOUR)


def test_as_dict_is_plain():
    document = measure(block(BCC, slice(20, 25), slice(20, 25))).as_dict()
    assert document["cancers"] == ["BCC"]
    assert document["depth_um"] == 150.0
    assert document["clearance_reason"] == ""
