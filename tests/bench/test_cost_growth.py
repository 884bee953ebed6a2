"""Exponents are slopes, and measurements of small masks come back."""

import pytest

from bench import cost_growth as bench


def test_exponents_are_those_of_powers():
    amounts = [1.0, 2.0, 4.0, 8.0]
    for power in (0.0, 1.0, 1.5):
        assert bench.exponent(amounts, [3 * amount**power for amount in amounts]) == pytest.approx(power, abs=1e-9)


def test_finer_patches_are_more_regions(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "MASK", 128)
    monkeypatch.setattr(bench, "SIDE", 64)
    coarse, fine = (bench.of_regions(tmp_path, enlarged) for enlarged in (4, 1))
    assert fine.amount > 4 * coarse.amount
    assert min(coarse.seconds, fine.seconds) > 0


def test_the_table_has_a_line_for_each_kind():
    measured = [bench.Measured(amount, 2 * amount, 40.0) for amount in (1, 10, 100, 1000)]
    assert bench.table({"slides": measured}).splitlines()[2] == (
        "| slides | 1, 10, 100, 1,000 | 2.00, 20.00, 200.00, 2000.00 | 1.00 | 40, 40, 40, 40 | 0.00 |"
    )
