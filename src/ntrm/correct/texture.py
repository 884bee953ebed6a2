"""What a slide looks like at 1 to 2 µm/px around each pixel of its mask: ordinary filters of the optical density.

A mask at 6.7 µm/px and its network never see most of the slide's pixels, and these tell tissues apart. On the optical
density x of each colour, with g = G_σ ∗ x for a Gaussian G of σ pixels: g itself, the magnitude of its
gradient, |Laplacian of g|, and the local deviation √(G_2σ ∗ (x − g)²). Each is averaged over the pixels of the mask.

The numbers of a slide are standardised over its own tissue, so that a stain cancels, and reduced to their main
components in the unit of the first one's deviation. They are smoothed once, since the classifier's logits are linear in
them: a click is then one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import BoolMask, Bytes, Floats, Singles
from ntrm.core.errors import DataError
from ntrm.core.io import write_arrays
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.pixels import block_means
from ntrm.core.progress import SILENT, Progress
from ntrm.core.threads import most_threads, thread_map
from ntrm.results.folder import SlideFolder
from ntrm.slides.grid import SlideGrid

VERSION = 1
FINE_UM, COARSE_UM = 1.0, 2.0  # µm/px at which texture is looked at, about, or as finely as the slide has it
FINE, COARSE = (1.0,), (1.0, 2.0, 4.0)
"""σ in pixels of these. Larger ones at the finer scale would say again what the coarser one does, at a high price."""
REACH = 37  # Pixels around a mask pixel that its numbers depend on
TILE = 128  # Side of what is read at once, in pixels of the mask
GLASS = 0.06  # Mean optical density up to which a pixel is glass: what a network calls tissue must not set the scale
COMPONENTS = 32
SMOOTH = 1.5  # σ in pixels of the mask
MOST_PIXELS = 2**21
"""That have features of their own, 130 MB of them: in larger masks 2 × 2, 4 × 4, … pixels have them together."""
DENSITY = -np.log10((np.arange(256, dtype=np.float32) + 1) / 256)  # Optical density of a grey level

LEAST, FARTHEST = 1e-6, 1e3  # A deviation that is none; a distance in deviations beyond which all is as far

Blur = Callable[[Any, float], Any]


@dataclass(frozen=True, eq=False)
class Texture:
    """Features of the pixels of a mask (H, W), those of ``step`` × ``step`` pixels together."""

    shape: tuple[int, int]
    step: int
    zooms: tuple[int, ...]  # Pixels of the slide along a mask pixel, by scale: what others must have to be compared
    known: BoolMask  # Blocks of ``TILE`` pixels of the mask that were read: those with tissue
    basis: Floats  # (C, D) components by standardised numbers
    values: NDArray[np.float16]  # (h, w, C)

    @cached_property
    def singles(self) -> Singles:
        """(h·w, C) for products."""
        return self.values.reshape(-1, self.values.shape[2]).astype(np.float32)

    def at(self, pixels: NDArray[np.integer[Any]]) -> Floats:
        """(n, D) standardised numbers at flattened pixels of the mask."""
        row, column = np.divmod(pixels, self.shape[1])
        return np.asarray(self.values[row // self.step, column // self.step].astype(np.float64) @ self.basis)

    def is_known(self) -> BoolMask:
        """(H, W) whether a pixel has features."""
        return blown_up(self.known, TILE, self.shape)

    def save(self, path: Path, origin: str) -> None:
        """Keep it as arrays; ``read`` gives it back. ``origin`` says what it was made of."""
        arrays = {"shape": np.array(self.shape), "step": np.array(self.step), "zooms": np.array(self.zooms)}
        arrays |= {"known": self.known, "basis": self.basis, "values": self.values}
        write_arrays(path, {**arrays, "origin": np.array(f"{VERSION} {origin}")})

    @classmethod
    def read(cls, path: Path, origin: str) -> Texture:
        """Read what ``save`` wrote; refuses what was made of something else."""
        hint = "remove the file; it is made again from the slide"
        kept = SlideFolder(path.parent).arrays(path.name, hint=hint)
        try:
            if str(kept["origin"]) != f"{VERSION} {origin}":
                raise ValueError("it is of another version or mask")
            (height, width), step, values = kept["shape"].tolist(), int(kept["step"]), kept["values"]
            found = cls((height, width), step, tuple(kept["zooms"].tolist()), kept["known"], kept["basis"], values)
            small = (-(-height // step), -(-width // step), len(found.basis))
            blocks = (-(-height // TILE), -(-width // TILE))
            if found.basis.shape[1:] != (numbers_of(found.zooms),) or found.known.shape != blocks:
                raise ValueError(f"numbers {found.basis.shape} and blocks {found.known.shape}")
            if values.shape != small or values.dtype != np.float16:
                raise ValueError(f"{values.dtype} {values.shape} for a mask of {height} × {width} pixels")
            if not (np.isfinite(values).all() and np.isfinite(found.basis).all()):
                raise ValueError("numbers that are none")
        except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
            raise DataError(f"{path} does not hold the texture of this slide", got=error, hint=hint) from error
        return found


def blown_up(values: NDArray[Any], step: int, shape: tuple[int, int]) -> NDArray[Any]:
    """(H, W) of which ``step`` × ``step`` pixels have one value."""
    return values.repeat(step, axis=0)[: shape[0]].repeat(step, axis=1)[:, : shape[1]]


def zooms_of(grid: SlideGrid) -> tuple[int, ...]:
    """Pixels along a pixel of the mask at both scales, or at one where the slide is no finer than the coarser one."""
    finest = max(1, int(min(grid.to_level0[:2]) + 1e-3))
    fine, coarse = (min(finest, max(1, round(grid.model_mpp / um))) for um in (FINE_UM, COARSE_UM))
    return (fine, coarse) if fine > coarse else (coarse,)


def sigmas_of(zooms: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    """σ by scale."""
    return (FINE, COARSE)[-len(zooms) :]


def numbers_of(zooms: tuple[int, ...]) -> int:
    """D: four filters of three colours for each σ."""
    return sum(12 * len(sigmas) for sigmas in sigmas_of(zooms))


def blurred(values: Singles, sigma: float) -> Singles:
    """Gaussian blur of (C, H, W), on the processor."""
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(values, (0.0, sigma, sigma), mode="nearest", truncate=3.0))


def blurred_by_torch(values: Any, sigma: float) -> Any:
    """The same of a tensor, where it is."""
    import torch
    from torch.nn.functional import conv2d, pad

    radius = int(3.0 * sigma + 0.5)
    away = torch.arange(-radius, radius + 1, dtype=values.dtype, device=values.device)
    weights = torch.exp(-0.5 * (away / sigma) ** 2)
    weights = weights / weights.sum()
    down = conv2d(pad(values[:, None], (0, 0, radius, radius), mode="replicate"), weights.view(1, 1, -1, 1))
    return conv2d(pad(down, (radius, radius, 0, 0), mode="replicate"), weights.view(1, 1, 1, -1))[:, 0]


def filtered(density: Any, sigmas: Sequence[float], blur: Blur) -> Iterator[Any]:
    """For each σ and kind of filter (C, H − 2, W − 2) of (C, H, W): arrays or tensors, as ``blur`` takes them."""
    inside = (..., slice(1, -1), slice(1, -1))
    for sigma in sigmas:
        smooth = blur(density, sigma)
        above, below = smooth[..., :-2, 1:-1], smooth[..., 2:, 1:-1]
        left, right = smooth[..., 1:-1, :-2], smooth[..., 1:-1, 2:]
        deviation = blur((density - smooth) ** 2, 2 * sigma)
        yield smooth[inside]
        yield 0.5 * ((below - above) ** 2 + (right - left) ** 2) ** 0.5
        yield abs(above + below + left + right - 4 * smooth[inside])
        yield deviation[inside] ** 0.5


def texture_at(pixels: Bytes, sigmas: Sequence[float], zoom: int, rim: int, device: str = "cpu") -> Singles:
    """(h, w, D) means over ``zoom`` × ``zoom`` pixels of what the filters make of (H, W, 3), of which a rim is cut."""
    density: Any = np.ascontiguousarray(DENSITY[pixels].transpose(2, 0, 1))
    blur: Blur = blurred
    if device != "cpu":
        import torch

        density, blur = torch.from_numpy(density).to(device), blurred_by_torch
    cut = slice(rim - 1, 1 - rim)
    means = []
    for values in filtered(density, sigmas, blur):
        own = values[..., cut, cut]
        height, width = own.shape[1] // zoom, own.shape[2] // zoom
        rows = own.reshape(3, height, zoom, width * zoom).mean(2)  # Rows first, which is much quicker
        means.append(rows.reshape(3, height, width, zoom).mean(3))
    stacked = np.stack([np.asarray(each if device == "cpu" else each.cpu().numpy()) for each in means])
    return np.ascontiguousarray(stacked.reshape(-1, *stacked.shape[2:]).transpose(1, 2, 0))


def is_tissue(labels: Mask, background: int | None) -> BoolMask:
    """(H, W) where the mask has tissue; what is known of it where it has none."""
    known = np.asarray(labels != IGNORE)
    tissue = known if background is None else known & (labels != background)
    return tissue if tissue.any() else known


def read_texture(
    grid: SlideGrid, labels: Mask, background: int | None, device: str = "cpu", progress: Progress = SILENT
) -> Texture:
    """Read a slide around its tissue and keep what it looks like; ``labels`` is its mask (H, W)."""
    shape, zooms, tissue = (labels.shape[0], labels.shape[1]), zooms_of(grid), is_tissue(labels, background)
    step = 1
    while -(-shape[0] // step) * -(-shape[1] // step) > MOST_PIXELS:
        step *= 2
    grids = [SlideGrid(grid.reader, grid.model_mpp / zoom, grid.source) for zoom in zooms]

    def numbers(place: tuple[int, int]) -> Singles:
        """(h, w, D) of a block."""
        (top, left), layers = place, []
        for zoom, sigmas, fine in zip(zooms, sigmas_of(zooms), grids, strict=True):
            margin = -(-REACH // zoom)
            side = (TILE + 2 * margin) * zoom
            pixels = fine.read((top - margin) * zoom, (left - margin) * zoom, side, side)
            layers.append(texture_at(pixels, sigmas, zoom, margin * zoom, device))
        return np.concatenate(layers, axis=2)[: shape[0] - top, : shape[1] - left]

    known = np.zeros((-(-shape[0] // TILE), -(-shape[1] // TILE)), dtype=bool)
    raw = np.zeros((-(-shape[0] // step), -(-shape[1] // step), numbers_of(zooms)), dtype=np.float16)
    count, total, products = 0, np.zeros(raw.shape[2]), np.zeros((raw.shape[2], raw.shape[2]))
    corners = [(top, left) for top in range(0, shape[0], TILE) for left in range(0, shape[1], TILE)]
    here = [(top, left) for top, left in corners if tissue[top : top + TILE, left : left + TILE].any()]
    made = thread_map(numbers, here, most_threads())  # Most of it is reading, on a GPU nearly all
    for (top, left), values in progress.track(zip(here, made, strict=True), len(here), "texture"):
        known[top // TILE, left // TILE] = True
        dense = values[..., :3].mean(axis=2) > GLASS
        own = values[dense & tissue[top : top + TILE, left : left + TILE]].astype(np.float64)
        count, total, products = count + len(own), total + own.sum(axis=0), products + own.T @ own
        small = block_means(values, (step, step))
        raw[top // step :, left // step :][: small.shape[0], : small.shape[1]] = small
    mean = total / max(count, 1)
    covariance = products / max(count, 1) - np.outer(mean, mean)
    return Texture(shape, step, zooms, known, *_components(raw, mean, covariance, SMOOTH / step))


def _components(
    raw: NDArray[np.float16], mean: Floats, covariance: Floats, sigma: float
) -> tuple[Floats, NDArray[np.float16]]:
    """(C, D) and (h, w, C): main components of standardised numbers, smoothed, in the unit of the first's deviation."""
    from scipy.ndimage import gaussian_filter

    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    deviation = np.where(deviation > LEAST, deviation, np.inf)  # A number that does not vary says nothing
    variance, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    basis = np.ascontiguousarray(vectors[:, ::-1][:, :COMPONENTS].T)
    # The sign of a component is arbitrary, and its largest number shall be positive on every machine.
    basis *= np.sign(np.take_along_axis(basis, np.abs(basis).argmax(axis=1)[:, None], axis=1))
    unit = max(float(np.sqrt(variance[-1])), LEAST)
    project = (basis / deviation / unit).T.astype(np.float32)
    values = np.empty((*raw.shape[:2], len(basis)), dtype=np.float16)
    for number, row in enumerate(raw):
        plain = row.astype(np.float32) @ project - (mean @ project).astype(np.float32)
        values[number] = plain.clip(-FARTHEST, FARTHEST)
    for number in range(len(basis)):
        values[..., number] = gaussian_filter(values[..., number].astype(np.float32), sigma, mode="nearest")
    return basis, values
