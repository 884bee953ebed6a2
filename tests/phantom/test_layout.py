"""Whole sections: the same at every resolution and on every run, and with the truth that fits the picture."""

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.phantom.small import small

from ntrm.core.errors import UsageError
from ntrm.core.labels import CANCERS, SKIN
from ntrm.phantom.anatomy.section_plan import CANCER_WEIGHTS, draw_cancer, draw_plan
from ntrm.phantom.anatomy.specimen import SpecimenParameters, draw_specimen
from ntrm.phantom.anatomy.truth import IN_SITU_ONLY, NO_MARGIN, NO_SURFACE
from ntrm.phantom.layout import layout, paint_mask

BKG = SKIN.index("BKG")


def majority(mask: np.ndarray, factor: int) -> np.ndarray:
    height, width = (side // factor for side in mask.shape)
    blocks = mask.reshape(height, factor, width, factor)
    return np.stack([(blocks == label).sum(axis=(1, 3)) for label in range(len(SKIN))]).argmax(axis=0)


@pytest.mark.parametrize(("fine", "factor"), [(3.35, 2), (1.34, 5)])
def test_resolutions_are_views_of_one_section(seed, fine, factor):
    seed = small(seed, among=12)  # the finest view has millions of pixels
    coarse, sharp = layout(seed), layout(seed, fine)
    assert sharp.mask.shape == tuple(factor * side for side in coarse.mask.shape)
    assert sharp.truth == coarse.truth
    assert np.mean(majority(sharp.mask, factor) == coarse.mask) >= 0.98
    tissue = coarse.mask != BKG
    assert np.mean((majority(sharp.mask, factor) == coarse.mask)[tissue]) >= 0.97


def test_another_process_draws_the_same(seed):
    """Also with another number of threads."""
    program = (
        "import hashlib, json; from ntrm.phantom.layout import layout; "
        f"s = layout({seed}); print(json.dumps([hashlib.sha256(s.mask.tobytes()).hexdigest(), s.truth.as_dict()]))"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    here = layout(seed)
    assert json.loads(done.stdout) == [hashlib.sha256(here.mask.tobytes()).hexdigest(), here.truth.as_dict()]


@pytest.mark.parametrize("cancer", CANCERS)
def test_the_cancer_asked_for_is_there(cancer, seed):
    plans = [draw_plan(number, cancer) for number in range(seed, seed + 5)]
    assert all(plan.cancer == cancer for plan in plans)
    there = [bool((paint_mask(plan, 13.4) == SKIN.index(cancer)).any()) for plan in plans]
    assert all(there), f"seeds from {seed}: {there}"


@pytest.mark.parametrize("number", range(4))
def test_truth_fits_the_picture(seed, number):
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


def test_a_section_is_tissue_on_background(seed):
    for number in range(seed, seed + 6):
        mask = paint_mask(draw_plan(number), 20.1)
        edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
        assert np.mean(edge == BKG) > 0.9, f"seed {number}"
        assert 0.02 < np.mean(mask != BKG) < 0.98, f"seed {number}"


def test_leaving_out_the_far_background_changes_nothing(seed):
    for number in range(seed, seed + 6):
        plan = draw_plan(number)
        everywhere = replace(plan, outline=replace(plan.outline, reach_um=1e6))
        np.testing.assert_array_equal(paint_mask(plan, 20.1), paint_mask(everywhere, 20.1), err_msg=f"seed {number}")


def test_cancers_are_drawn_in_the_ratio_of_the_real_dataset(seed):
    drawn = Counter(draw_cancer(number) for number in range(seed, seed + 2000))
    total = sum(CANCER_WEIGHTS.values())
    for name, weight in CANCER_WEIGHTS.items():
        share = weight / total
        assert drawn[name] / 2000 == pytest.approx(share, abs=5 * (share * (1 - share) / 2000) ** 0.5)


def test_rare_sections_say_what_cannot_be_told():
    kind = SpecimenParameters()
    hidden = next(seed for seed in range(500) if not draw_specimen(seed, "BCC", kind).has_surface)
    assert layout(hidden, cancer="BCC").truth.depth_reason == NO_SURFACE
    pieces = next(seed for seed in range(500) if draw_specimen(seed, "IEC", kind).fragmented)
    truth = layout(pieces, cancer="IEC").truth
    assert (truth.clearance_reason, truth.depth_reason) == (NO_MARGIN, IN_SITU_ONLY)


@pytest.mark.parametrize("mpp", [0.0, -1.0, 0.01, 200.0, math.nan])
def test_impossible_resolutions_are_refused(mpp):
    with pytest.raises(UsageError, match="resolution"):
        layout(1, mpp)


def test_unknown_cancer_is_refused():
    with pytest.raises(UsageError, match="BCC, SCC, IEC"):
        layout(1, cancer="melanoma")
