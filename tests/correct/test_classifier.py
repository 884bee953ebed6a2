"""The regression: its optimum by the gradient and by random steps, and a click model that is kept and read safely."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from ntrm.core.errors import DataError
from ntrm.correct.classifier import RIDGE, RIDGE_OF_BIAS, About, Classifier, Examples, fitted, load_classifier
from ntrm.correct.texture import numbers_of


def examples(seed=0, count=40, size=5, classes=4):
    random = np.random.default_rng(seed)
    return Examples(
        random.normal(size=(count, size)),
        random.normal(size=(count, classes)),
        random.choice([0, 2, 3], count),
        random.uniform(0.2, 1, count),
    )


def loss(given, weights, classes):
    """Pixel by pixel."""
    total = 0.0
    for numbers, word, tissue, weight in zip(*given, strict=True):
        logits = [word[k] + weights[k, :-1] @ numbers + weights[k, -1] for k in classes]
        own = word[tissue] + weights[tissue, :-1] @ numbers + weights[tissue, -1]
        total += weight * (np.log(np.exp(logits).sum()) - own)
    return total + RIDGE / 2 * (weights[:, :-1] ** 2).sum() + RIDGE_OF_BIAS / 2 * (weights[:, -1] ** 2).sum()


def test_no_step_from_the_weights_lessens_the_loss():
    given, classes = examples(), np.array([0, 2, 3])
    weights = fitted(given, classes)
    best = loss(given, weights, classes)
    random = np.random.default_rng(1)
    for size in (1e-2, 0.1, 1.0):
        for _ in range(10):
            step = random.normal(size=weights.shape) * size
            step[1] = 0
            assert loss(given, weights + step, classes) > best
    slope = [
        (loss(given, weights + step, classes) - loss(given, weights - step, classes)) / 2e-5
        for step in np.eye(weights.size)[:6].reshape(6, *weights.shape) * 1e-5
    ]
    np.testing.assert_allclose(slope, 0, atol=5e-3)
    np.testing.assert_array_equal(weights[1], 0)


def test_the_same_examples_give_the_same_weights():
    np.testing.assert_array_equal(fitted(examples(), np.arange(4)), fitted(examples(), np.arange(4)))


ABOUT = About(zooms=(7, 3), mpp=6.7, classes=("a", "b"), named=("b",), slides=("one",), steps=2)


def test_a_click_model_is_kept_and_read(tmp_path):
    weights = np.random.default_rng(0).normal(size=(2, numbers_of((7, 3)) + 1))
    Classifier(ABOUT, weights).save(tmp_path / "clicks.safetensors")
    again = load_classifier(tmp_path / "clicks.safetensors")
    assert replace(again.about, when="") == ABOUT
    assert again.about.when
    np.testing.assert_array_equal(again.weights, weights)


@pytest.mark.parametrize("weights", [np.zeros((2, 5)), np.full((2, numbers_of((7, 3)) + 1), np.nan)])
def test_a_damaged_click_model_is_refused(tmp_path, weights):
    path = tmp_path / "clicks.safetensors"
    Classifier(ABOUT, weights).save(path)
    with pytest.raises(DataError, match="no click model"):
        load_classifier(path)
    save_file({"weights": np.zeros((2, numbers_of((7, 3)) + 1))}, path)
    with pytest.raises(DataError, match="no click model"):
        load_classifier(path)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="no click model"):
        load_classifier(path)
