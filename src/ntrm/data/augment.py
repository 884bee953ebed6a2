"""Augmentation of tiles, image and mask together: which changes happen to a tile, how often, and how much.

Parameters are drawn on the generator's device and kept on the CPU: a CPU generator gives the same augmentation wherever
the batch is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ntrm.core.errors import UsageError
from ntrm.data.transforms import (
    add_noise,
    brighten,
    compress,
    fill_glass,
    flip,
    gaussian_blur,
    jitter_stains,
    mix_colours,
    rotate_images,
    rotate_masks,
    send,
    sharpen,
    turn,
)

_LIMITS = {
    "rotate_degrees": (0, 180),
    "light_scale": (0, 0.9),
    "blur_sigma": (0, 16),
    "jpeg_quality": (1, 100),
    "colour_gain": (0.05, 20),
    "sharpen_amount": (0, 10),
}
"""Least and most; of everything else, probabilities among it, 0 and 1."""

_AHEAD = 64
"""Parameters whose numbers are drawn together: as many as the augmentation of a filled batch has, and a few more."""


class Filling(NamedTuple):
    """Other windows that take the place of the glass in some samples of a batch."""

    places: Tensor  # (D,) which samples, on the CPU; none is a filling, too
    images: Tensor  # (D, 3, H, W), of the batch's kind and on its device
    masks: Tensor  # (D, H, W)
    glass: int  # The class that is replaced


@dataclass(frozen=True)
class Augment:
    """What may happen to a tile, and how often. Made without arguments it changes nothing.

    >>> images, masks = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, 8, 8, dtype=torch.uint8)
    >>> images, masks = Augment.paper()(images, masks, torch.Generator().manual_seed(1))
    >>> images.shape, images.dtype, masks.shape
    (torch.Size([2, 3, 8, 8]), torch.uint8, torch.Size([2, 8, 8]))
    """

    flip: float = 0.0  # Probability of a flip, separately left–right and top–bottom
    turn: float = 0.0  # Probability of a turn by 90, 180 or 270 degrees
    rotate: float = 0.0  # Probability of a free rotation
    rotate_degrees: float = 45.0  # Largest free rotation, either way
    stain: float = 0.0  # Probability of other stain strengths
    stain_scale: float = 0.25  # Largest relative change of a stain's concentration
    stain_shift: float = 0.05  # Largest optical density of a stain added or taken away everywhere
    light: float = 0.0
    """Probability of another brightness, glass included: lamps and white balances differ between scanners."""
    light_scale: float = 0.2  # Largest relative change of the brightness
    blur: float = 0.0  # Probability of a Gaussian blur
    blur_sigma: tuple[float, float] = (0.3, 1.5)  # Range of its standard deviation in pixels
    jpeg: float = 0.0  # Probability of JPEG compression
    jpeg_quality: tuple[float, float] = (40.0, 95.0)  # Range of its quality
    colour: float = 0.0
    """Probability of random colours, far beyond what laboratories differ by: shapes are left to go by."""
    colour_mix: float = 1.0
    """Largest share of each channel's optical density that comes from a random mixture of all three."""
    colour_gain: tuple[float, float] = (0.4, 2.2)  # Range of the factor on each channel's optical density
    sharpen: float = 0.0  # Probability of sharpening
    sharpen_amount: float = 1.5  # Largest multiple of the difference from the 3×3 mean that is added
    noise: float = 0.0  # Probability of noise
    noise_sigma: float = 0.05  # Its largest standard deviation; full scale is 1

    def __post_init__(self) -> None:
        for name, got in asdict(self).items():
            (low, high), values = _LIMITS.get(name, (0, 1)), got if isinstance(got, tuple) else (got,)
            if list(values) != sorted(values) or not all(low <= value <= high for value in values):
                expected = f"{low} to {high}, the smaller first"
                raise UsageError(f"augmentation: {name} out of range", got=got, expected=expected)

    @classmethod
    def paper(cls) -> Augment:
        """Flips and rotations, by right angles and by up to 45 degrees."""
        return cls(flip=0.5, turn=0.75, rotate=0.5)

    @classmethod
    def full(cls) -> Augment:
        """Everything, for models that shall serve other laboratories and scanners."""
        return cls(flip=0.5, turn=0.75, rotate=0.5, stain=0.8, light=0.5, blur=0.2, jpeg=0.3)

    @classmethod
    def strong(cls) -> Augment:
        """``full`` with random colours, sharpening and noise, for models that shall serve unknown stains."""
        return replace(cls.full(), colour=0.8, sharpen=0.25, noise=0.4)

    @torch.no_grad()
    def __call__(
        self,
        images: Tensor,
        masks: Tensor,
        generator: torch.Generator,
        *,
        rank: int = 0,
        world: int = 1,
        filling: Filling | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The augmented batch; the given one is left as it is.

        Where ``world`` processes share a batch, this one holding the samples ``[rank::world]`` of it, each sample is
        augmented as it is where one process holds the whole batch and the generator is the same. Either all of them
        have a ``filling`` or none has.

        Args:
            images: (B, 3, H, W), bytes or floats in [0, 1]; the result has the same type.
            masks: (B, H, W), any whole-number type.
            generator: source of all randomness.
            rank: which of the processes this is.
            world: how many processes share the batch.
            filling: windows that take the place of glass. They are moved and stained by themselves, as another sample
                would be; random colours, sharpening and noise then come over both.

        """
        if images.ndim != 4 or images.shape[1] != 3 or masks.shape != (len(images), *images.shape[2:]):
            got, expected = f"{tuple(images.shape)} and {tuple(masks.shape)}", "(B, 3, H, W) and (B, H, W)"
            raise UsageError("images and masks do not fit together", got=got, expected=expected)
        if images.dtype != torch.uint8 and not images.is_floating_point():
            raise UsageError("unknown kind of images", got=images.dtype, expected="uint8, or floats in [0, 1]")
        if not 0 <= rank < world:
            raise UsageError("impossible process", got=f"rank {rank} of {world}", expected="a rank from 0, below world")
        draw = _Draw(len(images), generator, rank, world)
        with torch.autocast(images.device.type, enabled=False):  # half precision would shift colours and coordinates
            changed, masks = self._move(images, masks, draw)
            changed = self._recolour(changed, draw)
            if filling is not None:
                changed, masks = self._fill(changed, masks, filling, draw)
            changed = self._randomise(changed, draw)
        if images.dtype == torch.uint8:
            changed = (changed * 255).round()
        return changed.to(images.dtype), masks

    def _move(self, images: Tensor, masks: Tensor, draw: _Draw) -> tuple[Tensor, Tensor]:
        """Images of any kind → floats, moved with their masks; bytes stay bytes as long as nothing is mixed."""
        across, down, turned = draw.chance(self.flip), draw.chance(self.flip), draw.chance(self.turn)
        quarters = turned * draw.between(1, 4).long()
        half = quarters >= 2  # turned by half is flipped both ways
        flips = send(torch.stack([across ^ half, down ^ half]), images)
        images, masks = (turn(flip(batch, *flips), quarters % 2) for batch in (images, masks))
        chosen, degrees = draw.chosen(self.rotate), draw.between(-self.rotate_degrees, self.rotate_degrees)
        index, angles = send(chosen, images), send(degrees[chosen], images)
        images = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        images = _change(images, index, lambda some: rotate_images(some, angles))
        return images, _change(masks, index, lambda some: rotate_masks(some, angles))

    def _recolour(self, images: Tensor, draw: _Draw) -> Tensor:
        """Stain, then lamp, then optics, then file format: the order in which a slide meets them."""
        stained, lit = draw.chosen(self.stain), draw.chosen(self.light)
        blurred, compressed = draw.chosen(self.blur), draw.chosen(self.jpeg)
        scale = torch.stack([draw.between(1 - self.stain_scale, 1 + self.stain_scale) for _ in "HE"], dim=1)
        shift = torch.stack([draw.between(-self.stain_shift, self.stain_shift) for _ in "HE"], dim=1)
        brightness = draw.between(1 - self.light_scale, 1 + self.light_scale)
        sigma, quality = draw.between(*self.blur_sigma), draw.between(*self.jpeg_quality)
        images = _change(images, stained, lambda some: jitter_stains(some, scale[stained], shift[stained]))
        images = _change(images, lit, lambda some: brighten(some, brightness[lit]))
        images = _change(images, blurred, lambda some: gaussian_blur(some, sigma[blurred], self.blur_sigma[1]))
        return _change(images, compressed, lambda some: compress(some, quality[compressed]))

    def _fill(self, images: Tensor, masks: Tensor, filling: Filling, draw: _Draw) -> tuple[Tensor, Tensor]:
        """Numbers are drawn for every sample, filled or not, so that other processes go on with the same ones."""
        own = replace(draw, only=filling.places)
        others, other_masks = self._move(filling.images, filling.masks, own)
        others = self._recolour(others, own)
        if not len(filling.places):
            return images, masks
        index = send(filling.places, images)
        filled, filled_masks = fill_glass(images[index], masks[index], others, other_masks, filling.glass)
        return images.index_copy(0, index, filled), masks.index_copy(0, index, filled_masks)

    def _randomise(self, images: Tensor, draw: _Draw) -> Tensor:
        """Colours and texture that no scanner has, over those that some have."""
        if not any((self.colour, self.sharpen, self.noise)):
            return images  # the last numbers of a batch: nobody misses them
        coloured, sharpened, noisy = (draw.chosen(chance) for chance in (self.colour, self.sharpen, self.noise))
        # From the identity to any mixture whose rows sum to 1, times each channel's gain: (B, 3, 3).
        rows = torch.stack([draw.between(0, 1) for _ in range(9)], dim=1).view(-1, 3, 3)
        rows = rows / rows.sum(dim=2, keepdim=True)
        share = draw.between(0, self.colour_mix).view(-1, 1, 1)
        low, high = (math.log(factor) for factor in self.colour_gain)
        gain = torch.stack([draw.between(low, high) for _ in "RGB"], dim=1).exp()
        mixing = ((1 - share) * torch.eye(3) + share * rows) * gain[:, :, None]
        amount, sigma = draw.between(0, self.sharpen_amount), draw.between(0, self.noise_sigma)
        seeds = draw.between(0, 2**24).long()  # float32 holds each of these
        images = _change(images, coloured, lambda some: mix_colours(some, mixing[coloured]))
        images = _change(images, sharpened, lambda some: sharpen(some, amount[sharpened]))
        return _change(images, noisy, lambda some: add_noise(some, sigma[noisy], seeds[noisy]))


@dataclass(frozen=True)
class _Draw:
    """Random parameters, one per sample: drawn for the samples of all processes, and those of this one taken."""

    count: int
    generator: torch.Generator
    rank: int = 0
    world: int = 1
    only: Tensor | None = None  # Places of the samples whose numbers are taken; all where there is none
    ahead: list[Tensor] = field(default_factory=list)
    """Numbers of parameters to come, the next one last: many at once are as quick as a few."""

    def between(self, low: float, high: float) -> Tensor:
        if not self.ahead:
            size, kind = (_AHEAD, self.count * self.world), self.generator.device
            uniform = torch.rand(size, generator=self.generator, device=kind).cpu()[:, self.rank :: self.world]
            self.ahead.extend(reversed(uniform.unbind()))
        own = self.ahead.pop()
        return low + (high - low) * (own if self.only is None else own[self.only])

    def chance(self, probability: float) -> Tensor:
        return self.between(0, 1) < probability

    def chosen(self, probability: float) -> Tensor:
        return self.chance(probability).nonzero()[:, 0]


def _change(batch: Tensor, chosen: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """``batch`` with the ``chosen`` samples changed; the work is done for these only."""
    if not len(chosen):
        return batch
    index = send(chosen, batch)
    return batch.index_copy(0, index, change(batch[index]))
