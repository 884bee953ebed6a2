"""With and without a reference the same slide is segmented, and the shares are those of a repeat."""

from tests.familiarity.small import make_network, register
from tests.pipeline.small import paint, write_slide

from bench import familiarity_cost as bench


def test_every_call_of_the_comparison_is_timed_in_the_second_run_only(tmp_path, random, monkeypatch):
    register(monkeypatch)
    make_network().save_pretrained(tmp_path / "model")
    slide = write_slide(tmp_path / "a.tif", paint(random))
    (found,) = bench.study(slide, str(tmp_path / "model"), tmp_path, repeats=1, device="cpu", batch=4)
    assert found.keys() == {"without", "with", *bench.CALLS}
    assert min(found.values()) > 0
    assert sum(found[name] for name in bench.CALLS) < found["with"]
    assert not [*(tmp_path / "model").glob("reference.*")]


def test_the_table_has_medians_of_shares():
    rounds = [
        {"without": whole, "with": 1.1 * whole, "cells": 0.011 * whole, "verdict": 0.0, "map": 0.0}
        for whole in (1.0, 2.0, 9.0)
    ]
    assert "| with | 2.200 | 1.1000 |" in bench.table(rounds)
    assert "| cells | 0.022 | 0.0100 |" in bench.table(rounds)
    assert bench.table(rounds).endswith("| comparison | | 0.0100 |")
