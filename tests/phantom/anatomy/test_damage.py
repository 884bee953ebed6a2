"""Damage takes tissue away inside and adds bits outside, nothing else."""

from dataclasses import replace

import numpy as np
from scipy.ndimage import label

from ntrm.phantom.anatomy.damage import Damage
from ntrm.phantom.anatomy.frame import BKG, HYP, KER, RET
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.anatomy.specimen import SpecimenParameters, draw_specimen
from ntrm.phantom.layout import paint_mask

NONE = Damage((), (), (), (), RET)


def test_damage_only_removes_tissue_or_adds_loose_bits(seed):
    removed = 0
    for number in range(seed, seed + 5):
        plan = draw_plan(number)
        damaged, whole = paint_mask(plan, 20.1), paint_mask(replace(plan, damage=NONE), 20.1)
        changed = damaged != whole
        added = changed & (whole == BKG)
        assert (damaged[changed & ~added] == BKG).all(), f"seed {number}"
        assert np.isin(damaged[added], (KER, RET, HYP)).all(), f"seed {number}"
        removed += (changed & ~added).sum()
    assert removed > 0


def test_a_fragmented_section_is_in_pieces():
    seeds = [seed for seed in range(300) if draw_specimen(seed, "IEC", SpecimenParameters()).fragmented][:3]
    assert seeds
    for seed in seeds:
        pieces, _ = label(paint_mask(draw_plan(seed, "IEC"), 20.1) != BKG)
        sizes = np.sort(np.bincount(pieces.ravel())[1:])
        assert sizes[-2] > 0.01 * sizes.sum(), f"seed {seed}"
