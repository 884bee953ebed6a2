"""The regression: its optimum by the gradient and by random steps."""

import numpy as np

from ntrm.correct.classifier import RIDGE, RIDGE_OF_BIAS, Examples, fitted


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
