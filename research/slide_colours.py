"""A slide brought to the colours of a reference before a network sees it: several ways, all on tissue alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average
from ntrm.data.stains import MACENKO, Stains, estimate_stains, exchange
from ntrm.data.transforms import from_optical_density, optical_density
from ntrm.pipeline.stain_norm import normalise_stains
from ntrm.wsi.grid import THUMBNAIL_MPP
from ntrm.wsi.quality.thumbnail import Thumbnail, find_pen
from ntrm.wsi.tissue_mask import find_tissue

LEAST_DENSITY = 0.1
"""Mean optical density from which a pixel is tissue."""

Move = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(N, 3) densities, those of the slide's tissue, those of the reference's → (N, 3)."""


def tissue_densities(images: Sequence[Tensor], each: int = 4000) -> Tensor:
    """(N, 3) optical densities of pixels that are no glass, about ``each`` from every image (3, H, W) of bytes."""
    found = []
    for image in images:
        density = _densities(image)
        density = density[density.mean(dim=1) > LEAST_DENSITY]
        found.append(density[:: max(1, len(density) // each)])
    return torch.cat(found)


def strength(density: Tensor, own: Tensor, reference: Tensor) -> Tensor:
    """Each channel stretched to the reference's mean."""
    return density * (reference.mean(0) / own.mean(0))


def mean_and_spread(density: Tensor, own: Tensor, reference: Tensor) -> Tensor:
    """Each channel with the reference's mean and standard deviation (Reinhard 2001, in optical density)."""
    return (density - own.mean(0)) / own.std(0) * reference.std(0) + reference.mean(0)


def covariance(density: Tensor, own: Tensor, reference: Tensor) -> Tensor:
    """The reference's mean and covariance of the three channels."""
    return (density - own.mean(0)) @ _power(own, -0.5) @ _power(reference, 0.5) + reference.mean(0)


def quantiles(density: Tensor, own: Tensor, reference: Tensor) -> Tensor:
    """Each channel with the reference's distribution."""
    steps = torch.linspace(0, 1, 101, device=density.device)
    moved = []
    for values, here, there in zip(density.T, own.T, reference.T, strict=True):
        source, target = torch.quantile(here, steps), torch.quantile(there, steps)
        place = torch.searchsorted(source, values.contiguous()).clamp(1, len(steps) - 1)
        span = (source[place] - source[place - 1]).clamp(min=1e-6)
        share = ((values - source[place - 1]) / span).clamp(0, 1)
        moved.append(target[place - 1] + share * (target[place] - target[place - 1]))
    return torch.stack(moved, dim=1)


MOVES: dict[str, Move] = {
    "strength": strength, "mean and spread": mean_and_spread, "covariance": covariance, "quantiles": quantiles,
}  # fmt: skip


def recoloured(image: Tensor, reference: Tensor, move: Move = mean_and_spread) -> Tensor:
    """(3, H, W) bytes, its tissue moved to the reference's colours; glass stays as it is."""
    density = _densities(image)
    tissue = density.mean(dim=1, keepdim=True) > LEAST_DENSITY
    return _as_image(torch.where(tissue, move(density, tissue_densities([image]), reference), density), image)


def macenko(image: Tensor, reference: Tensor) -> Tensor:
    """The slide with its two stains exchanged for the reference's, in colour and in strength (Macenko 2009)."""
    own, wanted = (estimate_stains(each.double().cpu().numpy()) for each in (tissue_densities([image]), reference))
    matrix = torch.tensor(exchange(own, wanted, MACENKO), device=image.device)
    return _as_image(_densities(image) @ matrix.T, image)


def as_segmented(image: Tensor, wanted: Stains, method: str, mpp: float = 6.7) -> Tensor:
    """The slide as the network sees it with ``ntrm segment --stain-norm``: its stains are estimated from afar."""
    factor = THUMBNAIL_MPP / mpp
    picture = area_average(image.permute(1, 2, 0).cpu().numpy(), factor, factor)
    seen = Thumbnail(picture, Resolution.square(THUMBNAIL_MPP))
    norm = normalise_stains(seen.picture, find_tissue(seen, find_pen(seen)), wanted, method)
    if norm.matrix is None:
        return image
    return _as_image(_densities(image) @ torch.tensor(norm.matrix, device=image.device).T, image)


def _densities(image: Tensor) -> Tensor:
    return optical_density(image.float() / 255).flatten(1).T  # (H·W, 3)


def _as_image(density: Tensor, image: Tensor) -> Tensor:
    return (from_optical_density(density).T.reshape(image.shape) * 255).round().byte()


def _power(densities: Tensor, exponent: float) -> Tensor:
    """A power of the covariance matrix."""
    values, vectors = torch.linalg.eigh(torch.cov(densities.T))
    return vectors @ torch.diag(values.clamp(min=1e-6) ** exponent) @ vectors.T
