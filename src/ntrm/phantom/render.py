"""A mask becomes a stained section, the same at every resolution: concentrations of the dyes, light, scanner."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from ntrm.core.errors import DataError, check_number
from ntrm.core.labels import IGNORE, SKIN, Mask
from ntrm.core.mpp import Resolution
from ntrm.core.pixels import block_means
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.noise import Field, derive, generator
from ntrm.phantom.stain import MINUS_LN10, Ink, Stain
from ntrm.phantom.texture.looks import Look
from ntrm.phantom.texture.nuclei import nuclei_near, splat
from ntrm.phantom.texture.scene import Scene, cells_at
from ntrm.phantom.texture.structures import HOLLOWS, NEST_SEPTUM, STRANDS, Noises, Spots, septum
from ntrm.phantom.texture.table import CONNECTIVE, EMPTY, IN_PASSAGE
from ntrm.phantom.tissues import CODES, codes_of, labels_of
from ntrm.phantom.versions import DEFAULT_VERSION, phantom_version

_BENT_UM = 2.5
"""Borders and cell walls are bent by this much: they would show the mask's pixels or straight polygons otherwise."""
_GRAIN_UM, _WOBBLE_UM, _SPECKLE_UM = 22.0, 30.0, 6.0
_SPECKLE_SEEN_UM = 2.0  # Coarser grids than this average the finest noise away

_FINEST_SEEN_UM = 3.4
"""Coarser pictures are painted at a half (a third …) of their µm/px and averaged: fibres and nuclei are finer."""
_BEYOND_TISSUE_UM = 45.0  # Ink and wavering borders reach no further than this
_BLOCK_PX = 384
"""Side of the squares that are painted one after the other: memory stays small, empty glass costs nothing."""

_JPEG_TILE_PX = 2048  # Scanners compress tile by tile; it also keeps large pictures within what JPEG allows
_BLUR_SEEN_PX = 0.2
BROWN = (0.45, 0.70, 0.95)  # Optical density of melanin per channel (red, green, blue), at concentration 1

_MACROPHAGE_SPACING_UM, _MACROPHAGE_RADIUS_UM = 34.0, 6.5
_MACROPHAGE_DENSITY = np.float32(0.55)

_RET, _PAP, _INF = (SKIN.index(name) for name in CONNECTIVE)
_TISSUE = EMPTY == 0


@dataclass(frozen=True)
class Artefacts:
    """Strengths; 0 (for JPEG: None) switches one off, as all are unless given."""

    uneven_light: float = 0.0  # Relative loss of light from one side of the picture to the other
    blur_um: float = 0.0  # Defocus: standard deviation of the point spread
    sensor_noise: float = 0.0  # Standard deviation in grey levels
    jpeg_quality: int | None = None  # Pillow's quality, 1 to 95
    ink: float = 0.0  # Fraction of the cut margin that carries surgical ink

    @classmethod
    def draw(cls, seed: int) -> Artefacts:
        """Mild artefacts as a scanner leaves them; ink on half of the sections."""
        draw = generator(seed, "artefacts")
        return cls(
            uneven_light=float(draw.uniform(0.0, 0.04)),
            blur_um=float(draw.uniform(0.0, 1.8)),
            sensor_noise=float(draw.uniform(0.3, 2.0)),
            jpeg_quality=int(draw.integers(75, 95)),
            ink=float(draw.uniform(0.2, 0.8)) * float(draw.random() < 0.5),
        )


def render(
    mask: Mask,
    mpp: float,
    seed: int,
    *,
    ambiguity: float = 0.5,
    stain: Stain | None = None,
    artefacts: Artefacts | None = None,
    version: str = DEFAULT_VERSION,
) -> NDArray[np.uint8]:
    """Stain a mask of skin tissues, synthetic or real: an RGB picture (H, W, 3).

    ``mpp`` are the mask's µm per pixel. A fine mask (``Section.fine``) shows finer tissues from version 2 on.
    ``ambiguity`` runs from 0, every tissue with its own texture, to 1, where look-alike tissues (``LOOK_ALIKE``)
    cannot be told apart but by their surroundings. Stain and artefacts are drawn from the seed unless given. Ignored
    pixels are drawn as glass.

    >>> mask = np.full((32, 32), SKIN.index("RET"), dtype=np.uint8)
    >>> render(mask, 6.7, seed=1).shape
    (32, 32, 3)
    """
    _check(mask, mpp, seed, ambiguity)
    stain = Stain.draw(derive(seed, "patient"), derive(seed, "laboratory")) if stain is None else stain
    artefacts = Artefacts.draw(derive(seed, "scan")) if artefacts is None else artefacts
    looks = phantom_version(version).looks
    look = None if looks is None else Look.draw(seed, looks)
    mask = labels_of(mask) if look is None else mask
    scene = Scene.prepare(mask, mpp, seed, ambiguity, look)
    ink = Ink.on(mask, mpp, seed, artefacts.ink) if artefacts.ink else None
    picture = np.empty((*mask.shape, 3), dtype=np.float32)
    picture[:] = stain.illumination
    for rows, columns in _blocks(mask, mpp):
        picture[rows, columns] = _block(scene, stain, ink, rows, columns)
    return expose(picture, mpp, seed, artefacts)


