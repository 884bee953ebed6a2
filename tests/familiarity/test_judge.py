import math

import numpy as np
import pytest
from tests.familiarity.small import reference_of

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.familiarity.judge import LEAST_CELLS, Unit, judge, judge_pieces, p_values, scores
from ntrm.regions.graph import tissue_graph
from ntrm.results.familiarity import FAMILIAR, TOO_SMALL, UNFAMILIAR

BCC, KER, RET, EPI, BKG = (SKIN.index(name) for name in ("BCC", "KER", "RET", "EPI", "BKG"))
PAIRS = [(i, j) for i in range(len(SKIN)) for j in range(i + 1, len(SKIN))]  # Order of the borders in a unit's anatomy


def unit_of(z=0.0, deviation=0.0, cells=1000, areas=None, borders=None):
    """A unit whose cells are all ``z`` away; areas by class and borders by pairs."""
    sums = cells * np.concatenate([[1.0], np.broadcast_to(z, 9), np.broadcast_to(deviation, 9)])
    found, lengths = np.zeros(len(SKIN)), np.zeros((len(SKIN), len(SKIN)))
    for tissue, area in (areas or {RET: 4.0}).items():
        found[tissue] = area
    for (one, other), length in (borders or {}).items():
        lengths[one, other] = lengths[other, one] = length
    return Unit(sums, found, lengths)


def usual(areas):
    """The anatomy of a unit with these areas, as that of all training sections."""
    return unit_of(areas=areas).anatomy


@pytest.fixture
def reference():
    return reference_of(SKIN, mean=usual({RET: 4.0}))


def test_anatomy_is_square_roots_of_fractions_and_of_border_densities():
    """4 × 4 pixels of 0.05 mm: two rows of epidermis above dermis with one pixel of BCC, glass to the right."""
    mask = np.array([[EPI, EPI, EPI, BKG], [EPI, EPI, EPI, BKG], [RET, BCC, RET, BKG], [RET, RET, RET, BKG]], np.uint8)
    graph = tissue_graph(mask, Resolution.square(50.0), SKIN)
    found = Unit.of(np.zeros(19), graph)
    pixel, side = 0.05**2, 0.05
    area = 12 * pixel
    expected = dict.fromkeys([*range(len(SKIN)), *PAIRS], 0.0)
    expected |= {EPI: 6 / 12, RET: 5 / 12, BCC: 1 / 12}
    sides = {(EPI, RET): 2, (EPI, BCC): 1, (RET, BCC): 3}
    expected |= {(min(pair), max(pair)): count * side / area for pair, count in sides.items()}
    np.testing.assert_allclose(found.anatomy, np.sqrt([*expected.values()]))
    assert found.area_mm2 == pytest.approx(area)


def test_scores_are_logarithms_of_mean_squared_distances(reference):
    z = np.array([0.1, 0.2, 0.3, 0.1, 0.1, 0.2, 0.0, 0.0, -0.3])
    unit = unit_of(z, areas={RET: 3.0, EPI: 1.0})
    away = [math.sqrt(0.75) - 1, math.sqrt(0.25)]
    squared = [(0.01 + 0.04 + 0.09) / 3, (0.01 + 0.01 + 0.04 + 0.09) / 6, sum(a * a for a in away) / (12 + 66)]
    np.testing.assert_allclose(scores(unit, reference.numbers), [math.log(s / 0.01 + 1e-6) for s in squared])


@pytest.mark.parametrize(
    ("score", "expected"), [(-9.0, 1.0), (-2.0, 0.95), (0.0, 0.5), (0.75, 0.175), (1.5, 0.1 * math.exp(-1))]
)
def test_p_values_follow_the_quantiles_and_then_an_exponential_tail(reference, score, expected):
    found = p_values(np.full(3, score), 1.0, reference.numbers)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(p_values(np.full(3, score), 0.01, reference.numbers), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("unit", "reason"),
    [
        (unit_of(areas={RET: 0.3}), "0.3 mm² of tissue; it takes 0.5 to compare it with training sections"),
        (unit_of(cells=LEAST_CELLS - 1), "only 11 small squares show stained tissue; it takes 12 to compare them"),
    ],
)
def test_too_little_tissue_is_an_answer_of_its_own(reference, unit, reason):
    found = judge(unit, reference, SKIN)
    assert (found.verdict, found.p_value, dict(found.aspects), found.reasons) == (TOO_SMALL, None, {}, (reason,))


