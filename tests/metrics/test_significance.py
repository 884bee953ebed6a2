"""The paired bootstrap against SciPy, against literal resampling, by simulation, and by hand."""

import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.metrics.overlap import pooled
from ntrm.metrics.significance import (
    Bootstrap,
    compare_confusions,
    compare_scores,
    holm,
    macro_dice,
    macro_iou,
    pixel_accuracy,
)

FEW = Bootstrap(draws=500)


def confusions(random, sections, classes, hit_rate, truth=None):
    """Confusion matrices of a model that labels this share of pixels right and the others at random."""
    truth = random.integers(50, 400, (sections, classes)) if truth is None else truth
    chances = np.full((classes, classes), (1 - hit_rate) / classes) + hit_rate * np.eye(classes)
    return np.stack([random.multinomial(truth[:, c], chances[c]) for c in range(classes)], axis=1), truth


def test_identical_models_differ_by_exactly_nothing(random):
    matrices, _ = confusions(random, 20, 12, 0.7)
    (same,) = compare_confusions({"a": matrices, "b": matrices.copy()}, range(20))
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert not same.established
    assert "not established" in same.verdict


def test_identical_models_with_unequal_numbers_of_seeds_tie_too(random):
    scores = random.random(15)
    (same,) = compare_scores({"a": np.stack([scores] * 3), "b": scores}, range(15), bootstrap=FEW)
    assert (same.low, same.high, same.p) == (0, 0, 1)


def test_a_clear_difference_is_established_with_its_direction(random):
    good, truth = confusions(random, 30, 5, 0.9)
    bad, _ = confusions(random, 30, 5, 0.6, truth)
    up, down = (
        compare_confusions(models, [i // 2 for i in range(30)], bootstrap=FEW)[0]
        for models in ({"good": good, "bad": bad}, {"bad": bad, "good": good})
    )
    assert up.established
    assert down.established
    assert up.verdict.startswith("good scores higher than bad")
    assert down.verdict.startswith("bad scores lower than good")
    assert (up.patients, up.low, up.high) == (15, pytest.approx(-down.high), pytest.approx(-down.low))


def test_five_patients_establish_nothing_at_five_per_cent(random):
    few, enough = (compare_scores({"a": random.random(n) + 5, "b": random.random(n)}, range(n))[0] for n in (5, 6))
    assert few.p == 2.0**-4
    assert not few.established
    assert enough.established


def expanded(confidence, patients):
    """Confidence of the plain percentile interval that is as wide as Student's t for so few patients."""
    reach = stats.t.ppf((1 + confidence) / 2, patients - 1) * np.sqrt(patients / (patients - 1))
    return 2 * stats.norm.cdf(reach) - 1


def test_mean_of_scores_equals_scipy(random):
    one, other = random.normal(0.7, 0.1, 60), random.normal(0.68, 0.1, 60)
    (ours,) = compare_scores({"one": one, "other": other}, range(60))
    theirs = stats.bootstrap(
        (one - other,),
        np.mean,
        n_resamples=10_000,
        method="percentile",
        confidence_level=expanded(0.95, 60),
        rng=random,
    ).confidence_interval
    slack = 0.06 * (theirs.high - theirs.low)  # ends of 10,000 draws scatter by about 1 % of the width
    assert ours.difference == pytest.approx(np.mean(one) - np.mean(other))
    # A mean is nearly normal, so that its p is nearly that of the t-test.
    assert ours.p == pytest.approx(stats.ttest_rel(one, other).pvalue, abs=0.06)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=slack), pytest.approx(theirs.high, abs=slack))


def test_patients_are_drawn_with_all_their_sections(random):
    """A literal loop: draw patients, put their sections together, score, average over seeds."""
    patients = [*"aabccdeeefghij"]
    matrices, truth = confusions(random, len(patients), 4, 0.8)
    seeds = [confusions(random, len(patients), 4, rate, truth)[0] for rate in (0.7, 0.75)]
    (ours,) = compare_confusions({"x": matrices, "y": np.stack(seeds)}, patients)
    names = sorted(set(patients))
    literal = []
    for _ in range(3000):
        drawn = [i for name in random.choice(names, len(names)) for i, who in enumerate(patients) if who == name]
        mine = macro_iou(matrices[drawn].sum(axis=0))
        literal.append(mine - np.mean([macro_iou(each[drawn].sum(axis=0)) for each in seeds]))
    slack = 0.12 * (ours.high - ours.low)
    tail = (1 - expanded(0.95, len(names))) / 2
    assert np.quantile(literal, [tail, 1 - tail]) == pytest.approx([ours.low, ours.high], abs=slack)
    assert ours.second_by_seed == pytest.approx([float(macro_iou(each.sum(axis=0))) for each in seeds])


