import numpy as np
import torch
from tests.data.pictures import tissue_like, to_picture, to_tensor

from ntrm.data.augment import EOSIN, HAEMATOXYLIN, from_optical_density, jitter_stains, stain_matrix


def test_neutral_stain_jitter_changes_nothing(random):
    images = torch.from_numpy(random.integers(0, 256, (2, 3, 16, 16))) / 255
    same = jitter_stains(images, torch.ones(2, 2), torch.zeros(2, 2))
    assert torch.equal((same * 255).round(), (images * 255).round())


def test_stain_jitter_agrees_with_unmixing_pixel_by_pixel(random):
    picture = tissue_like(random, 6, 7)
    scale, shift = random.uniform(0.7, 1.3, 2), random.uniform(-0.1, 0.1, 2)
    ours = to_picture(jitter_stains(to_tensor(picture), *torch.from_numpy(np.stack([scale, shift]))[:, None]))
    stains = np.array([HAEMATOXYLIN, EOSIN])
    stains = np.vstack([stains, np.cross(*stains)])
    stains /= np.linalg.norm(stains, axis=1, keepdims=True)
    for row, column in np.ndindex(6, 7):
        amounts = np.linalg.solve(stains.T, -np.log((picture[row, column] + 1.0) / 256))
        amounts[:2] = amounts[:2] * scale + shift
        expected = np.clip(256 * np.exp(-stains.T @ amounts) - 1, 0, 255)
        np.testing.assert_allclose(ours[row, column], expected, atol=0.05)


def test_more_haematoxylin_darkens_what_it_stains_and_not_the_glass():
    images = torch.ones(1, 3, 1, 2)
    images[0, :, 0, 0] = from_optical_density(stain_matrix()[0] * 0.5)
    stronger = jitter_stains(images, torch.tensor([[1.5, 1.0]]), torch.zeros(1, 2))
    assert (stronger[0, :, 0, 0] < images[0, :, 0, 0] - 0.01).all()
    assert torch.allclose(stronger[0, :, 0, 1], torch.ones(3), atol=1e-5)
