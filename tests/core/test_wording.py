from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ntrm.core.wording import MINUS, short_repr, signed, with_minus


def test_signs_are_a_plus_and_a_true_minus_and_the_number_stays(random):
    for value in [*random.normal(scale=50, size=50), 0.0, -0.0]:
        digits = int(random.integers(0, 5))
        text = signed(float(value), digits)
        assert text[0] in ("+", MINUS)
        assert "-" not in text
        assert float(text.replace(MINUS, "-")) == float(np.round(float(f"{value:.{digits}f}"), digits))
    assert with_minus("1e-05") == "1e−05"


@dataclass(frozen=True, eq=False)
class Found:
    name: str
    values: np.ndarray
    numbers: tuple[int, ...]

    __repr__ = short_repr


class Pair(NamedTuple):
    name: str
    values: np.ndarray

    __repr__ = short_repr


def test_a_result_says_how_large_its_arrays_are_and_not_what_they_hold():
    values = np.zeros((12, 400), np.float32)
    assert repr(Found("a", values, (1, 2))) == "Found(name='a', values=float32 (12, 400), numbers=(1, 2))"
    assert repr(Found("a", values, tuple(range(50)))).endswith("numbers=tuple of 50)")
    assert repr(Found("a", values, tuple(range(5000)))).endswith("numbers=tuple of 5000)")
    assert repr(Pair("a", values)) == "Pair(name='a', values=float32 (12, 400))"
