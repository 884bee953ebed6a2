import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skimage import measure

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import CANCERS, IGNORE, SKIN, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import read_mask
from ntrm.evaluation import cancers
from ntrm.evaluation.cancers import CancerFinding, cancer_types, contact_lengths, presence_confidence, score_cancers
from ntrm.metrics.graph_agreement import interface_lengths
from ntrm.phantom.layout import lay_slide
from ntrm.phantom.patients import plan_sections

MPP = Resolution.square(6.7)
REAL = Path(os.environ.get("NTRM_REAL_DATA", "")) / "skin-masks"


def section(**squares):
    """Reticular dermis with a square of each named tissue: side in pixels, and what lies around it."""
    mask = np.full((80, 400), SKIN.index("RET"), dtype=np.uint8)
    for place, (name, (side, around)) in enumerate(squares.items()):
        top, left = 10, 10 + 120 * place
        mask[top - 2 : top + side + 2, left - 2 : left + side + 2] = SKIN.index(around)
        mask[top : top + side, left : left + side] = SKIN.index(name)
    return mask


def by_name(mask, confidence=None, schema=SKIN):
    return {finding.name: finding for finding in cancer_types(mask, confidence, schema, MPP)}


def test_none_one_and_several():
    assert not any(finding.present for finding in by_name(section()).values())
    one = by_name(section(BCC=(40, "INF")))
    assert [name for name in CANCERS if one[name].present] == ["BCC"]
    assert one["BCC"].area_mm2 == pytest.approx(1600 * 6.7**2 / 1e6)
    assert one["BCC"].reason == "0.072 mm² in 1 region, mean confidence 1.00, mostly beside INF"
    assert one["SCC"].reason == "no SCC found"
    several = by_name(section(BCC=(40, "INF"), SCC=(40, "KER"), IEC=(40, "EPI")))
    assert all(several[name].present for name in CANCERS)


def test_specks_are_no_cancer_however_many(random):
    mask = section()
    rows, columns = random.integers(0, 20, 60) * 4, random.integers(0, 100, 60) * 4
    mask[rows, columns] = SKIN.index("SCC")
    finding = by_name(mask)["SCC"]
    assert (finding.present, finding.regions, finding.area_mm2, finding.confidence) == (False, 0, 0.0, 0.0)
    specks = len(set(zip(rows, columns, strict=True)))
    assert f"in {specks} regions, each below 0.002 mm²" in finding.reason


def test_regions_and_areas_are_those_of_another_library(random):
    mask = random.choice(np.array([0, 3, 9, 9, 9, 11, IGNORE], dtype=np.uint8), (150, 170))
    labels, _ = measure.label(mask == 9, connectivity=2, return_num=True)
    areas = np.bincount(labels.ravel())[1:] * 6.7**2 / 1e6
    confidence = random.random(mask.shape, dtype=np.float32)
    finding = by_name(mask, confidence)["BCC"]
    counted = areas[areas >= cancers.SMALLEST_REGION_MM2]
    assert finding.regions == len(counted)
    assert finding.area_mm2 == pytest.approx(counted.sum())
    inside = np.isin(labels, 1 + np.flatnonzero(areas >= cancers.SMALLEST_REGION_MM2))
    mean = confidence[inside].mean(dtype=np.float64)
    assert f"mean confidence {mean:.2f}" in finding.reason


def test_contacts_are_the_section_graphs(random):
    mask = random.integers(0, 4, (40, 50))
    mask[random.random(mask.shape) < 0.05] = IGNORE
    mask[10:20, 10:30] = 2
    labels = measure.label(mask == 2, connectivity=2)
    oblong = Resolution(x=2.0, y=5.0)
    contacts = contact_lengths(labels, mask, labels.max(), 4, oblong)
    for region in range(1, labels.max() + 1):
        alone = np.where(labels == region, 4, mask)
        np.testing.assert_allclose(contacts[region - 1], interface_lengths(alone, 5, oblong)[4, :4])


