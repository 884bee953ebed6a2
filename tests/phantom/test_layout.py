"""Whole sections: the same at every resolution and on every run, with the ground truth that fits the picture."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.phantom.small import small

from ntrm.core.errors import UsageError
from ntrm.core.labels import CANCERS, SKIN
from ntrm.phantom.anatomy.frame import BCC, BKG, IEC, RET, SCC
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import (
    GRID_UM,
    IN_SITU_ONLY,
    NO_MARGIN,
    NO_SURFACE,
    NO_TUMOUR,
    PaintedSection,
    lay_slide,
    layout,
    measure,
    paint_section,
)
from ntrm.phantom.tissues import labels_of
from ntrm.phantom.versions import VERSIONS


@pytest.mark.parametrize(("version", "cancer"), [("1", None), ("2", "none")])
def test_resolutions_are_views_of_one_section(version, cancer, seed):
    plan = draw_plan(small(seed, cancer, among=12), cancer, version)
    coarse = paint_section(plan, 6.7).fine
    for factor in (2, 3):
        fine = paint_section(plan, 6.7 / factor).fine
        assert fine.shape == tuple(factor * side for side in coarse.shape)
        middle = fine[factor // 2 :: factor, factor // 2 :: factor]
        assert np.mean((middle == coarse)[coarse != BKG]) > 0.93


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cancer", CANCERS)
def test_the_cancer_asked_for_is_there(cancer, version, seed):
    for number in range(seed, seed + 2):
        plan = draw_plan(number, cancer, version)
        assert plan.cancer == cancer
        assert (paint_section(plan, 13.4).mask == SKIN.index(cancer)).any(), f"seed {number}"


@pytest.mark.parametrize("number", range(2))
def test_ground_truth_fits_the_picture(seed, number):
    section = layout(seed + number)
    truth, specimen = section.truth, draw_plan(seed + number).specimen
    assert truth.cancers == tuple(name for name in CANCERS if (section.mask == SKIN.index(name)).any())
    for value, reason in (
        (truth.surface_deg, truth.surface_reason),
        (truth.clearance_um, truth.clearance_reason),
        (truth.depth_um, truth.depth_reason),
    ):
        assert (value is None) == (reason in (NO_SURFACE, NO_MARGIN, IN_SITU_ONLY))
    if truth.surface_deg is not None:
        # The arc faces this way in its middle; the warp and an uneven end turn the mean a little.
        turn = (truth.surface_deg - specimen.frame.angle_deg + 180.0) % 360.0 - 180.0
        assert abs(turn) < 25.0
    if truth.depth_um is not None:
        assert 0.0 < truth.depth_um < 2.0 * specimen.depth_um + 1500.0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cancer", [*CANCERS, "none"])
def test_a_section_is_tissue_on_background_of_which_the_far_part_need_not_be_painted(cancer, version, seed):
    plan = draw_plan(seed, cancer, version)
    section = paint_section(plan, 20.1)
    mask = section.mask
    edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    assert np.mean(edge == BKG) > 0.9
    assert 0.02 < np.mean(mask != BKG) < 0.98
    everywhere = replace(plan, outline=replace(plan.outline, reach_um=1e6))
    np.testing.assert_array_equal(section.fine, paint_section(everywhere, 20.1).fine)
    np.testing.assert_array_equal(labels_of(section.fine), mask)


@pytest.mark.parametrize(
    ("mpp", "cancer", "match"),
    [(0.01, "BCC", "µm per pixel"), (math.nan, "BCC", "µm per pixel"), (6.7, "melanoma", "BCC, SCC, IEC")],
)
def test_impossible_sections_are_refused(mpp, cancer, match):
    with pytest.raises(UsageError, match=match):
        layout(1, mpp, cancer=cancer)


def test_pieces_lie_apart_and_inside_their_boxes(seed):
    slide = lay_slide(seed, 6.7, "IEC", pieces=2)
    covered = np.zeros(slide.mask.shape, dtype=int)
    for piece in slide.pieces:
        top, left, height, width = (
            round(v / GRID_UM) for v in (piece.top_um, piece.left_um, piece.height_um, piece.width_um)
        )
        covered[top : top + height, left : left + width] += 1
    assert covered.max() == 1
    assert (slide.mask[covered == 0] == BKG).all()
    assert [piece.number for piece in slide.pieces] == [1, 2]
    assert slide.pieces[0].truth != slide.pieces[1].truth


SIDE = 60


def block(tissue, rows: slice, columns: slice, turns: int = 0, **flags) -> PaintedSection:
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
    return PaintedSection(mask, 10.0, depth, uncut, **flags)


@pytest.mark.parametrize(("turns", "facing"), [(0, 0.0), (3, 90.0), (2, 180.0), (1, 270.0)])
def test_surface_direction(turns, facing):
    assert measure(block(BCC, slice(20, 25), slice(20, 25), turns)).surface_deg == facing


@given(top=st.integers(10, 45), left=st.integers(5, 50), height=st.integers(1, 5), width=st.integers(1, 5))
def test_clearance_and_depth_of_a_rectangle(top, left, height, width):
    truth = measure(block(SCC, slice(top, top + height), slice(left, left + width)))
    assert truth.clearance_um == 10.0 * min(left - 5, 55 - (left + width), 50 - (top + height))
    assert truth.depth_um == pytest.approx(10.0 * (top + height - 1 - 9), abs=0.1)
    assert truth.cancers == ("SCC",)


def test_what_cannot_be_told_says_why():
    where = (slice(20, 25), slice(20, 25))
    assert measure(block(BCC, slice(40, 50), slice(20, 25))).clearance_um == 0.0  # at the cut
    in_situ = measure(block(IEC, slice(10, 14), slice(20, 30)))
    assert (in_situ.depth_um, in_situ.depth_reason, in_situ.clearance_um) == (None, IN_SITU_ONLY, 150.0)
    hidden = measure(block(BCC, *where, has_surface=False))
    assert (hidden.surface_deg, hidden.depth_um, hidden.clearance_um) == (None, None, None)
    assert {hidden.surface_reason, hidden.depth_reason, hidden.clearance_reason} == {NO_SURFACE}
    pieces = measure(block(BCC, *where, has_margin=False))
    assert (pieces.clearance_um, pieces.clearance_reason) == (None, NO_MARGIN)
    assert pieces.depth_um is not None
    healthy = measure(block(RET, *where))
    assert (healthy.cancers, healthy.clearance_reason) == ((), NO_TUMOUR)
