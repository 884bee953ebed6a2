"""What clicks say about texture: a multinomial logistic regression on the pixels that a person named.

With standardised numbers x of a pixel, of which there are D, and the network's word z (log-probabilities, if there is a
network), class k has the logit

    s · z_k + w_k · x + b_k,      s = ½ / (1 + .15 n) after n clicks

The loss is the sum of the cross-entropies of the pixels named, and of *anchors*: up to 30 pixels of each class of which
the network is sure, with its own word for them, weighted by 1 / (1 + .15 n). So the network's word fades with the
clicks: it helps the first few, and hurts after ten. L2 of λ = .05 on w and a tenth of it on b make the optimum unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.core.errors import RefusedError
from ntrm.correct.texture import Texture

RIDGE, RIDGE_OF_BIAS = 0.05, 0.005
WORD, FADING = 0.5, 0.15
TOLERANCE, MOST_ROUNDS = 1e-3, 300  # Of the gradient of the sum over some hundred pixels


class Examples(NamedTuple):
    """Pixels whose class is known, and what is known of them."""

    numbers: Floats  # (n, D) standardised
    word: Floats  # (n, K) logits that the network's word adds, 0 where there is none
    tissue: Ints  # (n,)
    weight: Floats  # (n,)

    @classmethod
    def together(cls, parts: Sequence[Examples]) -> Examples:
        """Of several slides."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class About(NamedTuple):
    """What a classifier was learned from."""

    zooms: tuple[int, ...]
    classes: tuple[str, ...]
    named: tuple[str, ...]  # Classes that a person gave: the others are only the network's


@dataclass(frozen=True, eq=False)
class Classifier:
    """Weights (K, D + 1) by class, the last column the bias."""

    about: About
    weights: Floats

    def logits(self, texture: Texture, part: slice) -> NDArray[np.float32]:
        """(K, n) of what clicks say about some of the h·w pixels of a slide that have features."""
        if texture.zooms != self.about.zooms:
            raise RefusedError(
                "the slide has other resolutions than those that were clicked on",
                got=" and ".join(map(str, texture.zooms)) + " pixels along a pixel of its mask",
                expected=" and ".join(map(str, self.about.zooms)),
            )
        own = (self.weights[:, :-1] @ texture.basis.T).astype(np.float32)  # (K, C)
        return np.asarray(own @ texture.singles[part].T + self.weights[:, -1:].astype(np.float32))


def trust_after(steps: int) -> float:
    """What the network's word counts after so many clicks, 1 before the first."""
    return 1 / (1 + FADING * steps)


def fitted(examples: Examples, classes: Ints) -> Floats:
    """(K, D + 1) the weights with the least loss; rows of classes that are not among ``classes`` are 0."""
    from scipy.optimize import minimize

    numbers = np.concatenate([examples.numbers, np.ones((len(examples.numbers), 1))], axis=1)
    offset, weight = examples.word[:, classes], examples.weight[:, None]
    target = examples.tissue[:, None] == classes
    ridge = np.append(np.full(numbers.shape[1] - 1, RIDGE), RIDGE_OF_BIAS)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(len(classes), -1)
        logits = offset + numbers @ weights.T
        logits -= logits.max(axis=1, keepdims=True)
        total = np.exp(logits).sum(axis=1, keepdims=True)
        entropy = weight * (np.log(total) - logits[target][:, None])
        slope = (weight * (np.exp(logits) / total - target)).T @ numbers
        return float(entropy.sum() + (ridge * weights**2).sum() / 2), (slope + ridge * weights).ravel()

    begin = np.zeros(len(classes) * numbers.shape[1])
    options = {"maxiter": MOST_ROUNDS, "gtol": TOLERANCE, "ftol": 1e-9}
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options)
    weights = np.zeros((examples.word.shape[1], numbers.shape[1]))
    weights[classes] = found.x.reshape(len(classes), -1)
    return weights
