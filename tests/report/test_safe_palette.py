import itertools

import numpy as np

from ntrm.core.labels import SKIN, LabelSchema, Tissue
from ntrm.report.safe_palette import SAFE, safe_palette

# Machado, Oliveira and Fernandes 2009, full strength, on linear RGB.
EYES = {
    "normal": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def oklab(linear):
    to_lms = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    to_lms += [[0.0883024619, 0.2817188376, 0.6299787005]]
    to_lab = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
    to_lab += [[0.0259040371, 0.7827717662, -0.8086757660]]
    return np.array(to_lab) @ np.cbrt(np.array(to_lms) @ linear.clip(0, 1))


def least_distance(palette, eyes):
    values = np.array(palette) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = [oklab(np.array(EYES[eyes]) @ colour) for colour in linear]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


def test_any_two_colours_are_told_apart_by_all_eyes_and_far_better_than_the_datasets_own():
    own = [tissue.rgb for tissue in SKIN.tissues]
    for eyes in EYES:
        assert least_distance(SAFE, eyes) > 0.145, eyes
    assert min(least_distance(own, eyes) for eyes in EYES) < 0.02


def test_there_is_none_for_more_classes_than_colours():
    assert safe_palette(SKIN) == SAFE
    assert len(set(SAFE)) == len(SAFE)
    many = LabelSchema(tuple(Tissue(k, f"T{k}", "", (k, 0, 0)) for k in range(len(SAFE) + 1)))
    assert safe_palette(many) is None