def test_presence_is_what_the_rule_says(random):
    areas, weights = random.uniform(0.001, 0.1, 6), random.random(6)
    # The literal integral: walk through the tissue, the surest first, in many small steps.
    edges = np.linspace(0, areas.sum(), 2_000_001)
    order = np.argsort(-weights)
    at = np.searchsorted(np.cumsum(areas[order]), (edges[1:] + edges[:-1]) / 2)
    typical = cancers.TYPICAL_AREA_MM2
    density = np.exp(-(edges[1:] + edges[:-1]) / 2 / typical) / typical
    literal = np.sum(weights[order][np.minimum(at, 5)] * density) * (edges[1] - edges[0])
    assert presence_confidence(areas, weights) == pytest.approx(literal, abs=1e-5)


def test_presence_knows_no_fragments_and_never_falls(random):
    areas, weights = random.uniform(0.001, 0.1, 6), random.random(6)
    whole = presence_confidence(areas, weights)
    assert presence_confidence(np.repeat(areas / 2, 2), np.repeat(weights, 2)) == pytest.approx(whole)
    more = presence_confidence(np.append(areas, random.uniform(0.001, 1)), np.append(weights, random.random()))
    assert more >= whole - 1e-12
    assert 0 <= whole <= weights.max()


@pytest.mark.parametrize(("level", "present"), [(0.9, True), (0.45, False)])
def test_an_unsure_tumour_is_not_called(level, present):
    mask = section(SCC=(50, "INF"))
    finding = by_name(mask, np.full(mask.shape, level, dtype=np.float32))["SCC"]
    assert finding.present is present
    assert f"mean confidence {level:.2f}" in finding.reason
    assert finding.reason.endswith("not enough") is not present


def test_confidence_elsewhere_does_not_matter(random):
    mask = section(SCC=(50, "INF"))
    confidence = np.where(mask == SKIN.index("SCC"), 0.8, random.random(mask.shape))
    assert by_name(mask, confidence)["SCC"].confidence == pytest.approx(
        0.8 * (1 - math.exp(-2500 * 6.7**2 / 1e6 / cancers.TYPICAL_AREA_MM2))
    )


def test_carcinoma_in_situ_deep_in_the_dermis_is_misplaced():
    deep, shallow = by_name(section(IEC=(50, "RET")))["IEC"], by_name(section(IEC=(50, "PAP")))["IEC"]
    assert not deep.present
    assert "not where IEC lies" in deep.reason
    assert shallow.present
    assert deep.confidence == pytest.approx(shallow.confidence / 2)


def test_carcinoma_in_situ_that_another_cancer_undermines_is_where_it_lies():
    mask = section(IEC=(50, "BCC"))
    mask[8:10] = SKIN.index("KER")
    assert by_name(mask)["IEC"].present


def test_a_patch_inside_another_cancer_is_misplaced():
    mask = section(SCC=(60, "INF"))
    mask[30:50, 30:50] = SKIN.index("BCC")
    found = by_name(mask)
    assert found["SCC"].present
    assert not found["BCC"].present
    assert "mostly beside SCC, not where BCC lies: not enough" in found["BCC"].reason


def test_a_section_of_nothing_but_tumour_is_that_tumour():
    found = by_name(np.full((100, 100), SKIN.index("IEC"), dtype=np.uint8))
    assert found["IEC"].present
    assert found["IEC"].reason == "0.45 mm² in 1 region, mean confidence 1.00"


def test_a_section_of_ignore_or_of_no_pixel_holds_none():
    for shape in ((20, 20), (0, 5)):
        found = by_name(np.full(shape, IGNORE, dtype=np.uint8))
        assert {name: finding.present for name, finding in found.items()} == {"BCC": False, "SCC": False, "IEC": False}


def test_the_same_tumour_at_another_resolution_is_as_large():
    mask = section(BCC=(40, "INF"), IEC=(20, "EPI"))
    fine = np.repeat(np.repeat(mask, 2, axis=0), 2, axis=1)
    for coarse, close in zip(
        cancer_types(mask, None, SKIN, MPP), cancer_types(fine, None, SKIN, Resolution.square(3.35)), strict=True
    ):
        assert coarse.area_mm2 == pytest.approx(close.area_mm2)
        assert coarse.confidence == pytest.approx(close.confidence)
        assert coarse.reason == close.reason


