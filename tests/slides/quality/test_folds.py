import numpy as np
import pytest
from scipy import ndimage
from tests.reference import folds_literal
from tests.slides.pictures import BKG, MPP, folded, optical_density, skin_mask, undisturbed

from ntrm.core.mpp import Resolution
from ntrm.core.pixels import block_means
from ntrm.slides.quality.folds import find_folds
from ntrm.slides.quality.thumbnail import AVERAGED_UM, blurred

COARSE = Resolution.square(2 * MPP)


def folds(density, tissue):
    planes = [blurred(block_means(density[..., k], (2, 2)), AVERAGED_UM, COARSE) for k in range(3)]
    return find_folds(planes, block_means(tissue, (2, 2)) > 0.5, COARSE)


def plain(random, height=150, width=250):
    """Dermis only, with some noise: nothing in it is denser than its surroundings."""
    density = np.array([0.02, 0.16, 0.05]) * random.normal(1.0, 0.1, (height, width, 1))
    return density.astype(np.float32)


def test_a_band_of_twice_the_density_is_a_fold(random):
    for turned in (False, True):
        density = plain(random)
        density[70:80] *= 2
        tissue = np.ones(density.shape[:2], dtype=bool)
        if turned:
            density, tissue = density.transpose(1, 0, 2), tissue.T
        found = folds(density, tissue)
        where = found.T if turned else found
        assert where[35:40].any(axis=0).mean() > 0.7
        assert not where[:28].any()
        assert not where[48:].any()


def test_a_band_of_another_hue_is_no_fold(random):
    density = plain(random)
    density[70:80] *= (6, 2, 2)
    assert not folds(density, np.ones(density.shape[:2], dtype=bool)).any()


def test_a_bluer_band_is_no_fold_and_a_fold_of_blue_tissue_is(random):
    """A hair follicle in pink dermis, and a fold that crosses a tumour."""
    density = plain(random)
    density[70:80] = density[70:80] * 2 + np.float32([0.1, 0, 0])
    tissue = np.ones(density.shape[:2], dtype=bool)
    assert not folds(density, tissue).any()
    density = plain(random)
    density[:, 90:160] += np.float32([0.12, 0.1, 0.05])
    density[70:80] *= 2
    assert folds(density, tissue)[35:40].any(axis=0).mean() > 0.7


def test_a_band_along_the_surface_is_no_fold(random):
    """Epidermis between keratin and dermis has the hue of a fold where the stain is weak in blue."""
    density = plain(random)
    density[:40] = 0
    density[52:62] *= 2
    tissue = np.ones(density.shape[:2], dtype=bool)
    tissue[:40] = False
    assert not folds(density, tissue).any()
    density, tissue = plain(random), np.ones(density.shape[:2], dtype=bool)
    density[52:62] *= 2
    assert folds(density, tissue).any(), "the same in the middle of tissue"


def test_finds_most_folds_in_stained_sections(section_seed):
    tissue = skin_mask() != BKG
    hits = 0
    for k in range(3):
        picture = folded(undisturbed(section_seed + k), slice(82, 92), slice(70, 260))
        found = folds(optical_density(picture), tissue)
        hits += found[40:47].any(axis=0).sum() > 30
        assert not found[~tissue[::2, ::2]].any()
    # Measured: 60 of 60.
    assert hits >= 2


def streaked(random, height, width):
    """Densities with texture, and with bands of all angles and strengths."""
    texture = ndimage.gaussian_filter(random.standard_normal((height, width)), random.uniform(1, 6), mode="nearest")
    green = random.uniform(0.08, 0.4) * np.exp(random.uniform(0.1, 0.8) * texture / texture.std())
    red = green * random.uniform(0.1, 0.9) * random.normal(1, 0.02, green.shape)
    row, column = np.mgrid[:height, :width]
    for _ in range(4):
        angle = random.uniform(0, np.pi)
        away = (row - random.uniform(0, height)) * np.cos(angle) - (column - random.uniform(0, width)) * np.sin(angle)
        times = np.where(np.abs(away) < random.uniform(1, 6), random.uniform(1.1, 2.5), 1)
        red, green = red * times, green * times
    return red.astype(np.float32), green.astype(np.float32), green.astype(np.float32)


@pytest.mark.parametrize("scale", [COARSE, Resolution(19.0, 41.0)])
def test_folds_are_those_of_their_definition(random, scale):
    for _ in range(3):
        planes = streaked(random, 150, 230)
        tissue = ndimage.gaussian_filter(random.standard_normal((150, 230)), 12) > -0.02
        planes[1][~tissue] *= 0.2
        expected = folds_literal.find_folds(planes, tissue, scale)
        np.testing.assert_array_equal(find_folds(planes, tissue, scale), expected)
