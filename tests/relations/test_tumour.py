"""Which parts of the tumour count, against a literal search, and what strays do to the measurements: nothing."""

import numpy as np
import pytest
from scipy import ndimage
from tests.relations.blocks import BCC, BKG, IEC, RET, SCC, block, far_apart

from ntrm.core.labels import CANCERS, SKIN
from ntrm.core.mpp import Resolution
from ntrm.evaluation.cancers import SMALLEST_REGION_MM2
from ntrm.relations.measure import measure_piece
from ntrm.relations.runs import runs_of
from ntrm.relations.sentences import measurement_sentences
from ntrm.relations.tumour import NEST_UM, ONLY_STRAYS, find_tumour

MPP = Resolution(x=5.0, y=8.0)
SCALE = (8.0, 5.0)


def literal(mask, classes, present):
    """Pixels that count, part by part, and how many parts do not."""
    firm, others = [], []
    for label in classes:
        parts, count = ndimage.label(mask == label, np.ones((3, 3)))
        for part in range(1, count + 1):
            where = np.argwhere(parts == part)
            large = len(where) * 40e-6 >= SMALLEST_REGION_MM2 and label in present
            (firm if large else others).append(where)
    near = [w for w in others if any(far_apart(w, big, SCALE).min() <= NEST_UM for big in firm)]
    counted = np.zeros(mask.shape, dtype=bool)
    for where in (*firm, *near):
        counted[tuple(where.T)] = True
    return counted, len(others) - len(near)


@pytest.mark.parametrize("present", [(BCC, SCC, IEC), (SCC,), ()])
def test_what_counts_is_firm_or_near(random, present):
    mask = np.full((80, 120), RET, dtype=np.uint8)
    for _ in range(4):
        top, left = random.integers(0, 70), random.integers(0, 110)
        mask[top : top + 9, left : left + 8] = random.choice([BCC, SCC, IEC, BKG])
    for _ in range(10):
        mask[random.integers(0, 80), random.integers(0, 120)] = random.choice([BCC, SCC, IEC])
    for classes in ((BCC, SCC, IEC), (BCC, SCC)):
        names = tuple(SKIN.names[label] for label in classes)
        found = find_tumour(runs_of(mask), SKIN, MPP, names, {SKIN.names[label] for label in present})
        counted, strays = literal(mask, classes, present)
        assert found.strays == strays
        np.testing.assert_array_equal(found.rim, np.argwhere(counted & ~ndimage.binary_erosion(counted)))


def test_strays_decide_nothing():
    mask = block()
    mask[40:55, 60:80] = SCC
    plain = measure_piece(mask, SKIN, MPP)
    mask[85:88, 150:153] = SCC  # near the margin, far from the tumour
    mask[28, 145] = IEC
    found = measure_piece(mask, SKIN, MPP)
    assert (found.clearance, found.depth) == (plain.clearance, plain.depth)
    assert (plain.strays, found.strays) == (0, 2)
    assert "2 stray spots of tumour did not count" in " ".join(measurement_sentences(found))
    assert "stray" not in " ".join(measurement_sentences(plain))


def test_a_nest_near_the_tumour_counts():
    mask = block()
    mask[40:55, 60:80] = SCC
    mask[70:73, 70:73] = SCC
    found = measure_piece(mask, SKIN, MPP)
    assert found.clearance.deep.value_mm == pytest.approx(8.0 * (90 - 73) / 1000)
    assert found.depth.value_mm == pytest.approx(8.0 * (73 - 20) / 1000)


def test_a_cancer_that_is_not_present_has_no_depth():
    mask = block()
    mask[40:50, 60:80] = BCC
    mask[24:34, 120:150] = IEC
    found = measure_piece(mask, SKIN, MPP, present=["IEC"])
    assert found.depth.reason == ONLY_STRAYS
    assert found.clearance.lateral.value_mm == pytest.approx(5.0 * 15 / 1000)
    none = measure_piece(mask, SKIN, MPP, present=[])
    assert {none.clearance.deep.reason, none.clearance.lateral.reason, none.depth.reason} == {ONLY_STRAYS}


def test_other_classes_are_not_known():
    found = find_tumour(runs_of(block()), SKIN, MPP, CANCERS)
    assert (len(found.rim), found.strays, found.known) == (0, 0, True)
    assert not find_tumour(runs_of(block()), SKIN, MPP, ("none",)).known
