"""Boundaries and section graphs against literal loops over pixels, scikit-image and cases worked by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.ndimage import gaussian_filter
from skimage.metrics import hausdorff_distance as skimage_hausdorff

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.metrics.boundary import (
    BoundaryAgreement,
    boundary_agreement,
    hausdorff_distance,
    surface_distances,
    surface_of,
)
from ntrm.metrics.graph_agreement import MIN_LENGTH_UM, GraphAgreement, graph_agreement

FOUR = LabelSchema(tuple(Tissue(i, name, "", (i, i, i)) for i, name in enumerate("ABCD")))
SIZES = st.tuples(st.integers(1, 8), st.integers(1, 8))
MPP = st.floats(0.1, 60)


@st.composite
def sections(draw):
    """A true mask with ignored pixels, and a predicted one of its size."""
    shape = draw(SIZES)
    truth = draw(arrays.arrays(np.uint8, shape, elements=st.sampled_from([0, 1, 2, 3, IGNORE])))
    return truth, draw(arrays.arrays(np.uint8, shape, elements=st.integers(0, 3)))


def literal_surface(mask, truth, label):
    """Surface pixels of one class, by the definition."""
    height, width = mask.shape
    found = []
    for y, x in np.ndindex(mask.shape):
        beside = [(y + dy, x + dx) for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0))]
        known = [p for p in beside if 0 <= p[0] < height and 0 <= p[1] < width and truth[p] != IGNORE]
        if mask[y, x] == label and truth[y, x] != IGNORE and any(mask[p] != label for p in known):
            found.append((y, x))
    return found


def literal_distances(here, there, mpp):
    """Distance in µm of each pixel of one list to the nearest of another."""
    return [min(math.hypot((y - v) * mpp.y, (x - u) * mpp.x) for v, u in there) for y, x in here]


def literal_scores(true, found, mpp, tolerance):
    """Surface dice, boundary F1 and the 95th percentile of the distances, of two lists of pixels."""
    if not true and not found:
        return None, None, None
    if not true or not found:
        return 0, 0, None
    apart = [literal_distances(true, found, mpp), literal_distances(found, true, mpp)]
    hits = [sum(d <= tolerance * (1 + 1e-9) for d in each) for each in apart]
    recall, precision = hits[0] / len(true), hits[1] / len(found)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    return sum(hits) / (len(true) + len(found)), f1, max(np.percentile(each, 95) for each in apart)


@given(section=sections(), x=MPP, y=MPP, tolerance=st.floats(0, 60))
def test_scores_equal_the_literal_definition(section, x, y, tolerance):
    truth, prediction = section
    mpp = Resolution(x, y)
    scores = boundary_agreement(truth, prediction, FOUR, mpp, tolerances_um=[tolerance])
    for label in range(4):
        true, found = literal_surface(truth, truth, label), literal_surface(prediction, truth, label)
        got = (scores.surface_dice(tolerance)[label], scores.boundary_f1(tolerance)[label], scores.hausdorff_um[label])
        assert got == pytest.approx(literal_scores(true, found, mpp, tolerance))


def test_full_hausdorff_equals_scikit_image(random):
    masks = [gaussian_filter(random.random((2, 60, 50)), (0, 3, 3)).argmax(axis=0) for _ in range(2)]
    known = np.ones((60, 50), dtype=bool)
    surfaces = [surface_of(mask, known) & (mask == 1) for mask in masks]
    points = [np.argwhere(surface).astype(float) for surface in surfaces]
    ours = hausdorff_distance(surface_distances(*points), surface_distances(*points[::-1]), percentile=100)
    assert ours == pytest.approx(skimage_hausdorff(*surfaces))


def test_sections_together_are_pooled_by_pixels(random):
    pairs = [random.integers(0, 4, (2, 9, 9)) for _ in range(4)]
    parts = [boundary_agreement(*pair, FOUR, Resolution(4, 5)) for pair in pairs]
    parts.append(boundary_agreement(np.zeros((3, 3), int), np.zeros((3, 3), int), FOUR, Resolution(4, 5)))
    total = BoundaryAgreement.total(parts)
    for label in range(4):
        hits = sum(p.true_hits[0, label] + p.predicted_hits[0, label] for p in parts)
        size = sum(p.true_pixels[label] + p.predicted_pixels[label] for p in parts)
        assert total.surface_dice(10)[label] == hits / size
        assert total.hausdorff_um[label] == pytest.approx(np.mean([p.hausdorff_um[label] for p in parts[:4]]))


NOTHING = np.zeros((2, 2), int)


@pytest.mark.parametrize(
    ("truth", "prediction"),
    [(NOTHING, np.zeros((2, 3), int)), (np.zeros(4, int),) * 2, (np.full((2, 2), 4), NOTHING), (NOTHING, NOTHING + 9)],
    ids=["sizes", "flat", "true-index", "predicted-index"],
)
def test_what_cannot_be_compared_is_refused(truth, prediction):
    with pytest.raises(DataError):
        boundary_agreement(truth, prediction, FOUR, Resolution(1, 1))
    for tolerances in ([], [math.nan], [-1]):
        with pytest.raises(UsageError):
            boundary_agreement(NOTHING, NOTHING, FOUR, Resolution(1, 1), tolerances_um=tolerances)


def literal_lengths(mask, known, mpp):
    """Length of the sides between every two classes, one pixel pair at a time."""
    lengths = {}
    height, width = mask.shape
    for y, x in np.ndindex(mask.shape):
        for (v, u), side in (((y, x + 1), mpp.y), ((y + 1, x), mpp.x)):
            if v < height and u < width and known[y, x] and known[v, u] and mask[y, x] != mask[v, u]:
                pair = tuple(sorted((int(mask[y, x]), int(mask[v, u]))))
                lengths[pair] = lengths.get(pair, 0) + side
    return lengths


@given(section=sections(), x=MPP, y=MPP)
def test_the_graph_is_that_of_the_literal_definition(section, x, y):
    truth, prediction = section
    mpp, known = Resolution(x, y), truth != IGNORE
    true, found = literal_lengths(truth, known, mpp), literal_lengths(prediction, known, mpp)
    # Sums of sides in another order may differ in the last bit, which must not decide about an edge.
    assume(all(abs(um - MIN_LENGTH_UM) > 1e-7 for um in (*true.values(), *found.values())))
    got = graph_agreement(truth, prediction, FOUR, mpp)
    edges = [{pair for pair, um in lengths.items() if um > MIN_LENGTH_UM} for lengths in (true, found)]
    both = len(edges[0] & edges[1])
    assert got.recall == (both / len(edges[0]) if edges[0] else None)
    assert got.precision == (both / len(edges[1]) if edges[1] else None)
    assert got.f1 == (pytest.approx(2 * both / (len(edges[0]) + len(edges[1]))) if edges[0] | edges[1] else None)
    errors = {pair: abs(true.get(pair, 0) - found.get(pair, 0)) for pair in true | found}
    by_pair = {tuple(FOUR.index(name) for name in each["tissues"]): each for each in got.as_dict()["interfaces"]}
    assert {pair: each["error_um"] for pair, each in by_pair.items()} == pytest.approx(errors)
    for pair, each in by_pair.items():
        assert each["relative_error"] == (pytest.approx(errors[pair] / true[pair]) if pair in true else None)
    overall = pytest.approx(sum(errors.values()) / sum(true.values())) if true else None
    assert got.relative_error == overall


@pytest.mark.parametrize(("mpp", "edges"), [(10, 0), (10.01, 1)])
def test_edges_are_named_longer_than_the_minimum_and_told_apart_from_missed_and_invented_ones(mpp, edges):
    truth, prediction = np.array([[0, 1, 2]] * 5), np.array([[0, 1, 3]] * 5)
    got = graph_agreement(truth, prediction, FOUR, Resolution(mpp, mpp)).as_dict()
    kinds = {tuple(each["tissues"]): (each["found"], each["missed"], each["invented"]) for each in got["interfaces"]}
    assert kinds == {("A", "B"): (edges, 0, 0), ("B", "C"): (0, edges, 0), ("B", "D"): (0, 0, edges)}
    assert got["adjacency_precision"] == got["adjacency_recall"] == got["adjacency_f1"] == (0.5 if edges else None)
    assert [each["relative_error"] for each in got["interfaces"]] == [0, 1, None]
    assert json.loads(json.dumps(got)) == got


def test_sections_are_counted_one_by_one_so_that_errors_cannot_cancel():
    short, long = np.array([[0, 1]] * 6), np.array([[0, 1]] * 6)
    short[2:] = 0
    mpp = Resolution(20, 20)
    too_short, too_long = graph_agreement(long, short, FOUR, mpp), graph_agreement(short, long, FOUR, mpp)
    none = graph_agreement(np.full((6, 2), 3), np.full((6, 2), 3), FOUR, mpp)
    total = GraphAgreement.total([too_short, none, too_long])
    (interface,) = total.as_dict()["interfaces"]
    # 6 sides of 20 µm against 2 of them and one below: 120 µm and 60 µm, each once the truth.
    assert (interface["true_um"], interface["predicted_um"], interface["error_um"]) == (180, 180, 120)
    assert (interface["found"], interface["missed"], interface["invented"]) == (2, 0, 0)
    assert total.relative_error == pytest.approx(120 / 180)
    assert none.f1 is None
    assert none.relative_error is None
