"""Sections that do not take long to draw, and what identifies them."""

import hashlib
import json
import math
from dataclasses import asdict

from tests.phantom.masks import layered

from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import layout
from ntrm.phantom.render import render


def small(seed, cancer=None, among=6):
    """The seed of the smallest of a few sections, to paint and to look at in less time."""
    return min(range(seed, seed + among), key=lambda each: math.prod(draw_plan(each, cancer).box_um[2:]))


def drawn(seed):
    """Hashes of a section's mask and picture, and its ground truth."""
    section = layout(seed)
    pixels = (section.mask, render(layered(), 6.7, seed))
    return json.dumps([*(hashlib.sha256(each.tobytes()).hexdigest() for each in pixels), asdict(section.truth)])
