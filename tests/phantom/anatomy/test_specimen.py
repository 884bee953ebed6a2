"""Specimens: each biopsy in its range of sizes, and the damage done to them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import label

from ntrm.core.labels import CANCERS
from ntrm.phantom.anatomy.frame import BKG, HYP, KER, RET
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.anatomy.specimen import SAMPLING, SpecimenParameters, draw_specimen
from ntrm.phantom.layout import paint_section


@pytest.mark.parametrize("cancer", CANCERS)
def test_sizes_stay_in_the_range_of_the_biopsy(seed, cancer):
    for number in range(seed, seed + 40):
        specimen = draw_specimen(number, SAMPLING[cancer], SpecimenParameters())
        scale = SAMPLING[cancer].size
        low, high = specimen.biopsy.length
        assert low <= 2 * specimen.half_um / scale <= high
        low, high = specimen.biopsy.thickness
        assert low <= specimen.depth_um / scale <= high
        # The arc must not close on itself, or one pixel would be two places of the skin.
        assert abs(specimen.frame.radius_um) > specimen.half_um * 2 / np.pi
        assert abs(specimen.frame.radius_um) > 2 * specimen.depth_um


def test_damage_only_removes_tissue_or_adds_loose_bits(seed):
    removed = 0
    for number in range(seed, seed + 3):
        plan = draw_plan(number)
        damaged, whole = paint_section(plan, 26.8).mask, paint_section(replace(plan, damage=()), 26.8).mask
        changed = damaged != whole
        added = changed & (whole == BKG)
        assert (damaged[changed & ~added] == BKG).all(), f"seed {number}"
        assert np.isin(damaged[added], (KER, RET, HYP)).all(), f"seed {number}"
        removed += (changed & ~added).sum()
    assert removed > 0


def test_a_fragmented_section_is_in_pieces():
    kind = SpecimenParameters()
    fragmented = (seed for seed in range(300) if draw_specimen(seed, SAMPLING["IEC"], kind).fragmented)
    for seed in (next(fragmented), next(fragmented)):
        pieces, _ = label(paint_section(draw_plan(seed, "IEC"), 20.1).mask != BKG)
        sizes = np.sort(np.bincount(pieces.ravel())[1:])
        assert sizes[-2] > 0.01 * sizes.sum(), f"seed {seed}"
