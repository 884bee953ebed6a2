"""Augmentation of tiles, image and mask together: whole batches of tensors, on any device, from an explicit generator.

The functions take one parameter per sample and are deterministic; ``Augment`` draws the parameters. They are drawn
on the generator's device and kept on the CPU: a CPU generator gives the same augmentation wherever the batch is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from ntrm.data.augmentation.jpeg import compress
from ntrm.data.augmentation.sending import send
from ntrm.data.augmentation.stain_jitter import jitter_stains
from ntrm.errors import UsageError
from ntrm.labels import IGNORE


def flip(batch: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Images or masks (B, …, H, W), mirrored left–right where ``across`` (B, bool) and top–bottom where ``down``."""
    batch = torch.where(_per_sample(across, batch), batch.flip(-1), batch)
    return torch.where(_per_sample(down, batch), batch.flip(-2), batch)


def turn(batch: Tensor, quarters: Tensor) -> Tensor:
    """Images or masks (B, …, H, W), turned anticlockwise by ``quarters`` (B, whole numbers) right angles."""
    quarters = quarters % 4
    odd = quarters % 2 == 1
    batch = torch.where(_per_sample(quarters >= 2, batch), batch.flip((-2, -1)), batch)
    if not odd.any():
        return batch
    if batch.shape[-1] != batch.shape[-2]:
        raise UsageError(
            "only square tiles can be turned by 90 degrees", got=f"{tuple(batch.shape[-2:])} (height, width)"
        )
    return torch.where(_per_sample(odd, batch), batch.transpose(-2, -1).flip(-2), batch)


def rotate_images(images: Tensor, degrees: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 1], rotated anticlockwise by ``degrees`` (B); glass where nothing is known."""
    grid = _rotation_grid(images, degrees)
    # Sampling continues with zeros, so the image is inverted for what comes in to be white.
    return 1 - functional.grid_sample(1 - images, grid, mode="bilinear", align_corners=False)


def rotate_masks(masks: Tensor, degrees: Tensor) -> Tensor:
    """Masks (B, H, W), rotated like the images; the nearest label, and ignore where nothing is known."""
    offset = (masks.float() - IGNORE)[:, None]  # ignore becomes the zero that sampling continues with
    grid = _rotation_grid(offset, degrees)
    rotated = functional.grid_sample(offset, grid, mode="nearest", align_corners=False)
    return (rotated[:, 0] + IGNORE).to(masks.dtype)


def _rotation_grid(batch: Tensor, degrees: Tensor) -> Tensor:
    """Where each output pixel comes from, (B, H, W, 2), in the coordinates of ``grid_sample``."""
    height, width = batch.shape[-2:]
    angle = send(degrees, batch).to(batch.dtype) * (math.pi / 180)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # Coordinates run from -1 to 1 along both axes; the ratio of the sides keeps angles true.
    rows = [cosine, -sine * height / width, zero, sine * width / height, cosine, zero]
    matrix = torch.stack(rows, dim=1).reshape(-1, 2, 3)
    return functional.affine_grid(matrix, [len(batch), 1, height, width], align_corners=False)


def brighten(images: Tensor, factor: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 1] under a lamp ``factor`` (B) times as bright; what is too bright is white."""
    return (images * _per_sample(factor.to(images.dtype), images)).clamp(max=1)


def gaussian_blur(images: Tensor, sigma: Tensor, widest: float | None = None) -> Tensor:
    """Images (B, 3, H, W) blurred with standard deviation ``sigma`` (B) in pixels; the border pixel is continued.

    The kernel is cut at four deviations of the ``widest`` blur, or of the widest in the batch where none is given: with
    it, what becomes of an image does not depend on the others.
    """
    batch, channels, height, _ = images.shape
    radius = max(1, math.ceil(4 * (float(sigma.max()) if widest is None else widest)))
    offsets = torch.arange(-radius, radius + 1, device=images.device)
    kernel = torch.exp(-0.5 * (offsets / send(sigma, images).to(images.dtype).clamp(min=1e-3)[:, None]) ** 2)
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)[:, None]  # (3B, 1, taps)
    padded = functional.pad(images, (radius,) * 4, mode="replicate")
    padded = padded.reshape(1, batch * channels, height + 2 * radius, -1)
    blurred = functional.conv2d(padded, kernel[:, :, None, :], groups=batch * channels)
    blurred = functional.conv2d(blurred, kernel[:, :, :, None], groups=batch * channels)
    return blurred.reshape(images.shape)


