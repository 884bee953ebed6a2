"""The error of measurements: what is counted where, by hand."""

import pytest

from bench import measurement_error as bench


def test_errors_are_counted_where_they_belong():
    found = bench.errors([1.0, None, 2.0, None, 0.505], [1.1, 2.0, None, None, 0.5], pixel=0.0067, degrees=False)
    assert (found.sections, found.values, found.reasons, found.missing, found.invented) == (5, 2, 1, 1, 1)
    assert (found.median, found.ninetieth) == pytest.approx((0.0525, 0.0905))
    assert found.promised == 1
    turned = bench.errors([359.0, 10.0], [3.0, 190.0], pixel=0.0067, degrees=True)
    assert turned.median == pytest.approx(92.0)
    assert turned.promised == 1
    none = bench.errors([None], [None], pixel=0.0067, degrees=False)
    assert (none.values, none.median, none.ninetieth) == (0, None, None)


def test_tables_are_compared_with_what_was_drawn():
    row = {"deep_clearance_mm": 0.4, "lateral_clearance_mm": None, "invasion_depth_mm": None}
    pieces = [{"tissue_area_mm2": 1.0, "orientation_deg": 3.0}, {"tissue_area_mm2": 2.0, "orientation_deg": None}]
    assert bench.found_in(row, pieces) == {"clearance": 0.4, "depth": None, "orientation": None}
    assert bench.found_in({**row, "lateral_clearance_mm": 0.1}, pieces[:1])["clearance"] == 0.1
    assert bench.found_in(row, [])["orientation"] is None
    drawn = {"clearance_um": 0.0, "depth_um": None, "surface_deg": 12.0}
    assert bench.truth_of(drawn) == {"clearance": 0.0, "depth": None, "orientation": 12.0}
