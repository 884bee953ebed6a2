"""The literal oracle of the section relation against numbers worked out by hand."""

import math

import numpy as np
import pytest
from tests.reference import section_literal as literal

TWO = np.array([[[1.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
"""Tissue 0 in two cells of a row, tissue 1 in the third."""


def test_contacts_are_counted_from_both_sides():
    assert literal.contact(TWO).tolist() == [[2, 1], [1, 0]]
    assert literal.shares_of_contact(literal.contact(TWO)) == pytest.approx(np.array([[0, 1], [1, 0]]), abs=1e-5)


def test_nearness_leaves_out_what_is_outside():
    # Within one cell: around cell 0 tissue 0 alone; around cell 1 a third is tissue 1; around cell 2 a half.
    assert literal.nearness(TWO, 1) == pytest.approx(np.array([[1 + 2 / 3, 1 / 3], [1 / 2, 1 / 2]]))


def test_sums_by_hand():
    masks = np.zeros((2, 4, 4))
    masks[0, :, :3], masks[1, :, 3] = 1, 1
    d2 = np.tile(np.arange(4.0), (1, 4, 1))
    found = literal.gather(masks, d2, np.array([[[7.0]]]), "both", 1)
    assert found.weight.tolist() == [12, 4]
    assert found.features.tolist() == [[4 * (0 + 1 + 2), 12 * 7], [4 * 3, 4 * 7]]
    twice = literal.add([found, found])
    assert twice.weight.tolist() == [24, 8]
    assert twice.pairs[0, 0, 1] == 2 * 4


def test_tokens_weigh_by_what_they_look_for():
    e5 = np.array([[[1.0, 3.0]], [[3.0, 1.0]]])
    norm = {"weight": np.ones(2), "bias": np.zeros(2)}
    found = literal.gather_cells(np.zeros((1, 4, 8)), e5, "e5", np.array([[0.0, 0.5]]), norm)
    # Normed, the cells are (-1, 1) and (1, -1), so that the scores are ±0.5.
    up, down = (math.exp(8 * math.tanh(score / 8)) for score in (0.5, -0.5))
    assert found.weight == pytest.approx(np.array([up + down]), rel=1e-5)
    assert found.features[0] == pytest.approx(np.array([up + 3 * down, 3 * up + down]), rel=1e-5)


def test_the_most_probable_class_takes_all():
    logits = np.array([[[1.0, 0.0]], [[0.0, 2.0]]])
    assert literal.masks_of(logits, "straight-through", 1.0).tolist() == [[[1, 0]], [[0, 1]]]
    warm = literal.masks_of(logits, "soft", 2.0)
    assert warm[0, 0, 0] == pytest.approx(1 / (1 + math.exp(-0.5)))


def test_pixels_share_their_attention_with_silence():
    params = {
        "readout.key.weight": np.array([[1.0]]), "readout.value.weight": np.array([[1.0]]),
        "readout.value.bias": np.array([2.0]), "readout.silence": np.array([0.0]),
        "readout.query.weight": np.array([[1.0]]), "readout.query.bias": np.array([0.0]),
        "readout.out.weight": np.array([[10.0]]), "readout.out.bias": np.array([1.0]),
    }  # fmt: skip
    found = literal.ask(np.array([[[0.0, math.log(3.0)]]]), np.array([[1.0], [5.0]]), [True, False], params, 1)
    # The node says 3; a pixel of 0 gives it half of its attention, one of log 3 three quarters.
    assert found[0, 0] == pytest.approx(np.array([10 * 1.5 + 1, 10 * 2.25 + 1]))


def test_nodes_are_pasted_under_their_masks():
    params = {"readout.out.weight": np.array([[2.0]]), "readout.out.bias": np.array([0.5])}
    found = literal.paste(np.array([[[1.0, 0.25]], [[0.0, 0.75]]]), np.array([[1.0], [4.0]]), [True, True], params)
    assert found[0, 0] == pytest.approx(np.array([2.5, 0.5 + 2 * (0.25 + 3.0)]))
