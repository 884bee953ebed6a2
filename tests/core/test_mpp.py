import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.mpp import Resolution, level_factor, level_resolution, parse_levels


@pytest.mark.parametrize(("level", "mpp"), [("1x", 0.67), ("2x", 1.34), ("5x", 3.35), ("10x", 6.7)])
def test_levels_are_downsample_factors_of_the_original(level, mpp):
    assert level_resolution(level) == Resolution(mpp, mpp)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-3, 2540.0])
def test_implausible_values_are_refused_not_repaired(bad):
    with pytest.raises(RefusedError, match="implausible") as caught:
        Resolution(bad, 0.5)
    assert caught.value.expected == "a number between 0.05 and 100 µm/px"
    assert ".csv" not in caught.value.hint  # not every command has one
    with pytest.raises(RefusedError, match="along y"):
        Resolution(0.5, bad)


@given(st.floats(0.2, 40), st.floats(0.2, 40), st.floats(0.5, 2))
def test_tolerance_is_five_percent_per_axis_and_symmetric(x, y, change):
    assume(abs(abs(1 - change) - 0.05 * max(1, change)) > 1e-9)  # on the border itself rounding decides
    here, there = Resolution(x, y), Resolution(x, y * change)
    assert here.same_as(there) == there.same_as(here) == (abs(1 - change) <= 0.05 * max(1, change))


def test_anisotropic_pixels_keep_both_numbers():
    resolution = Resolution(0.5, 2.0)
    assert str(resolution) == "0.5 × 2 µm/px"
    assert resolution.mean == 1.0
    assert resolution.pixel_area_um2 == 1.0


@pytest.mark.parametrize("bad", ["", "x", "0x", "-2x", "2.5x", "10", "10X", "9999x", "١x"])
def test_bad_level_names_are_refused(bad):
    with pytest.raises(UsageError):
        level_factor(bad)


def test_levels_come_coarsest_first_without_repeats():
    assert parse_levels(" 2x,10x, 5x,2x") == ("10x", "5x", "2x")
    with pytest.raises(UsageError):
        parse_levels(" , ")
