"""Which cancers a mask holds, which regions of the tumour count, and what strays do to the measurements: nothing."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage
from skimage import measure
from tests.helpers import real_data
from tests.regions.blocks import BCC, BKG, IEC, RET, SCC, block, far_apart, measured

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import CANCERS, IGNORE, SKIN, CancerFinding, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import read_mask
from ntrm.metrics.cancer_scores import score_cancers
from ntrm.regions import cancers
from ntrm.regions.cancers import (
    NEST_UM,
    ONLY_STRAYS,
    SMALLEST_REGION_MM2,
    cancer_types,
    cancers_of,
    confirmed_regions,
    is_tumour_confirmed,
    presence_confidence,
    tumour_of,
)
from ntrm.regions.regions import scan_mask

MPP, OBLONG = Resolution.square(6.7), Resolution(x=5.0, y=8.0)
SCALE = (8.0, 5.0)


def literal(mask, classes, present):
    """Pixels that count, region by region, and how many regions do not."""
    firm, others = [], []
    for label in classes:
        regions, count = ndimage.label(mask == label)
        for region in range(1, count + 1):
            where = np.argwhere(regions == region)
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
        found = tumour_of(scan_mask(mask, SKIN, OBLONG), SKIN, names, {SKIN.names[label] for label in present})
        counted, strays = literal(mask, classes, present)
        assert found.strays == strays
        np.testing.assert_array_equal(found.rim, np.argwhere(counted & ~ndimage.binary_erosion(counted)))


def test_strays_decide_nothing_and_a_nest_near_the_tumour_counts():
    mask = block()
    mask[40:55, 60:80] = SCC
    plain = measured(mask, SKIN, OBLONG)
    mask[85:88, 150:153] = SCC  # near the margin, far from the tumour
    mask[28, 145] = IEC
    found = measured(mask, SKIN, OBLONG)
    assert (found.deep, found.lateral, found.depth) == (plain.deep, plain.lateral, plain.depth)
    assert (plain.strays, found.strays) == (0, 2)
    assert "2 stray spots of tumour did not count" in " ".join(found.sentences)
    assert "stray" not in " ".join(plain.sentences)
    mask[70:73, 70:73] = SCC
    found = measured(mask, SKIN, OBLONG)
    assert found.deep.value == pytest.approx(8.0 * (90 - 73) / 1000)
    assert found.depth.value == pytest.approx(8.0 * (73 - 20) / 1000)


def test_a_cancer_that_is_not_present_has_no_depth():
    mask = block()
    mask[40:50, 60:80] = BCC
    mask[24:34, 120:150] = IEC
    found = measured(mask, SKIN, OBLONG, present=["IEC"])
    assert found.depth.reason == ONLY_STRAYS
    assert found.lateral.value == pytest.approx(5.0 * 15 / 1000)
    none = measured(mask, SKIN, OBLONG, present=[])
    assert {none.deep.reason, none.lateral.reason, none.depth.reason} == {ONLY_STRAYS}


def section(**squares):
    """Reticular dermis with a square of each named tissue: side in pixels, and what lies around it."""
    mask = np.full((80, 400), SKIN.index("RET"), dtype=np.uint8)
    for index, (name, (side, around)) in enumerate(squares.items()):
        top, left = 10, 10 + 120 * index
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


def test_regions_and_areas_are_those_of_another_library_and_specks_do_not_count(random):
    mask = random.choice(np.array([0, 3, 9, 9, 9, 11, IGNORE], dtype=np.uint8), (150, 170))
    labels, _ = measure.label(mask == 9, connectivity=1, return_num=True)
    areas = np.bincount(labels.ravel())[1:] * 6.7**2 / 1e6
    confidence = random.random(mask.shape, dtype=np.float32)
    finding = by_name(mask, confidence)["BCC"]
    counted = areas[areas >= cancers.SMALLEST_REGION_MM2]
    assert finding.regions == len(counted)
    assert finding.area_mm2 == pytest.approx(counted.sum())
    inside = np.isin(labels, 1 + np.flatnonzero(areas >= cancers.SMALLEST_REGION_MM2))
    mean = confidence[inside].mean(dtype=np.float64)
    assert f"mean confidence {mean:.2f}" in finding.reason
    specks = section()
    specks[::4, ::4] = SKIN.index("SCC")
    finding = by_name(specks)["SCC"]
    assert (finding.present, finding.regions, finding.area_mm2, finding.confidence) == (False, 0, 0.0, 0.0)
    assert f"in {20 * 100:,} regions, each below 0.002 mm²" in finding.reason


def test_classes_are_found_by_name_and_other_schemas_have_none(random):
    shuffled = [SKIN.tissues[index] for index in random.permutation(len(SKIN))]
    other = LabelSchema(tuple(replace(tissue, index=index) for index, tissue in enumerate(shuffled)), background="BKG")
    mask = section(BCC=(40, "INF"), IEC=(40, "EPI"))
    assert by_name(other.remap_table(SKIN)[mask], schema=other) == by_name(mask)
    glands = LabelSchema((Tissue(0, "gland", "", (0, 0, 0)), Tissue(1, "stroma", "", (9, 9, 9))))
    assert cancer_types(np.zeros((5, 5), dtype=np.uint8), None, glands, MPP) == ()
    assert score_cancers([(), ()], [(), ()])["cancers"] == {}


def test_what_does_not_fit_is_refused(random):
    mask = section()
    with pytest.raises(DataError, match="not of one section"):
        cancer_types(mask, np.ones((3, 3)), SKIN, MPP)
    for label in (256 + SKIN.index("BCC"), SKIN.index("BCC") - 256, SKIN.index("BCC") + 0.5):
        with pytest.raises(DataError, match="no class"):
            cancer_types(np.full(mask.shape, label), None, SKIN, MPP)


def test_the_rule_finds_the_cancers_of_synthetic_sections(sections):
    for section in sections:
        there, findings = set(section.truth.cancers), by_name(section.mask)
        # Ground truth names every pixel's cancer; what adds up to less than the rule asks for may be left out.
        large = {name for name in there if (section.mask == SKIN.index(name)).sum() * MPP.pixel_area_um2 / 1e6 > 0.2}
        called = {name for name in CANCERS if findings[name].present}
        assert large <= called <= there, (section.seed, [finding.reason for finding in findings.values()])


def test_the_rule_finds_the_cancer_a_real_section_is_filed_under():
    tiles = {}
    for path in sorted(real_data("skin-masks").glob("*.png"))[::3]:
        tiles.setdefault("_".join(path.stem.split("_")[:2]), []).append(read_mask(path, SKIN).mask)
    for name, masks in tiles.items():
        apart = np.concatenate([np.pad(mask, ((0, 0), (0, 1)), constant_values=IGNORE) for mask in masks], axis=1)
        filed = name.split("_")[0]
        area = (apart == SKIN.index(filed)).sum() * MPP.pixel_area_um2 / 1e6
        assert by_name(apart)[filed].present is bool(area > 0.05) or 0 < area <= 0.05, name


def corrected(by_person, confidence):
    """Regions of a section with one BCC, of which a person named so much; the network's confidence is of the rest."""
    mask = np.full((60, 60), RET, dtype=np.uint8)
    mask[10:40, 10:40] = BCC
    table = scan_mask(mask, SKIN, MPP).table
    person = np.where(table.tissue[:, None] == BCC, [by_person, 0.0], 0.0)
    values = np.where(table.tissue == BCC, np.nan if confidence is None else confidence, 0.9)
    return replace(table, confidence=values, person=person)


