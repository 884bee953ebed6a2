"""Calibration against torchmetrics, literal sums and scipy's own minimisers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from tests.reference.calibration_counts import calibration_counts

from ntrm.core.errors import DataError
from ntrm.metrics.calibration import TEMPERATURES, CalibrationCounts, fit_temperature


def draw(random, classes=5, size=(2, 12, 10), scale=2.0):
    """Logits (B, K, H, W) and a truth drawn from their softmax, partly ignored."""
    batch, height, width = size
    logits = random.normal(scale=scale, size=(batch, classes, height, width))
    gumbel = random.gumbel(size=logits.shape)
    truth = (logits + gumbel).argmax(axis=1).astype(np.uint8)
    truth[random.random(size) < 0.2] = 255
    return logits, truth


def rows(values, truth):
    """(n, K) and (n,) of the known pixels, for the references."""
    return np.moveaxis(values, 1, -1)[truth != 255], truth[truth != 255].astype(int)


def fit(logits, truth):
    """The temperature of the known pixels."""
    known, labels = rows(logits, truth)
    return fit_temperature(known.T, labels)


def test_expected_error_is_torchmetrics(random):
    from torchmetrics.functional.classification import multiclass_calibration_error

    logits, truth = draw(random)
    probabilities = special.softmax(logits, axis=1)
    known, labels = rows(probabilities, truth)
    expected = multiclass_calibration_error(
        torch.from_numpy(known), torch.from_numpy(labels), num_classes=5, n_bins=10, norm="l1"
    )
    counts = calibration_counts(probabilities, truth, bins=10)
    assert counts.total == len(labels)
    # torchmetrics adds in float32.
    assert counts.expected_error == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([np.float32, np.float64]))
def test_brier_is_the_mean_squared_distance(seed, classes, dtype):
    logits, truth = draw(np.random.default_rng(seed), classes, size=(1, 4, 3))
    probabilities = special.softmax(logits, axis=1).astype(dtype)
    known, labels = rows(probabilities.astype(np.float64), truth)
    distances = [
        sum((p - (c == label)) ** 2 for c, p in enumerate(row)) for row, label in zip(known, labels, strict=True)
    ]
    expected = sum(distances) / len(distances) if distances else None
    assert calibration_counts(probabilities, truth).brier == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_the_reliability_table_is_a_literal_one(seed, bins):
    logits, truth = draw(np.random.default_rng(seed), size=(1, 6, 6))
    known, labels = rows(special.softmax(logits, axis=1), truth)
    table = calibration_counts(special.softmax(logits, axis=1), truth, bins=bins).reliability()
    assert [row.low for row in table[1:]] == [row.high for row in table[:-1]]
    assert (table[0].low, table[-1].high) == (0, 1)
    for row in table:
        inside = (known.max(axis=1) >= row.low) & ((known.max(axis=1) < row.high) | (row.high == 1))
        assert row.pixels == inside.sum()
        if inside.any():
            assert row.confidence == pytest.approx(known[inside].max(axis=1).mean())
            assert row.accuracy == pytest.approx((known[inside].argmax(axis=1) == labels[inside]).mean())
        else:
            assert row.confidence is row.accuracy is None


def test_tiles_add_up(random):
    logits, truth = draw(random, size=(4, 8, 8))
    probabilities = special.softmax(logits, axis=1)
    tiles = (calibration_counts(p, t) for p, t in zip(probabilities, truth, strict=True))
    summed, whole = sum(tiles, CalibrationCounts.none()), calibration_counts(probabilities, truth)
    assert np.array_equal(summed.pixels, whole.pixels)
    assert np.array_equal(summed.correct, whole.correct)
    assert summed.expected_error == pytest.approx(whole.expected_error, rel=1e-12)
    assert summed.brier == pytest.approx(whole.brier, rel=1e-12)


def test_the_temperature_is_the_likeliest(random):
    logits, truth = draw(random, size=(2, 40, 40))
    stretch = float(np.exp(random.uniform(-1.5, 1.5)))
    known, labels = rows(stretch * logits, truth)

    def nll(parameters):  # over the sharpness 1/T, by another method than the tested one
        return -special.log_softmax(known * parameters[0], axis=1)[np.arange(len(labels)), labels].mean()

    expected = 1 / optimize.minimize(nll, x0=[1 / stretch], method="Nelder-Mead", options={"xatol": 1e-9}).x[0]
    found = fit(stretch * logits, truth)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found == pytest.approx(stretch, rel=0.15), "the truth was drawn at temperature 1 before the stretch"
    assert found == fit(stretch * logits, truth), "deterministic"


def test_the_temperature_stays_in_its_range(random):
    logits, _ = draw(random, size=(1, 10, 10))
    low, high = TEMPERATURES
    for scale in (1, 5, 50):
        assert fit(scale * logits, logits.argmax(axis=1)) == pytest.approx(low), "always right: ever surer"
    assert fit(logits, logits.argmin(axis=1)) == pytest.approx(high, rel=0.02), "always wrong: never sure"


@pytest.mark.parametrize("logits", [np.zeros((2, 0)), np.array([[math.inf], [0.0]]), np.array([[math.nan], [0.0]])])
def test_a_sample_that_cannot_be_fitted_is_refused(logits):
    with pytest.raises(DataError, match="no temperature"):
        fit_temperature(logits, np.zeros(logits.shape[1]))