def test_classes_are_found_by_name_and_other_schemas_have_none(random):
    shuffled = [SKIN.tissues[index] for index in random.permutation(len(SKIN))]
    other = LabelSchema(tuple(replace(tissue, index=index) for index, tissue in enumerate(shuffled)), background="BKG")
    mask = section(BCC=(40, "INF"), IEC=(40, "EPI"))
    assert by_name(other.remap_table(SKIN)[mask], schema=other) == by_name(mask)
    glands = LabelSchema((Tissue(0, "gland", "", (0, 0, 0)), Tissue(1, "stroma", "", (9, 9, 9))))
    assert cancer_types(np.zeros((5, 5), dtype=np.uint8), None, glands, MPP) == ()
    assert score_cancers([(), ()], [(), ()]).as_dict()["cancers"] == {}


def test_what_does_not_fit_is_refused(random):
    mask = section()
    with pytest.raises(DataError, match="not of one section"):
        cancer_types(mask, np.ones((3, 3)), SKIN, MPP)
    for wrong in (np.full(mask.shape, np.nan), np.full(mask.shape, 7.0)):
        with pytest.raises(DataError, match="no confidences"):
            cancer_types(mask, wrong, SKIN, MPP)


def findings(*present):
    return tuple(CancerFinding(name, name in present, 0.0, 0, 0.0, "") for name in CANCERS)


def test_scores_count_sections(random):
    draws = random.random((2, 50, 3)) < 0.4
    predicted, true = ([findings(*np.array(CANCERS)[row]) for row in side] for side in draws)
    scores = score_cancers(predicted, true)
    for column, score in enumerate(scores.cancers):
        pairs = Counter(zip(*(side[:, column].tolist() for side in draws), strict=True))
        assert (score.found, score.missed) == (pairs[True, True], pairs[False, True])
        assert (score.invented, score.excluded) == (pairs[True, False], pairs[False, False])
        assert score.accuracy == pytest.approx((draws[0, :, column] == draws[1, :, column]).mean())
        assert score.sensitivity == pytest.approx(draws[0][draws[1, :, column], column].mean())
        assert score.specificity == pytest.approx(1 - draws[0][~draws[1, :, column], column].mean())
    assert scores.exact_share == pytest.approx((draws[0] == draws[1]).all(axis=1).mean())


def test_scores_without_a_case_are_none_not_perfect():
    document = score_cancers([findings("BCC")], [findings("BCC")]).as_dict()
    assert document["cancers"]["BCC"]["specificity"] is None
    assert document["cancers"]["SCC"]["sensitivity"] is None
    assert document["exact_set_accuracy"] == 1
    assert score_cancers([], []).exact_share is None
    with pytest.raises(UsageError, match="cannot be compared"):
        score_cancers([findings()], [])


def test_the_rule_finds_the_cancers_of_phantoms(seed):
    for plan in plan_sections(290, seed)[::60]:
        slide = lay_slide(plan.seed, MPP.x, plan.cancer, 1)
        there = {cancer for piece in slide.pieces for cancer in piece.truth.cancers}
        found = by_name(slide.mask)
        # A drawn truth names every pixel's cancer; what adds up to less than the rule asks for may be left out.
        large = {name for name in there if (slide.mask == SKIN.index(name)).sum() * MPP.pixel_area_um2 / 1e6 > 0.2}
        called = {name for name in CANCERS if found[name].present}
        assert large <= called <= there, (plan.name, [each.reason for each in found.values()])


@pytest.mark.skipif(not REAL.is_dir(), reason="NTRM_REAL_DATA is not given")
def test_the_rule_finds_the_cancer_a_real_section_is_filed_under():
    tiles = {}
    for path in sorted(REAL.glob("*.png"))[::3]:
        tiles.setdefault("_".join(path.stem.split("_")[:2]), []).append(read_mask(path, SKIN).mask)
    for name, masks in tiles.items():
        apart = np.concatenate([np.pad(mask, ((0, 0), (0, 1)), constant_values=IGNORE) for mask in masks], axis=1)
        filed = name.split("_")[0]
        area = (apart == SKIN.index(filed)).sum() * MPP.pixel_area_um2 / 1e6
        assert by_name(apart)[filed].present is bool(area > 0.05) or 0 < area <= 0.05, name
