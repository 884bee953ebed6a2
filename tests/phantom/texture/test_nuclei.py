import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.phantom.texture.canvas import Window
from ntrm.phantom.texture.nuclei import Nuclei, splat


def some_nuclei(seed, count, extent_um):
    draw = np.random.default_rng(seed)
    long = draw.uniform(2, 7, count)
    return Nuclei(
        *draw.uniform(15, extent_um - 15, (2, count)),
        long_um=long,
        short_um=long * draw.uniform(0.1, 1, count),
        angle=draw.uniform(0, np.pi, count),
        haematoxylin=draw.uniform(0.1, 1, count),
        rim=draw.uniform(0, 1, count),
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0.25, 0.67, 1.34, 3.35, 6.7]))
def test_dye_is_conserved_at_every_resolution(seed, count, mpp):
    nuclei = some_nuclei(seed, count, 120)
    side = int(np.ceil(134 / mpp))
    drawn = splat(nuclei, Window((0.0, 0.0), (side, side), mpp)).sum(dtype=float) * mpp**2
    assert drawn == pytest.approx((nuclei.haematoxylin * np.pi * nuclei.long_um * nuclei.short_um).sum(), rel=1e-4)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_windows_fit_together(seed):
    nuclei = some_nuclei(seed, 60, 120)
    whole = splat(nuclei, Window((0.0, 0.0), (60, 60), 2.0))
    parts = [[splat(nuclei, Window((y, x), (30, 30), 2.0)) for x in (0.0, 60.0)] for y in (0.0, 60.0)]
    assert np.block(parts) == pytest.approx(whole, abs=1e-4)


@settings(deadline=None, max_examples=30)
@given(st.floats(-1.5, 1.5))
def test_a_nucleus_lies_along_its_angle(angle):
    one = Nuclei(*(np.array([v]) for v in (50.0, 50.0, 7.0, 2.0, angle, 1.0, 0.0)))
    drawn = splat(one, Window((0.0, 0.0), (200, 200), 0.5)).astype(float)
    y, x = np.meshgrid((np.arange(200) + 0.5) * 0.5 - 50, (np.arange(200) + 0.5) * 0.5 - 50, indexing="ij")
    cross, along_x, along_y = (drawn * x * y).sum(), (drawn * x * x).sum(), (drawn * y * y).sum()
    assert 0.5 * np.arctan2(2 * cross, along_x - along_y) == pytest.approx(angle, abs=0.03)


def test_a_rim_makes_the_middle_pale():
    even, rimmed = (Nuclei(*(np.array([v]) for v in (25.0, 25.0, 6.0, 6.0, 0.0, 1.0, rim))) for rim in (0.0, 1.0))
    window = Window((0.0, 0.0), (100, 100), 0.5)
    assert splat(rimmed, window)[50, 50] < 0.6 * splat(even, window)[50, 50]
    assert splat(rimmed, window)[50, 60] > splat(even, window)[50, 60]


def test_no_nuclei_no_dye():
    none = Nuclei(*(np.zeros(0) for _ in range(7)))
    assert not splat(none, Window((0.0, 0.0), (5, 6), 1.0)).any()