def _per_sample(flags: Tensor, batch: Tensor) -> Tensor:
    return send(flags, batch).reshape(-1, *[1] * (batch.ndim - 1))


@dataclass(frozen=True)
class Augment:
    """What may happen to a tile, and how often. Made without arguments it changes nothing.

    >>> images, masks = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, 8, 8, dtype=torch.uint8)
    >>> images, masks = Augment.paper()(images, masks, torch.Generator().manual_seed(1))
    >>> images.shape, images.dtype, masks.shape
    (torch.Size([2, 3, 8, 8]), torch.uint8, torch.Size([2, 8, 8]))
    """

    flip: float = 0.0
    """Probability of a flip, separately left–right and top–bottom."""
    turn: float = 0.0
    """Probability of a turn by 90, 180 or 270 degrees."""
    rotate: float = 0.0
    """Probability of a free rotation."""
    rotate_degrees: float = 45.0
    """Largest free rotation, either way."""
    stain: float = 0.0
    """Probability of other stain strengths."""
    stain_scale: float = 0.25
    """Largest relative change of a stain's concentration."""
    stain_shift: float = 0.05
    """Largest optical density of a stain added or taken away everywhere."""
    light: float = 0.0
    """Probability of another brightness, glass included: lamps and white balances differ between scanners."""
    light_scale: float = 0.2
    """Largest relative change of the brightness."""
    blur: float = 0.0
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.3, 1.5)
    """Range of its standard deviation in pixels."""
    jpeg: float = 0.0
    """Probability of JPEG compression."""
    jpeg_quality: tuple[float, float] = (40.0, 95.0)
    """Range of its quality."""

    def __post_init__(self) -> None:
        for name in ("flip", "turn", "rotate", "stain", "light", "blur", "jpeg"):
            _check_between(f"probability of {name}", 0, 1, getattr(self, name))
        _check_between("rotate_degrees", 0, 180, self.rotate_degrees)
        _check_between("stain_scale", 0, 1, self.stain_scale)
        _check_between("stain_shift", 0, 1, self.stain_shift)
        _check_between("light_scale", 0, 0.9, self.light_scale)
        _check_between("blur_sigma", 0, 16, *self.blur_sigma)
        _check_between("jpeg_quality", 1, 100, *self.jpeg_quality)

    @classmethod
    def none(cls) -> Augment:
        """Nothing at all."""
        return cls()

    @classmethod
    def paper(cls) -> Augment:
        """Flips and rotations, by right angles and by up to 45 degrees."""
        return cls(flip=0.5, turn=0.75, rotate=0.5)

    @classmethod
    def full(cls) -> Augment:
        """Everything, for models that shall serve other laboratories and scanners."""
        return cls(flip=0.5, turn=0.75, rotate=0.5, stain=0.8, light=0.5, blur=0.2, jpeg=0.3)

    @torch.no_grad()
    def __call__(
        self,
        images: Tensor,
        masks: Tensor,
        generator: torch.Generator,
        *,
        rank: int = 0,
        world: int = 1,
        sections: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The augmented batch; the given one is left as it is.

        Where ``world`` processes share a batch, this one holding the samples ``[rank::world]`` of it, each sample is
        augmented as it is where one process holds the whole batch and the generator is the same. With ``sections``
        the processes share sections in this way, not samples, and stain and lamp are one for each section.

        Args:
            images: (B, 3, H, W), bytes or floats in [0, 1]; the result has the same type.
            masks: (B, H, W), any whole-number type.
            generator: source of all randomness.
            rank: which of the processes this is.
            world: how many processes share the batch.
            sections: how many sections the batch holds, with equally many windows each, one section after the other.

        """
        _check_batch(images, masks)
        if sections is not None and (sections < 1 or len(images) % sections):
            raise UsageError(
                "the batch is not made of whole sections",
                got=f"{len(images)} windows of {sections} sections",
                expected="equally many windows of each",
            )
        if not 0 <= rank < world:
            raise UsageError("impossible process", got=f"rank {rank} of {world}", expected="a rank from 0, below world")
        draw = _Draw(len(images), generator, rank, world, sections)
        with torch.autocast(images.device.type, enabled=False):  # half precision would shift colours and coordinates
            moved, masks = self._move(_as_float(images), masks, draw)
            recoloured = self._recolour(moved, draw)
        return _as_dtype(recoloured, images.dtype), masks

    def _move(self, images: Tensor, masks: Tensor, draw: _Draw) -> tuple[Tensor, Tensor]:
        across, down, turned = draw.chance(self.flip), draw.chance(self.flip), draw.chance(self.turn)
        quarters = turned * draw.between(1, 4).long()
        images, masks = (turn(flip(batch, across, down), quarters) for batch in (images, masks))
        chosen, degrees = draw.chosen(self.rotate), draw.between(-self.rotate_degrees, self.rotate_degrees)
        images = _change(images, chosen, lambda some: rotate_images(some, degrees[chosen]))
        return images, _change(masks, chosen, lambda some: rotate_masks(some, degrees[chosen]))

    def _recolour(self, images: Tensor, draw: _Draw) -> Tensor:
        """Stain, then lamp, then optics, then file format: the order in which a slide meets them."""
        slide = draw.by_section()
        stained, lit = slide.chosen(self.stain), slide.chosen(self.light)
        blurred, compressed = draw.chosen(self.blur), draw.chosen(self.jpeg)
        scale = torch.stack([slide.between(1 - self.stain_scale, 1 + self.stain_scale) for _ in "HE"], dim=1)
        shift = torch.stack([slide.between(-self.stain_shift, self.stain_shift) for _ in "HE"], dim=1)
        brightness = slide.between(1 - self.light_scale, 1 + self.light_scale)
        sigma, quality = draw.between(*self.blur_sigma), draw.between(*self.jpeg_quality)
        images = _change(images, stained, lambda some: jitter_stains(some, scale[stained], shift[stained]))
        images = _change(images, lit, lambda some: brighten(some, brightness[lit]))
        images = _change(images, blurred, lambda some: gaussian_blur(some, sigma[blurred], self.blur_sigma[1]))
        return _change(images, compressed, lambda some: compress(some, quality[compressed]))


@dataclass(frozen=True)
class _Draw:
    """Random parameters, one per sample: drawn for the samples of all processes, and those of this one taken."""

    count: int
    generator: torch.Generator
    rank: int = 0
    world: int = 1
    sections: int | None = None
    shared: bool = False
    """Whether the windows of a section share a parameter."""

    def by_section(self) -> _Draw:
        """The same for all windows of a section, where the batch has sections."""
        return replace(self, shared=self.sections is not None)

    def between(self, low: float, high: float) -> Tensor:
        groups = self.sections or self.count
        windows = self.count // groups  # of a section; 1 where samples stand alone
        drawn = groups * self.world * (1 if self.shared else windows)
        uniform = torch.rand(drawn, generator=self.generator, device=self.generator.device).cpu()
        own = uniform.view(groups * self.world, -1)[self.rank :: self.world].expand(-1, windows)
        return low + (high - low) * own.flatten()

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


def _as_float(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _as_dtype(images: Tensor, dtype: torch.dtype) -> Tensor:
    return (images * 255).round().to(dtype) if dtype == torch.uint8 else images.to(dtype)


def _check_between(name: str, low: float, high: float, *values: float) -> None:
    if list(values) != sorted(values) or not all(low <= value <= high for value in values):
        got = values[0] if len(values) == 1 else values
        raise UsageError(f"augmentation: {name} out of range", got=got, expected=f"{low} to {high}, the smaller first")


def _check_batch(images: Tensor, masks: Tensor) -> None:
    if images.ndim != 4 or images.shape[1] != 3 or masks.shape != (len(images), *images.shape[2:]):
        raise UsageError(
            "images and masks do not fit together",
            got=f"{tuple(images.shape)} and {tuple(masks.shape)}",
            expected="(B, 3, H, W) and (B, H, W)",
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise UsageError("unknown kind of images", got=images.dtype, expected="uint8, or floats in [0, 1]")
