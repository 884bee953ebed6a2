"""One pass in bands against the mask as a whole, and against the rule for cancers that holds it in memory."""

import tracemalloc

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.core.labels import CANCERS, IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.evaluation.cancers import cancer_types
from ntrm.relations import runs as runs_module
from ntrm.relations import survey as survey_module
from ntrm.relations.cancer_regions import cancers_of
from ntrm.relations.runs import grown, runs_of
from ntrm.relations.survey import Surveyor, survey_mask

MPP = Resolution(x=4.0, y=10.0)
BKG, RET, SCC = SKIN.index("BKG"), SKIN.index("RET"), SKIN.index("SCC")
LABELS = [0, RET, BKG, SCC, SKIN.index("BCC"), SKIN.index("IEC"), IGNORE]


def draw(random, height=40, width=30):
    """Patches of several sizes, so that regions run through several bands, and specks."""
    mask = np.kron(random.choice(LABELS, (height // 4, width // 3)), np.ones((4, 3))).astype(np.uint8)
    for _ in range(3):
        row, column = random.integers(0, height), random.integers(0, width)
        mask[row : row + 2], mask[:, column] = random.choice(LABELS, 2)
    mask[random.random(mask.shape) < 0.05] = random.choice(LABELS)
    return mask


def banded(mask, confidence, heights):
    surveyor, top = Surveyor(mask.shape[1], SKIN), 0
    for height in heights:
        surveyor.add(mask[top : top + height], confidence[top : top + height])
        top += height
    return surveyor.survey(MPP, 255.0)


def test_the_bands_have_no_say(random):
    mask = draw(random)
    confidence = random.integers(0, 256, mask.shape).astype(np.uint8)
    whole = banded(mask, confidence, [len(mask)])
    cuts = np.sort(random.choice(np.arange(1, len(mask)), 6, replace=False))
    for heights in ([1] * len(mask), np.diff([0, *cuts, len(mask)]).tolist()):
        found = banded(mask, confidence, heights)
        assert found.shape == mask.shape
        np.testing.assert_array_equal(found.pixels, np.bincount(mask.ravel(), minlength=256))
        for name in vars(whole.regions):
            np.testing.assert_array_equal(getattr(found.regions, name), getattr(whole.regions, name), name)
        sides = [np.sort(np.stack(each.sides), axis=1) for each in (found, whole)]
        np.testing.assert_array_equal(*sides)
        assert {*zip(*map(np.ndarray.tolist, found.sides), strict=True)} == {
            *zip(*map(np.ndarray.tolist, whole.sides), strict=True)
        }


def test_sides_are_those_of_every_pixel(random):
    mask = draw(random, 20, 18)
    framed = np.pad(mask, 1, constant_values=IGNORE)
    cancers = [SKIN.index(name) for name in CANCERS]
    expected = []
    for row, column in np.argwhere(np.isin(mask, cancers)):
        for way, (down, right) in enumerate([(0, -1), (0, 1), (-1, 0), (1, 0)]):
            other = int(framed[row + 1 + down, column + 1 + right])
            if other != mask[row, column]:
                expected.append((int(row * 18 + column), way, int(mask[row, column]), other))
    found = survey_mask(mask, SKIN, MPP)
    tissue = np.append(found.regions.tissue, [IGNORE, BKG])
    pixel, way, region, beyond = found.sides
    listed = zip(pixel.tolist(), way.tolist(), tissue[region].tolist(), tissue[beyond].tolist(), strict=True)
    assert sorted(listed) == sorted(expected)


@pytest.mark.parametrize("wide", [Resolution(x=40.0, y=25.0), Resolution(x=4.0, y=10.0)])
def test_cancers_are_those_of_the_whole_mask(random, wide):
    mask = draw(random)
    confidence = random.integers(0, 256, mask.shape).astype(np.uint8)
    found = cancers_of(survey_mask(mask, SKIN, wide, confidence, 255.0))
    expected = cancer_types(mask, confidence.astype(np.float64) / 255, SKIN, wide)
    for one, other in zip(found, expected, strict=True):
        assert (one.name, one.present, one.regions) == (other.name, other.present, other.regions)
        assert one.confidence == pytest.approx(other.confidence, abs=1e-9)
        assert one.area_mm2 == pytest.approx(other.area_mm2)
    assert cancers_of(survey_mask(mask, SKIN, wide)) == cancer_types(mask, None, SKIN, wide)


def test_growing_in_bands_is_growing_at_once(random, monkeypatch):
    runs = runs_of(random.random((40, 30)) < 0.02)
    whole = [grown(runs, np.array([2.0, 3.0]), 9.0, value=value) for value in (True, False)]
    monkeypatch.setattr(runs_module, "STRETCHES", 40)
    for value, expected in zip((True, False), whole, strict=True):
        found = grown(runs, np.array([2.0, 3.0]), 9.0, value=value)
        np.testing.assert_array_equal(found.start, expected.start)
        np.testing.assert_array_equal(found.value, expected.value)


def test_unknown_labels_are_refused():
    with pytest.raises(DataError, match="does not know"):
        survey_mask(np.full((3, 4), len(SKIN), dtype=np.uint8), SKIN, MPP)


def test_memory_does_not_grow_with_the_pixels(monkeypatch):
    """One region after the other, always as many: sixteen times the pixels in the same memory."""
    monkeypatch.setattr(survey_module, "BAND_PIXELS", 1 << 15)

    def peak(enlarge):
        mask = np.full((64, 64), RET, dtype=np.uint8)
        mask[10:20, 10:50], mask[40:44, 5:60] = SCC, 0
        mask = mask.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
        tracemalloc.start()
        try:
            survey_mask(mask, SKIN, MPP, mask)
            return tracemalloc.get_traced_memory()[1] / 2**20, mask.size / 2**20
        finally:
            tracemalloc.stop()

    (small, _), (large, pixels) = peak(8), peak(32)
    assert pixels == 4
    assert large < small + 0.5, (small, large)