@pytest.mark.parametrize("patients", [12, 40])
def test_intervals_cover_the_truth_about_as_often_as_they_say(random, patients):
    """No difference, and two sections of each patient that share what makes them hard."""
    covered = claimed = 0
    groups = np.repeat(range(patients), 2).tolist()
    for run in range(200):
        shared = random.normal(0, 0.1, patients) + random.normal(0, 0.05, (2, patients))
        a, b = np.repeat(shared, 2, axis=1) + random.normal(0, 0.02, (2, 2 * patients))
        (found,) = compare_scores({"a": a, "b": b}, groups, bootstrap=Bootstrap(1000, seed=run))
        covered += found.low <= 0 <= found.high
        claimed += found.established
    # At a coverage of 95 % a count outside these bounds comes up less than once in 20,000 runs.
    assert 175 <= covered < 200, covered
    assert claimed <= 200 - covered


def test_drawing_sections_instead_of_patients_would_overstate(random):
    """Ten alike sections of a patient are hardly more than one: the interval must not shrink with them."""
    gain = random.normal(0.01, 0.05, 20)
    once = compare_scores({"a": gain, "b": np.zeros(20)}, range(20))[0]
    often = compare_scores({"a": np.repeat(gain, 10), "b": np.zeros(200)}, [i // 10 for i in range(200)])[0]
    naive = compare_scores({"a": np.repeat(gain, 10), "b": np.zeros(200)}, range(200))[0]
    assert often.high - often.low == pytest.approx(once.high - once.low)
    assert naive.high - naive.low < 0.5 * (often.high - often.low)


def test_pairing_beats_independent_draws(random):
    hard = random.normal(0.7, 0.15, 50)
    one, other = hard + random.normal(0.01, 0.01, 50), hard + random.normal(0, 0.01, 50)
    (paired,) = compare_scores({"one": one, "other": other}, range(50))
    means = [random.choice(each, (5000, 50)).mean(axis=1) for each in (one, other)]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    assert paired.high - paired.low < 0.3 * (high - low)


def test_a_section_without_score_is_left_out_for_all(random):
    scores = random.random((2, 12))
    gappy = scores.copy()
    gappy[0, 3] = gappy[1, 7] = np.nan
    kept = [i for i in range(12) if i not in (3, 7)]
    (found,) = compare_scores({"a": gappy[0], "b": gappy[1]}, range(12), bootstrap=FEW)
    assert found.difference == pytest.approx(scores[0, kept].mean() - scores[1, kept].mean())


def test_patients_without_a_score_are_no_patients(random):
    """However many there are, those with a score alone can establish something."""
    scores = np.full((2, 12), np.nan)
    scores[:, 2::4] = [[0.9, 0.8, 0.95], [0.5, 0.4, 0.6]]
    (found,) = compare_scores({"a": scores[0], "b": scores[1]}, range(12))
    (alone,) = compare_scores({"a": scores[0, 2::4], "b": scores[1, 2::4]}, range(3))
    assert found == alone
    assert (found.patients, found.established) == (3, False)


@pytest.mark.parametrize("known", [3, 8])
@pytest.mark.parametrize("statistic", [pixel_accuracy, macro_iou])
def test_patients_without_a_pixel_are_no_patients(random, statistic, known):
    """However many there are, the others alone can establish something."""
    good, truth = confusions(random, known, 3, 0.9)
    models = {"good": good, "bad": confusions(random, known, 3, 0.3, truth)[0]}
    (alone,) = compare_confusions(models, range(known), statistic=statistic, bootstrap=FEW)
    among = {name: np.insert(tables, [0] * 5 + [known] * 7, 0, axis=0) for name, tables in models.items()}
    (found,) = compare_confusions(among, range(known + 12), statistic=statistic, bootstrap=FEW)
    assert found == alone
    assert (found.patients, found.draws, found.established) == (known, 500, known == 8)


def test_draws_without_a_defined_statistic_are_counted_out():
    """Each model can be scored for one patient of two: half of the draws have both."""
    tables = np.zeros((2, 2, 2, 2), dtype=int)
    tables[:, :, 0] = [[[6, 0], [5, 1]], [[5, 1], [6, 0]]]

    def called_second(sums):
        return np.where(sums[..., 0, 1] > 0, sums[..., 0, 1], np.nan)

    (found,) = compare_confusions({"a": tables[0], "b": tables[1]}, range(2), statistic=called_second)
    assert (found.patients, found.draws) == (2, pytest.approx(5_000, abs=250))


def test_equal_seeds_give_equal_results_in_chunks_of_any_size(random, monkeypatch):
    a, truth = confusions(random, 12, 3, 0.8)
    models = {"a": a, "b": confusions(random, 12, 3, 0.75, truth)[0]}
    first = compare_confusions(models, range(12), bootstrap=FEW)
    assert first == compare_confusions(models, range(12), bootstrap=FEW)
    assert first != compare_confusions(models, range(12), bootstrap=Bootstrap(500, seed=1))
    monkeypatch.setattr("ntrm.metrics.significance.CHUNK_VALUES", 500)
    assert first == compare_confusions(models, range(12), bootstrap=FEW)


def test_statistics_equal_the_reported_scores(random):
    matrices, _ = confusions(random, 4, 12, 0.6)
    matrices[:, 5] = 0
    matrices[:, :, 5] = 0
    scores = pooled(list(matrices), SKIN)
    statistics = (macro_iou, macro_dice, pixel_accuracy)
    got = [float(statistic(matrices.sum(axis=0))) for statistic in statistics]
    assert got == pytest.approx([scores.macro["iou"], scores.macro["dice"], scores.pixel_accuracy])


def test_a_family_is_all_pairs_or_all_against_the_reference(random):
    models = {name: random.random(10) for name in "abc"}
    pairs = compare_scores(models, range(10), bootstrap=FEW)
    assert [(each.first, each.second) for each in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [each.p_holm for each in pairs] == list(holm([each.p for each in pairs]))
    against = compare_scores(models, range(10), reference="b", bootstrap=FEW)
    assert [(each.first, each.second) for each in against] == [("a", "b"), ("c", "b")]


def test_correction_can_take_a_finding_back():
    gain = np.array([0.3, 0.2, 0.25, 0.2, 0.3, 0.1])
    models = {"base": np.zeros(6), "x": gain, "y": gain * 0.9}
    alone = compare_scores({"x": gain, "base": np.zeros(6)}, range(6))[0]
    family = compare_scores(models, range(6), reference="base")
    assert (alone.p, alone.established) == (2.0**-5, True)
    assert [(each.p_holm, each.established) for each in family] == [(2.0**-4, False)] * 2


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04 times 4 3 2 1: .02 .03 .06 .04, and the last may not fall below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([]) == ()
    assert holm([0.6, 0.9]) == (1, 1)


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_stepping_down_rejects(p_values):
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if min(1, (len(p_values) - rank) * p_values[index]) > alpha:
                break
            rejected.add(index)
        assert {index for index, p in enumerate(adjusted) if p <= alpha} == rejected


def test_document_is_plain_json(random):
    (found,) = compare_scores({"a": random.random((3, 8)), "b": random.random(8)}, range(8), bootstrap=FEW)
    document = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert (len(document["first_by_seed"]), len(document["second_by_seed"])) == (3, 1)
    assert document["difference"] == pytest.approx(np.mean(document["first_by_seed"]) - document["second_by_seed"][0])
    assert document["verdict"] == found.verdict


def test_over_trainings_is_welchs_interval(random):
    from scipy import stats

    a, b = random.random((3, 9)), random.random((5, 9))
    (found,) = compare_scores({"a": a, "b": b}, range(9), bootstrap=FEW)
    expected = stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False).confidence_interval(0.95)
    assert found.over_trainings == pytest.approx((expected.low, expected.high))
    assert found.as_dict()["over_trainings"] == found.over_trainings


def test_over_trainings_needs_several_of_both_and_none_need_differ(random):
    one, two = random.random(9), random.random(9)
    (alone,) = compare_scores({"a": np.stack([one, two]), "b": one}, range(9), bootstrap=FEW)
    assert alone.over_trainings is None
    assert not alone.may_turn
    (equal,) = compare_scores({"a": np.stack([one] * 2), "b": np.stack([two] * 2)}, range(9), bootstrap=FEW)
    assert equal.over_trainings == (equal.difference, equal.difference)


def test_what_another_training_may_turn_is_said():
    scores = np.linspace(0.4, 0.6, 20)
    (found,) = compare_scores(
        {"a": np.stack([scores + 0.3, scores - 0.1]), "b": np.stack([scores, scores])}, range(20), bootstrap=FEW
    )
    assert found.established
    assert found.may_turn
    assert "Other trainings may show otherwise: over the seeds −" in found.verdict
    (steady,) = compare_scores(
        {"a": np.stack([scores + 0.1, scores + 0.1001]), "b": np.stack([scores, scores])}, range(20), bootstrap=FEW
    )
    assert steady.established
    assert not steady.may_turn
    assert "Other trainings" not in steady.verdict


def test_ten_thousand_draws_are_made_together(random):
    """50 patients, 12 tissues, three seeds: with a call for each draw it would take a minute."""
    a, truth = confusions(random, 50, 12, 0.8)
    b = np.stack([confusions(random, 50, 12, 0.8, truth)[0] for _ in range(3)])
    calls = itertools.count()
    sys.setprofile(lambda _frame, event, _argument: event == "call" and next(calls))
    try:
        compare_confusions({"a": a, "b": b}, range(50))
    finally:
        sys.setprofile(None)
    assert next(calls) < 5_000


class NotAvailable:
    """As ``pandas.NA``: a comparison with it is neither true nor false."""

    def __ne__(self, other):
        return self

    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize("missing", [None, np.nan, np.datetime64("NaT"), NotAvailable()])
def test_sections_without_a_patient_are_refused(random, missing):
    patients = [*"abcdefghij", missing, missing]
    scores, counts = random.random(12), confusions(random, 12, 3, 0.7)
    for compare, values in ((compare_scores, scores), (compare_confusions, counts)):
        with pytest.raises(DataError, match="without a patient") as refused:
            compare({"a": values, "b": values}, patients)
        assert str(refused.value.got).startswith("2 of 12 missing, the first is section 10")
    by_name = {index + 100: patient for index, patient in enumerate(patients)}

    class Column(dict):  # as a column of a table that was filtered: positions are no keys of it
        def __iter__(self):
            return iter(self.values())

    with pytest.raises(DataError, match="without a patient"):
        compare_scores({"a": scores, "b": scores}, Column(by_name))
    with pytest.raises(DataError, match="12 of 12 missing"):
        compare_scores({"a": scores, "b": scores}, np.full(12, np.nan))


def test_models_scored_on_other_truth_are_refused(random):
    a, _ = confusions(random, 6, 3, 0.8)
    for other in (a[::-1], confusions(random, 6, 4, 0.8)[0], np.stack([a, a[::-1]])):
        with pytest.raises(RefusedError, match="same ground truth"):
            compare_confusions({"a": a, "b": other}, range(6))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: compare_scores({"a": [1, 2]}, "xy"), UsageError),
        (lambda: compare_scores({"a": [1, 2], "b": [1, 2]}, "xy", reference="c"), UsageError),
        (lambda: compare_scores({"a": [1, 2], "b": [1, 2, 3]}, "xy"), DataError),
        (lambda: compare_scores({"a": [], "b": []}, ""), DataError),
        (lambda: compare_scores({"a": [np.nan, 1], "b": [1, np.nan]}, "xy"), DataError),
        (lambda: compare_confusions({"a": np.zeros((2, 3, 3)), "b": np.zeros((2, 3, 3))}, "xy"), DataError),
        (lambda: compare_confusions({"a": np.ones((2, 3)), "b": np.ones((2, 3))}, "xy"), DataError),
        (lambda: compare_confusions({"a": np.ones((2, 3, 4)), "b": np.ones((2, 3, 4))}, "xy"), DataError),
        (lambda: compare_confusions({"a": -np.ones((2, 3, 3)), "b": np.ones((2, 3, 3))}, "xy"), DataError),
        (lambda: compare_confusions({}, "xy"), UsageError),
        (lambda: Bootstrap(draws=0), UsageError),
        (lambda: Bootstrap(confidence=1.0), UsageError),
        (lambda: Bootstrap(seed=-1), UsageError),
    ],
    ids=[
        *("one", "reference", "length", "empty", "unscored", "no-pixels", "flat", "not-square", "negative", "none"),
        *("draws", "confidence", "seed"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, error):
    with pytest.raises(error):
        call()


def test_settings_of_numpy_are_those_of_python():
    given = Bootstrap(draws=np.int64(200), confidence=np.float64(0.9), seed=np.int64(3))
    assert given == Bootstrap(200, 0.9, 3)
    assert [type(value) for value in vars(given).values()] == [int, float, int]
