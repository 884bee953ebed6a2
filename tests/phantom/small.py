"""Sections that do not take long to draw."""

import math

from ntrm.phantom.anatomy.section_plan import draw_plan


def small(seed, cancer=None, among=6):
    """The seed of the smallest of a few sections, to paint and to look at in less time."""
    return min(range(seed, seed + among), key=lambda each: math.prod(draw_plan(each, cancer).box_um[2:]))