@pytest.mark.parametrize(
    ("density", "told"),
    [
        ((0.3, 0.3, 0.3), "darker (by 0.30 of optical density)"),
        ((-0.1, -0.1, -0.1), "paler (by 0.10 of optical density)"),
        ((0.3, 0.0, 0.0), "darker (by 0.10 of optical density) and bluer"),
        ((-0.1, 0.0, 0.1), "more yellow or brown"),
    ],
)
def test_strange_colours_are_named(reference, density, told):
    found = judge(unit_of([2, 2, 2, *[0] * 6], [*density, *[0] * 6]), reference, SKIN)
    assert found.verdict == UNFAMILIAR
    assert found.reasons == (f"colours: {told} than the same tissues in training",)


def test_a_border_that_training_did_not_have_is_told_in_mm():
    most = usual({RET: 4.0}) + 0.1
    pair = len(SKIN) + PAIRS.index((min(BCC, KER), max(BCC, KER)))
    most[pair] = math.sqrt(0.05)  # 0.2 mm on 4 mm²
    reference = reference_of(SKIN, mean=usual({RET: 4.0}), most=most, spread=0.01)
    found = judge(unit_of(borders={(BCC, KER): 3.1}), reference, SKIN)
    one, other = (SKIN.names[index] for index in sorted((BCC, KER)))
    told = f"{one} borders on {other} over 3.1 mm; in training on so much tissue at most 0.2"
    assert (found.verdict, found.reasons) == (UNFAMILIAR, (f"anatomy: {told}",))


def test_the_strongest_aspect_comes_first_and_bonferroni_takes_three_times_its_p_value(reference):
    # Mean squared distances of exp(6) and exp(8).
    unit = unit_of([math.sqrt(0.01 * math.exp(6))] * 3 + [math.sqrt(0.01 * math.exp(8))] * 6)
    each = p_values(np.array([6, 8, -13.8]), 4.0, reference.numbers)
    found = judge(unit, reference, SKIN)
    assert found.p_value == pytest.approx(each[1] / 0.45, rel=0.01)
    assert found.aspects["colours"] == pytest.approx(each[0], rel=0.01)
    assert [reason.split(":")[0] for reason in found.reasons] == ["texture", "colours"]


def test_a_slide_is_all_its_pieces_together(reference):
    one, other = unit_of(areas={RET: 4.0}), unit_of(0.4, cells=10, areas={RET: 0.4})
    slide, pieces = judge_pieces({1: one, 2: other}, reference, SKIN)
    assert [piece.verdict for piece in pieces.values()] == [FAMILIAR, TOO_SMALL]
    together = Unit(one.sums + other.sums, one.areas_mm2 + other.areas_mm2, one.borders_mm + other.borders_mm)
    assert slide == judge(together, reference, SKIN)
    nothing, none = judge_pieces({}, reference, SKIN)
    assert (nothing.verdict, none) == (TOO_SMALL, {})


def test_strange_pieces_that_are_most_of_a_slide_make_it_strange_even_if_they_cancel_out(reference):
    pale, dark, plain = unit_of(-3.0), unit_of(3.0), unit_of()
    slide, pieces = judge_pieces({1: pale, 2: dark, 3: plain}, reference, SKIN)
    assert [piece.verdict for piece in pieces.values()] == [UNFAMILIAR, UNFAMILIAR, FAMILIAR]
    assert slide in (pieces[1], pieces[2])
    slide, _ = judge_pieces({1: unit_of(-3.0), 2: dark, 3: plain, 4: plain}, reference, SKIN)
    assert slide.verdict == FAMILIAR