@pytest.mark.parametrize(
    ("share", "confidence", "expected", "said"),
    [(1.0, None, 1.0, "100% named by a person, mostly beside RET"), (0.0, 0.2, 0.2, "mean confidence 0.20"),
     (0.5, 0.2, 0.6, "50% named by a person, mean confidence 0.60")],
)  # fmt: skip
def test_what_a_person_named_counts_as_certain_and_is_said(share, confidence, expected, said):
    found = {each.name: each for each in cancers_of(corrected(share, confidence), SKIN)}["BCC"]
    area = 900 * MPP.pixel_area_um2 / 1e6
    assert found.confidence == pytest.approx(expected * -math.expm1(-area / cancers.TYPICAL_AREA_MM2))
    assert found.present == (expected >= 0.55)
    assert said in found.reason
    assert ("person" in found.reason) == (share > 0)


def test_a_tumour_is_confirmed_if_a_person_named_half_of_each_region():
    for share, expected in ((1.0, True), (0.5, True), (0.49, False)):
        table = corrected(share, 0.9)
        assert is_tumour_confirmed(table, SKIN) is expected
        found = cancers_of(table, SKIN, confirmed_regions(table))[0]
        assert (found.regions == 1) is expected
    assert not is_tumour_confirmed(scan_mask(np.full((9, 9), RET, np.uint8), SKIN, MPP).table, SKIN)
    assert not confirmed_regions(scan_mask(np.full((9, 9), BCC, np.uint8), SKIN, MPP).table).any()


