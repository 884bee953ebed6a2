import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.phantom.texture import structures
from ntrm.phantom.texture.structures import Lines, Noises

LAYERS = (structures.bundles, structures.fibrils, structures.lamellae, structures.whorls, structures.rings)


@pytest.mark.parametrize("layer", LAYERS)
def test_without_noise_strands_run_along_the_surface(layer):
    depth = np.repeat(np.arange(0, 120, 0.5, dtype=np.float32)[:, None], 6, axis=1)
    still = np.zeros_like(depth)
    picture = layer(depth, Noises(still, still, still))
    assert (picture == picture[:, :1]).all(), "nothing changes along the surface"
    assert picture.std() > 0.05, "something changes across it"
    assert picture.dtype == np.float32


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_stay_within_their_range(layer):
    depth, *noises = np.random.default_rng(0).uniform(-2.5, 2.5, (4, 5000)).astype(np.float32)
    assert np.abs(layer(200 * depth, Noises(*noises))).max() <= 1.75


@given(*(st.floats(-5, 5) for _ in range(4)), st.floats(5, 80))
def test_lines_are_where_the_bent_distance_says(distance, bend, grain, wobble, period_um):
    lines = Lines(period_um, steady=0.7, bend_um=20.0, grain_um=5.0, wobble_um=-3.0)
    noises = Noises(*(np.array([v], dtype=np.float32) for v in (bend, grain, wobble)))
    expected = np.cos(2 * np.pi * (70 * distance + 20 * bend + 5 * grain - 3 * wobble) / period_um)
    assert lines.over(np.array([100 * distance], dtype=np.float32), noises)[0] == pytest.approx(expected, abs=1e-3)


def test_lamellae_split_only_where_they_are_bent():
    distance = np.linspace(0, 500, 4000, dtype=np.float32)
    still, bent = np.zeros_like(distance), np.full_like(distance, 0.6)
    assert structures.lamellae(distance, Noises(still, still, still)).min() > -0.5
    assert structures.lamellae(distance, Noises(bent, still, still)).min() < -0.9
