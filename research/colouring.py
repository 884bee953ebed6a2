"""Colours far beyond what laboratories differ by, so that a network cannot lean on them; and tiles taken away.

Every part has a strength: 0 leaves it out, 1 is what was first tried, and more is more. All randomness comes from one
generator on the images' device, and nothing waits for that device.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.transforms import from_optical_density, optical_density

PARTS = ("mix", "gain", "gamma", "glass", "grey", "sharpen", "noise")
"""Of the randomisation that was first tried; ``tissue`` and ``weave`` are not among them."""

GAIN = (0.4, 2.2)
GAMMA = (0.6, 1.6)
TISSUE_GAIN = (0.5, 1.8)
DARKEST_GLASS = 0.75
GREY_SHARE, SHARPEN_SHARE, NOISE_SHARE = 0.2, 0.3, 0.5
MOST_SHARPENING, MOST_NOISE = 1.5, 0.05
UNIT_DENSITY = 2.0
"""Optical density that gamma leaves as it is."""


@dataclass(frozen=True)
class Colouring:
    """Strength of each part."""

    mix: float = 0.0
    """Channels of the optical density mixed by a random 3×3 matrix whose rows sum to 1."""
    gain: float = 0.0
    """Each channel's optical density times 0.4 to 2.2."""
    gamma: float = 0.0
    """Optical density to the power 0.6 to 1.6."""
    glass: float = 0.0
    """Tinted glass: each channel times 0.75 to 1."""
    grey: float = 0.0
    """A fifth of the windows without colour."""
    sharpen: float = 0.0
    """Some windows sharpened, as scanners do."""
    noise: float = 0.0
    """Half of the windows with noise of the sensor."""
    tissue: float = 0.0
    """Each tissue's optical density times 0.5 to 1.8, a little different in each channel: needs the mask."""
    weave: float = 0.0
    """Share of the windows whose keratin is loosened to strands with glass between them: needs the mask."""
    share: float = 0.8
    """Share of the windows that are recoloured at all."""

    @classmethod
    def full(cls, strength: float = 1.0) -> Colouring:
        """All parts that were first tried."""
        return cls(**dict.fromkeys(PARTS, strength))

    def without(self, part: str) -> Colouring:
        """The same less one part."""
        return replace(self, **{part: 0.0})

    def any(self) -> bool:
        """Whether anything is changed."""
        return any(value for part, value in asdict(self).items() if part != "share")

    @torch.no_grad()
    def __call__(self, images: Tensor, masks: Tensor | None, generator: torch.Generator) -> Tensor:
        """(B, 3, H, W) in [0, 1] → the same, recoloured; ``masks`` (B, H, W) for ``tissue``."""
        if not self.any():
            return images
        draw = _Draw(len(images), generator)
        density = optical_density(images)
        if self.tissue and masks is not None:
            density = density * self._tissue_gain(masks, draw)
        if self.weave and masks is not None:
            density = density * self._strands(masks, draw)
        if self.mix:
            density = torch.einsum("bij,bjhw->bihw", self._matrix(draw), density)
        if self.gain:
            density = density * draw.power(GAIN, self.gain, 3)
        if self.gamma:
            density = UNIT_DENSITY * (density.clamp(min=1e-4) / UNIT_DENSITY) ** draw.power(GAMMA, self.gamma, 1)
        recoloured = from_optical_density(density)
        if self.glass:
            recoloured = recoloured * (1 - (1 - DARKEST_GLASS) * self.glass * draw.uniform(3)).clamp(min=0.2)
        if self.grey:
            recoloured = torch.where(
                draw.chance(GREY_SHARE * self.grey), recoloured.mean(dim=1, keepdim=True), recoloured
            )
        if self.sharpen:
            amount = MOST_SHARPENING * self.sharpen * draw.uniform(1) * draw.chance(SHARPEN_SHARE)
            blurred = functional.avg_pool2d(recoloured, 3, stride=1, padding=1, count_include_pad=False)
            recoloured = recoloured + amount * (recoloured - blurred)
        if self.noise:
            sigma = MOST_NOISE * self.noise * draw.uniform(1) * draw.chance(NOISE_SHARE)
            recoloured = recoloured + sigma * draw.normal(recoloured)
        return torch.where(draw.chance(self.share), recoloured.clamp(0, 1), images)

    def _matrix(self, draw: _Draw) -> Tensor:
        """(B, 3, 3), from the identity (0) to any mixture (1)."""
        rows = draw.uniform(9).view(-1, 3, 3)
        rows = rows / rows.sum(dim=2, keepdim=True)
        share = (self.mix * draw.uniform(1)).clamp(max=1).view(-1, 1, 1)
        return (1 - share) * torch.eye(3, device=rows.device) + share * rows

    def _tissue_gain(self, masks: Tensor, draw: _Draw) -> Tensor:
        """(B, 3, H, W), soft at borders; 1 on glass and where nothing is known."""
        low, high = (math.log(value) for value in TISSUE_GAIN)
        overall = low + (high - low) * draw.uniform(IGNORE + 1)  # (B, 256, 1, 1)
        tint = 0.3 * (2 * draw.uniform(3 * (IGNORE + 1)) - 1).view(-1, IGNORE + 1, 3)
        table = (self.tissue * (overall.view(-1, IGNORE + 1, 1) + tint)).exp()  # (B, 256, 3)
        table[:, [SKIN.index("BKG"), IGNORE]] = 1
        batch, height, width = masks.shape
        index = masks.long().view(batch, -1, 1).expand(-1, -1, 3)
        gains = table.gather(1, index).view(batch, height, width, 3).permute(0, 3, 1, 2)
        return functional.avg_pool2d(gains, 5, stride=1, padding=2, count_include_pad=False)

    def _strands(self, masks: Tensor, draw: _Draw) -> Tensor:
        """(B, 1, H, W) factors of the keratin's optical density: pale to dark strands, next to nothing between."""
        coarse = functional.interpolate(draw.field(masks, 3), size=masks.shape[-2:], mode="bilinear")
        strands = torch.where(coarse > 0.3 + 0.4 * draw.uniform(1), 0.3 + 0.9 * draw.uniform(1), 0.05)
        woven = (masks == SKIN.index("KER")).unsqueeze(1) & draw.chance(self.weave)
        return torch.where(woven, strands, 1.0)