def test_a_cancer_where_it_does_not_lie_is_misplaced():
    deep, shallow = by_name(section(IEC=(50, "RET")))["IEC"], by_name(section(IEC=(50, "PAP")))["IEC"]
    assert (deep.present, shallow.present) == (False, True)
    assert "not where IEC lies" in deep.reason
    assert deep.confidence == pytest.approx(shallow.confidence / 2)
    undermined = section(IEC=(50, "BCC"))
    undermined[8:10] = SKIN.index("KER")
    assert by_name(undermined)["IEC"].present
    patch = section(SCC=(60, "INF"))
    patch[30:50, 30:50] = SKIN.index("BCC")
    found = by_name(patch)
    assert (found["SCC"].present, found["BCC"].present) == (True, False)
    assert "mostly beside SCC, not where BCC lies: not enough" in found["BCC"].reason


def test_presence_is_what_the_rule_says_and_knows_no_fragments(random):
    areas, weights = random.uniform(0.001, 0.1, 6), random.random(6)
    # The literal integral: walk through the tissue, the surest first, in many small steps.
    edges = np.linspace(0, areas.sum(), 200_001)
    order = np.argsort(-weights)
    at = np.searchsorted(np.cumsum(areas[order]), (edges[1:] + edges[:-1]) / 2)
    typical = cancers.TYPICAL_AREA_MM2
    density = np.exp(-(edges[1:] + edges[:-1]) / 2 / typical) / typical
    literal = np.sum(weights[order][np.minimum(at, 5)] * density) * (edges[1] - edges[0])
    assert presence_confidence(areas, weights) == pytest.approx(literal, abs=1e-4)
    assert presence_confidence(np.repeat(areas / 2, 2), np.repeat(weights, 2)) == pytest.approx(literal, abs=1e-4)


def findings(*present):
    return tuple(CancerFinding(name, name in present, 0.0, 0, 0.0, "") for name in CANCERS)


def test_scores_count_sections(random):
    draws = random.random((2, 50, 3)) < 0.4
    predicted, true = ([findings(*np.array(CANCERS)[row]) for row in side] for side in draws)
    scores = score_cancers(predicted, true)
    assert list(scores["cancers"]) == list(CANCERS)
    for column, score in enumerate(scores["cancers"].values()):
        pairs = Counter(zip(*(side[:, column].tolist() for side in draws), strict=True))
        assert (score["found"], score["missed"]) == (pairs[True, True], pairs[False, True])
        assert (score["invented"], score["excluded"]) == (pairs[True, False], pairs[False, False])
        assert score["accuracy"] == pytest.approx((draws[0, :, column] == draws[1, :, column]).mean())
        assert score["sensitivity"] == pytest.approx(draws[0][draws[1, :, column], column].mean())
        assert score["specificity"] == pytest.approx(1 - draws[0][~draws[1, :, column], column].mean())
    assert scores["exact_set_accuracy"] == pytest.approx((draws[0] == draws[1]).all(axis=1).mean())
    # Without a case a score is None, not perfect.
    document = score_cancers([findings("BCC")], [findings("BCC")])
    assert document["cancers"]["BCC"]["specificity"] is document["cancers"]["SCC"]["sensitivity"] is None
    assert document["exact_set_accuracy"] == 1
    assert score_cancers([], [])["exact_set_accuracy"] is None
    with pytest.raises(UsageError, match="cannot be compared"):
        score_cancers([findings()], [])
