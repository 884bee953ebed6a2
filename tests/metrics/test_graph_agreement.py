"""Section graphs against literal loops over pixel sides, and cases worked by hand."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ntrm.core.counts import boundary_counts
from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
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
def test_scores_equal_the_literal_definition(section, x, y):
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
    by_pair = {tuple(FOUR.index(name) for name in each.tissues): each for each in got.interfaces}
    assert {pair: each.error_um for pair, each in by_pair.items()} == pytest.approx(errors)
    for pair, each in by_pair.items():
        assert each.relative_error == (pytest.approx(errors[pair] / true[pair]) if pair in true else None)
    overall = pytest.approx(sum(errors.values()) / sum(true.values())) if true else None
    assert got.relative_error == overall


@given(section=sections())
def test_square_pixels_give_boundary_counts_times_their_side(section):
    truth, _ = section
    lengths = boundary_counts(truth, 4, 2, 2)
    np.testing.assert_array_equal(lengths, 2 * boundary_counts(truth, 4))


def test_interfaces_are_named_and_measured():
    mask = np.full((30, 20), SKIN.index("RET"))
    mask[:10], mask[10:12], mask[25:, :3] = SKIN.index("BKG"), SKIN.index("EPI"), SKIN.index("GLD")
    found = graph_agreement(mask, mask, SKIN, Resolution(x=5, y=10)).interfaces
    assert [interface.tissues for interface in found] == [("EPI", "RET"), ("EPI", "BKG"), ("GLD", "RET")]
    assert found[2].true_um == found[2].predicted_um == 3 * 5 + 5 * 10


@pytest.mark.parametrize(("mpp", "found"), [(10, 0), (10.01, 1)])
def test_an_edge_must_be_longer_than_the_minimum(mpp, found):
    mask = np.array([[0, 1]] * 5)
    (interface,) = graph_agreement(mask, mask, FOUR, Resolution(mpp, mpp)).interfaces
    assert (interface.tissues, interface.found) == (("A", "B"), found)


def test_sections_are_counted_one_by_one_so_that_errors_cannot_cancel():
    short, long = np.array([[0, 1]] * 6), np.array([[0, 1]] * 6)
    short[2:] = 0
    mpp = Resolution(20, 20)
    too_short, too_long = graph_agreement(long, short, FOUR, mpp), graph_agreement(short, long, FOUR, mpp)
    none = graph_agreement(np.full((6, 2), 3), np.full((6, 2), 3), FOUR, mpp)
    total = GraphAgreement.total([too_short, none, too_long])
    (interface,) = total.interfaces
    # 6 sides of 20 µm against 2 of them and one below: 120 µm and 60 µm, each once the truth.
    assert (interface.true_um, interface.predicted_um, interface.error_um) == (180, 180, 120)
    assert (interface.found, interface.missed, interface.invented) == (2, 0, 0)
    assert total.relative_error == pytest.approx(120 / 180)
    assert none.f1 is None
    assert none.relative_error is None


def test_missed_and_invented_edges_are_told_apart():
    truth, prediction = np.array([[0, 1, 2]] * 9), np.array([[0, 1, 3]] * 9)
    got = graph_agreement(truth, prediction, FOUR, Resolution(10, 10))
    kinds = {each.tissues: (each.found, each.missed, each.invented) for each in got.interfaces}
    assert kinds == {("A", "B"): (1, 0, 0), ("B", "C"): (0, 1, 0), ("B", "D"): (0, 0, 1)}
    document = json.loads(json.dumps(got.as_dict()))
    assert document["adjacency_precision"] == document["adjacency_recall"] == document["adjacency_f1"] == 0.5
    assert [each["relative_error"] for each in document["interfaces"]] == [0, 1, None]