def _oversampling(mpp: float) -> int:
    return math.ceil(mpp / _FINEST_SEEN_UM)


def _blocks(mask: Mask, mpp: float) -> Iterator[tuple[slice, slice]]:
    """Rectangles of the picture that hold all tissue and what reaches beyond it."""
    side = max(1, _BLOCK_PX // _oversampling(mpp))
    margin = math.ceil(_BEYOND_TISSUE_UM / mpp)
    for y in range(0, mask.shape[0], side):
        for x in range(0, mask.shape[1], side):
            top, left = max(y - margin, 0), max(x - margin, 0)
            tissue = _TISSUE[mask[top : y + side + margin, left : x + side + margin]]
            if tissue.any():
                rows = _extent(tissue.any(axis=1), top, margin, y, min(y + side, mask.shape[0]))
                columns = _extent(tissue.any(axis=0), left, margin, x, min(x + side, mask.shape[1]))
                yield rows, columns


def _extent(occupied: NDArray[np.bool_], start: int, margin: int, low: int, high: int) -> slice:
    """From ``margin`` before the first to ``margin`` after the last occupied line, within ``low`` and ``high``."""
    lines = np.flatnonzero(occupied) + start
    return slice(max(int(lines[0]) - margin, low), min(int(lines[-1]) + margin + 1, high))


def _block(scene: Scene, stain: Stain, ink: Ink | None, rows: slice, columns: slice) -> Field:
    factor = _oversampling(scene.mpp)
    shape = ((rows.stop - rows.start) * factor, (columns.stop - columns.start) * factor)
    window = PhantomGrid(shape, scene.mpp / factor, (rows.start * scene.mpp, columns.start * scene.mpp))
    haematoxylin, eosin, melanin = paint(scene, window)
    light = stain.transmit(haematoxylin, eosin)
    if melanin is not None:
        light *= np.exp(melanin[..., None] * (MINUS_LN10 * np.array(BROWN, dtype=np.float32)))
    inked = ink.transmission(window) if ink else None
    return block_means(light if inked is None else light * inked, (factor, factor))


def _check(mask: Mask, mpp: float, seed: int, ambiguity: float) -> None:
    Resolution.square(mpp)
    check_number("seed", seed, 0, 2**64 - 1, whole=True)
    check_number("ambiguity", ambiguity, 0, 1)
    if mask.ndim != 2 or mask.dtype != np.uint8 or mask.size == 0:
        what, hint = "a mask to render must hold class indices", "decode RGB masks with LabelSchema.decode first"
        raise DataError(what, got=f"{mask.dtype} {mask.shape}", expected="uint8 (height, width)", hint=hint)
    strange = {*np.flatnonzero(np.bincount(mask.ravel())).tolist()} - {*range(len(SKIN)), *CODES.values(), IGNORE}
    if strange:
        what, hint = "the mask holds values that are no skin tissue", "remap the mask to the skin schema by name"
        raise DataError(what, got=sorted(strange), expected=f"0 to {len(SKIN) - 1}, or {IGNORE} for ignore", hint=hint)


def paint(scene: Scene, window: PhantomGrid) -> tuple[Field, Field, Field | None]:
    """Haematoxylin, eosin and, if there is any, melanin over the window: every layer weighed by the texture table."""
    pixels = _Pixels(scene, window)
    eosin, haematoxylin = pixels.amount("eosin"), pixels.amount("haematoxylin")
    mottle, grain = pixels.amount("mottle"), pixels.amount("grain") * pixels.noises.grain
    eosin *= np.maximum(1.0 + mottle * scene.slow.eosin.over(window) + grain, 0.0) * _strands(pixels)
    haematoxylin *= np.maximum(1.0 + 1.5 * mottle * scene.slow.haematoxylin.over(window) + grain, 0.0)
    if pixels.has("lobules"):  # Septa between the lobules of a nest are free of basaloid cytoplasm.
        haematoxylin *= 1.0 - pixels.amount("lobules") * septum(scene.slow.patch.over(window), NEST_SEPTUM)
    _open_clefts(pixels, haematoxylin, eosin)
    if pixels.has("rim"):  # Basal cells are darker than those above or within.
        near = scene.geometry.dermis_near.over(window)
        haematoxylin *= 1.0 + pixels.amount("rim") * np.clip(3.0 * near, 0.0, 1.0)
    _hollow_out(pixels, haematoxylin, eosin)
    _open_weave(pixels, haematoxylin, eosin)
    chromatin = splat(nuclei_near(scene, window), window)
    if window.mpp <= _SPECKLE_SEEN_UM:
        speckle = scene.noise("speckle", window, _SPECKLE_UM)
        eosin *= 1.0 + 0.10 * speckle
        chromatin *= 1.0 + 0.18 * speckle
    haematoxylin += chromatin
    return haematoxylin, eosin, _melanin(pixels)


class _Pixels:
    """What the layers need to know of each pixel."""

    def __init__(self, scene: Scene, window: PhantomGrid) -> None:
        self.scene, self.window, geometry = scene, window, scene.geometry
        grain = scene.noise("grain", window, _GRAIN_UM)
        wobble = scene.noise("wobble", window, _WOBBLE_UM)
        self.noises = Noises(scene.slow.bend.over(window), grain, wobble)
        # Bent coordinates.
        self.y_um = window.y_um[:, None].astype(np.float32) + np.float32(_BENT_UM) * wobble
        self.x_um = window.x_um[None, :].astype(np.float32) + np.float32(_BENT_UM) * grain
        tissue = scene.tissue_at(self.y_um, self.x_um, geometry.fatty.over(window))
        connective = IN_PASSAGE[tissue]
        self.tissue = np.where(connective > 0, _RET, tissue).astype(np.intp)  # The connective tissues as one
        self.papillary = geometry.papillary.over(window) * connective
        self.inflamed = geometry.inflamed.over(window) * connective
        # Elastosis, oedema and scars: their fractions by their rows in the table.
        self.passing = {codes_of(name)[0]: near.over(window) * connective for name, near in geometry.passing.items()}
        present = np.flatnonzero(np.bincount(tissue.ravel()))
        self.present = np.union1d(present, (_RET, _PAP, _INF, *self.passing)) if connective.any() else present

    def amount(self, parameter: str) -> Field:
        """A parameter per pixel, passing smoothly between the connective tissues."""
        column = self.scene.table[parameter]
        out = column[self.tissue]
        for fraction, other in ((self.papillary, _PAP), (self.inflamed, _INF)):
            if column[other] != column[_RET]:
                out += fraction * (column[other] - column[_RET])
        for row, fraction in self.passing.items():
            out += fraction * (column[row] - out)
        return out

    def has(self, parameter: str) -> bool:
        """Whether any tissue of the window uses a layer."""
        return bool(self.scene.table[parameter][self.present].any())


def _strands(pixels: _Pixels) -> Field:
    factor = np.ones(pixels.window.shape, dtype=np.float32)
    for name, (distance, layer) in STRANDS.items():
        if pixels.has(name):
            picture = layer(getattr(pixels.scene.geometry, distance).over(pixels.window), pixels.noises)
            factor *= np.maximum(1.0 + pixels.amount(name) * picture, 0.0)
    return factor


def _open_clefts(pixels: _Pixels, haematoxylin: Field, eosin: Field) -> None:
    """The stroma shrinks away from nests: pale slits along part of their border."""
    near = pixels.scene.geometry.cleft_near.over(pixels.window)
    if near.any():
        kept = 1.0 - 0.9 * np.clip(near * 6.0 - 0.5, 0.0, 1.0) * np.clip(pixels.noises.bend + 0.3, 0.0, 1.0)
        kept[pixels.tissue != _RET] = 1.0
        eosin *= kept
        haematoxylin *= kept


def _hollow_out(pixels: _Pixels, haematoxylin: Field, eosin: Field) -> None:
    scene, window = pixels.scene, pixels.window
    for name, (dye, _) in HOLLOWS.items():
        if pixels.has(name):
            stained = np.nonzero(scene.table[name][pixels.tissue])
            slow = (noise.over(window)[stained] for noise in (scene.slow.eosin, scene.slow.bend, scene.slow.patch))
            kept = dye(Spots(scene.seed, pixels.y_um[stained], pixels.x_um[stained], *slow), window.mpp)
            eosin[stained] *= kept
            haematoxylin[stained] *= kept


def _open_weave(pixels: _Pixels, haematoxylin: Field, eosin: Field) -> None:
    """Keratin as strands, drawn only where it is woven."""
    scene, window = pixels.scene, pixels.window
    if scene.look is None or scene.geometry.in_keratin_um is None or not pixels.has("weave"):
        return
    at = np.nonzero(scene.table["weave"][pixels.tissue])
    depth = -scene.geometry.in_keratin_um.over(window)[at]
    kept = scene.look.weave.presence(depth, pixels.noises.bend[at], pixels.noises.grain[at], window.mpp)
    eosin[at] *= kept
    haematoxylin[at] *= kept


def _melanin(pixels: _Pixels) -> Field | None:
    """Pigment along the basal layer and in macrophages below it."""
    if not pixels.has("melanin") and not pixels.has("melanophages"):
        return None
    scene, window = pixels.scene, pixels.window
    basal = pixels.amount("melanin") * np.clip(3.0 * scene.geometry.dermis_near.over(window), 0.0, 1.0)
    patch, macrophages = scene.slow.patch.over(window), pixels.amount("melanophages")
    density = np.asarray(basal * np.clip(0.6 + 0.5 * patch, 0.0, 1.3), dtype=np.float32)
    at = np.nonzero(macrophages * (patch > 0))
    if at[0].size:
        cells = cells_at(derive(scene.seed, "melanophages"), pixels.y_um[at], pixels.x_um[at], _MACROPHAGE_SPACING_UM)
        inside = np.clip((_MACROPHAGE_RADIUS_UM * (0.6 + 0.8 * cells.mark) - cells.centre_um) / 2.0, 0.0, 1.0)
        # The marks of sites without a macrophage lie above the fraction.
        density[at] += _MACROPHAGE_DENSITY * inside * (cells.mark < macrophages[at])
    return density


def expose(picture: Field, mpp: float, seed: int, artefacts: Artefacts) -> NDArray[np.uint8]:
    """The picture (H, W, 3), 0 to 255, as it comes out of the scanner. Ink is on the tissue, not here."""
    height, width, _ = picture.shape
    # The light falls from 1 to 1 - ``uneven_light`` across the picture, in a random direction.
    angle = generator(seed, "light").uniform(0.0, 2.0 * math.pi)
    y, x = ((np.arange(n, dtype=np.float32) + 0.5) / n - 0.5 for n in (height, width))
    along = y[:, None] * np.float32(math.sin(angle)) + x[None, :] * np.float32(math.cos(angle))
    reach = np.float32(abs(math.sin(angle)) + abs(math.cos(angle)))
    light = np.asarray(1.0 - np.float32(artefacts.uneven_light) * (0.5 + along / reach), dtype=np.float32)
    draw = generator(seed, "sensor")
    out = np.empty(picture.shape, dtype=np.uint8)
    # Colour by colour: large sections then need little more memory than they take themselves.
    for channel in range(3):
        plane = picture[..., channel] * light
        sigma_px = artefacts.blur_um / mpp
        if sigma_px > _BLUR_SEEN_PX:
            plane = ndimage.gaussian_filter(plane, sigma_px, mode="nearest", truncate=3.0)
        if artefacts.sensor_noise:
            plane += np.float32(artefacts.sensor_noise) * draw.standard_normal(plane.shape, dtype=np.float32)
        out[..., channel] = np.clip(plane + np.float32(0.5), 0, 255)
    return out if artefacts.jpeg_quality is None else _through_jpeg(out, artefacts.jpeg_quality)


def _through_jpeg(picture: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    out = np.empty_like(picture)
    for y in range(0, picture.shape[0], _JPEG_TILE_PX):
        for x in range(0, picture.shape[1], _JPEG_TILE_PX):
            tile = (slice(y, y + _JPEG_TILE_PX), slice(x, x + _JPEG_TILE_PX))
            stream = io.BytesIO()
            Image.fromarray(picture[tile]).save(stream, format="JPEG", quality=quality)
            stream.seek(0)
            with Image.open(stream) as decoded:
                out[tile] = np.asarray(decoded)
    return out
