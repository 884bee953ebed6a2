"""Other laboratories' stains: haematoxylin and eosin varied in optical-density space.

Light through tissue follows Beer–Lambert: the optical density ``OD = -log((I + 1) / 256)`` of a pixel is the sum
over stains of concentration times the stain's colour vector. A batch of stain strengths is thus one 3×3 matrix and
one offset per image.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ntrm.data.augmentation.sending import send

HAEMATOXYLIN = (0.650, 0.704, 0.286)
EOSIN = (0.072, 0.990, 0.105)
"""Optical densities of the pure stains in red, green and blue (Ruifrok and Johnston 2001)."""


def stain_matrix(haematoxylin: tuple[float, ...] = HAEMATOXYLIN, eosin: tuple[float, ...] = EOSIN) -> Tensor:
    """Unit colour vectors of haematoxylin, eosin and what neither explains, as rows of a (3, 3) matrix."""
    first, second = torch.tensor(haematoxylin), torch.tensor(eosin)
    stains = torch.stack([first, second, torch.linalg.cross(first, second)])
    return functional.normalize(stains, dim=1)


def optical_density(images: Tensor) -> Tensor:
    """Optical density of images in [0, 1]: 0 for glass, log 256 for black."""
    return -((images * 255 + 1) / 256).log()


def from_optical_density(density: Tensor) -> Tensor:
    """Images in [0, 1] of an optical density; inverse of ``optical_density``."""
    return ((256 * density.clamp(0, math.log(256)).neg().exp() - 1) / 255).clamp(0, 1)


def jitter_stains(images: Tensor, scale: Tensor, shift: Tensor, stains: Tensor | None = None) -> Tensor:
    """Images with every stain's concentration c replaced by ``scale · c + shift``.

    Args:
        images: (B, 3, H, W) in [0, 1].
        scale: (B, 2), haematoxylin and eosin; 1 changes nothing.
        shift: (B, 2); 0 changes nothing.
        stains: (3, 3) as ``stain_matrix`` gives; for slides whose own vectors are known.

    """
    stains = (stain_matrix() if stains is None else stains).to(scale)
    scale = torch.cat([scale, torch.ones_like(scale[:, :1])], dim=1)  # the remainder is left alone
    # In row vectors c = od · stains⁻¹ and od' = (c · scale + shift) · stains; below od is a column.
    mixing = stains.T @ (scale[:, :, None] * stains.T.inverse())  # (B, 3, 3)
    offset = shift @ stains[:2]  # (B, 3)
    mixing, offset = send(mixing, images).to(images.dtype), send(offset, images).to(images.dtype)
    density = torch.einsum("bij,bjhw->bihw", mixing, optical_density(images)) + offset[:, :, None, None]
    return from_optical_density(density)