@dataclass(frozen=True)
class _Draw:
    """One random number (or several) for each image, shaped to multiply it."""

    count: int
    generator: torch.Generator

    def uniform(self, channels: int) -> Tensor:
        shape = (self.count, channels, 1, 1)
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def chance(self, probability: float) -> Tensor:
        return self.uniform(1) < probability

    def power(self, span: tuple[float, float], strength: float, channels: int) -> Tensor:
        """Even in the logarithm; the strength widens the span."""
        low, high = (strength * math.log(value) for value in span)
        return (low + (high - low) * self.uniform(channels)).exp()

    def field(self, masks: Tensor, step: int) -> Tensor:
        """(B, 1, H/step, W/step) independent numbers."""
        batch, height, width = masks.shape
        shape = (batch, 1, height // step, width // step)
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.generator, device=like.device)


@torch.no_grad()
def take_tiles_away(
    images: Tensor, masks: Tensor, generator: torch.Generator, sides: tuple[int, int], share: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Glass in place of some squares of a grid, where nothing is then known: sections of which tiles are missing.

    ``share`` of the windows lose 10 to 70 % of the squares, whose side is one of ``sides`` or between.
    """
    batch, _, height, width = images.shape
    draw = _Draw(batch, generator)
    side = sides[0] + (sides[1] - sides[0]) * draw.uniform(1).view(-1, 1)
    begin = side * draw.uniform(1).view(-1, 1)

    def squares(length: int) -> Tensor:
        """(B, length) which square along an axis."""
        return ((torch.arange(length, device=images.device).view(1, -1) + begin) / side).long()

    cells = 2 + max(height, width) // sides[0]
    gone = draw.uniform(cells * cells).view(batch, cells, cells) < 0.1 + 0.6 * draw.uniform(1).view(-1, 1, 1)
    gone &= draw.chance(share).view(-1, 1, 1)
    number = torch.arange(batch, device=images.device).view(-1, 1, 1)
    here = gone[number, squares(height).unsqueeze(2), squares(width).unsqueeze(1)]
    return torch.where(here.unsqueeze(1), 1.0, images), torch.where(here, IGNORE, masks)
