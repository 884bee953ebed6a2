"""Pictures that look like stained tissue, as arrays and as tensors."""

import numpy as np
import torch
from scipy import ndimage

from ntrm.data.transforms import EOSIN, HAEMATOXYLIN


def tissue_like(rng, height=120, width=136):
    """A smooth picture in the colours of H&E with some grain."""
    amounts = np.stack([ndimage.gaussian_filter(rng.normal(size=(height, width)), 3) for _ in range(2)], axis=-1)
    amounts = np.clip(amounts / amounts.std() * 0.3 + 0.5 + rng.normal(0, 0.05, amounts.shape), 0, None)
    density = amounts @ np.array([HAEMATOXYLIN, EOSIN])
    return np.clip(256 * np.exp(-density) - 1, 0, 255).round().astype(np.uint8)


def to_tensor(picture):
    return torch.from_numpy(picture).permute(2, 0, 1)[None] / 255


def to_picture(images):
    return images[0].permute(1, 2, 0).numpy() * 255
