import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import UsageError
from ntrm.phantom.stain import Stain

SEEDS = st.integers(0, 2**63)


@given(st.floats(0, 2), st.floats(0, 2), SEEDS, SEEDS)
def test_light_follows_beer_and_lambert(haematoxylin, eosin, patient, laboratory):
    stain = Stain.draw(patient, laboratory)
    got = stain.transmit(np.full((1, 1), haematoxylin, np.float32), np.full((1, 1), eosin, np.float32))[0, 0]
    for channel in range(3):
        of_h = stain.haematoxylin[channel] / sum(v * v for v in stain.haematoxylin) ** 0.5 * stain.haematoxylin_strength
        of_e = stain.eosin[channel] / sum(v * v for v in stain.eosin) ** 0.5 * stain.eosin_strength
        expected = stain.illumination[channel] * 10 ** -(haematoxylin * of_h + eosin * of_e)
        assert got[channel] == pytest.approx(expected, rel=1e-4)


@given(SEEDS, SEEDS)
def test_a_drawn_stain_stays_the_same_and_plausible(patient, laboratory):
    stain = Stain.draw(patient, laboratory)
    assert stain == Stain.draw(patient, laboratory)
    assert stain.haematoxylin[0] > stain.eosin[0], "haematoxylin takes more red than eosin"
    assert min(stain.illumination) > 230


def test_laboratories_differ_more_than_patients():
    def spread(stains):
        rows = [(*s.haematoxylin, *s.eosin, s.haematoxylin_strength, s.eosin_strength, *s.illumination) for s in stains]
        return np.std(rows, axis=0)

    between_patients = spread([Stain.draw(patient, 5) for patient in range(200)])
    between_laboratories = spread([Stain.draw(5, laboratory) for laboratory in range(200)])
    assert (between_laboratories > 1.5 * between_patients).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"haematoxylin": (0.0, 0.0, 0.0)},
        {"eosin": (-0.1, 1.0, 0.0)},
        {"eosin": (float("nan"), 1.0, 0.0)},
        {"eosin_strength": -1.0},
        {"haematoxylin_strength": float("nan")},
        {"illumination": (0.0, 250.0, 250.0)},
        {"illumination": (256.0, 250.0, 250.0)},
    ],
)
def test_unusable_stains_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        Stain(**wrong)
