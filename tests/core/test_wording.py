import numpy as np

from ntrm.core.wording import MINUS, signed, with_minus


def test_signs_are_a_plus_and_a_true_minus_and_the_number_stays(random):
    for value in [*random.normal(scale=50, size=50), 0.0, -0.0]:
        digits = int(random.integers(0, 5))
        text = signed(float(value), digits)
        assert text[0] in ("+", MINUS)
        assert "-" not in text
        assert float(text.replace(MINUS, "-")) == float(np.round(float(f"{value:.{digits}f}"), digits))
    assert with_minus("1e-05") == "1e−05"
