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


def test_a_band_of_twice_the_density_is_a_fold_unless_its_hue_differs_or_it_lies_along_the_surface(random):
    tissue, band = np.ones((150, 250), dtype=bool), slice(70, 80)
    twice, in_a_tumour, other_hue, follicle, below_the_surface = (plain(random) for _ in range(5))
    in_a_tumour[:, 90:160] += np.float32([0.12, 0.1, 0.05])
    for density in (twice, in_a_tumour, follicle):
        density[band] *= 2
    follicle[band] += np.float32([0.1, 0, 0])
    other_hue[band] *= (6, 2, 2)
    for turned in (False, True):
        density = twice.transpose(1, 0, 2) if turned else twice
        found = folds(density, tissue.T if turned else tissue)
        found = found.T if turned else found
        assert found[35:40].any(axis=0).mean() > 0.7
        assert not np.delete(found, slice(28, 48), axis=0).any()
    assert folds(in_a_tumour, tissue)[35:40].any(axis=0).mean() > 0.7
    assert not folds(other_hue, tissue).any()
    assert not folds(follicle, tissue).any()
    # Epidermis between keratin and dermis has the hue of a fold where the stain is weak in blue.
    below_the_surface[:40] = 0
    below_the_surface[52:62] *= 2
    assert not folds(below_the_surface, tissue & (np.arange(150) >= 40)[:, None]).any()


def test_finds_most_folds_in_stained_sections(section_seed):
    tissue = skin_mask() != BKG
    hits = 0
    for k in range(2):
        picture = folded(undisturbed(section_seed + k), slice(82, 92), slice(70, 260))
        found = folds(optical_density(picture), tissue)
        hits += found[40:47].any(axis=0).sum() > 30
        assert not found[~tissue[::2, ::2]].any()
    # Measured: 60 of 60.
    assert hits >= 1


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
    for _ in range(2):
        planes = streaked(random, 150, 230)
        tissue = ndimage.gaussian_filter(random.standard_normal((150, 230)), 12) > -0.02
        planes[1][~tissue] *= 0.2
        expected = folds_literal.find_folds(planes, tissue, scale)
        np.testing.assert_array_equal(find_folds(planes, tissue, scale), expected)
