"""Small slides for the tests of tissue and quality, and what may be wrong with them."""

import functools

import numpy as np
from scipy import ndimage

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.phantom.render import Artefacts, expose, render
from ntrm.phantom.stain import Stain
from ntrm.slides.quality.thumbnail import Thumbnail, find_pen, glass_colour
from ntrm.slides.tissue_mask import find_tissue

MPP = 13.4
SQUARE = Resolution.square(MPP)
BKG = SKIN.index("BKG")
PENS = {"blue": (1.0, 0.62, 0.2), "green": (0.9, 0.35, 0.55), "black": (0.8, 0.8, 0.72), "red": (0.05, 1.0, 0.95)}
HAEMATOXYLIN, BROWN = (0.65, 0.70, 0.29), (0.27, 0.57, 0.78)


def tissue_of(picture, mpp=SQUARE):
    """The tissue that is found in a picture."""
    thumbnail = Thumbnail(picture, mpp)
    return find_tissue(thumbnail, find_pen(thumbnail))


def optical_density(picture):
    """(H, W, 3) against the picture's own glass."""
    return -np.log10((picture + 1.0) / (glass_colour(picture).astype(float) + 1.0)).astype(np.float32)


def pen_of(picture):
    """The pen marks that are found in a picture."""
    thumbnail = Thumbnail(picture, SQUARE)
    return thumbnail.upsampled(find_pen(thumbnail))


def skin_mask(height=220, width=330):
    """Skin on top of fat, as an excision shows it, with glass around: 3 by 4.4 mm."""
    mask = np.full((height, width), BKG, dtype=np.uint8)
    columns = slice(60, width - 60)
    layers = (("KER", 40, 44), ("EPI", 44, 50), ("PAP", 50, 60), ("RET", 60, 120), ("HYP", 120, 180))
    for name, top, bottom in layers:
        mask[top:bottom, columns] = SKIN.index(name)
    return mask


@functools.lru_cache(maxsize=24)
def _rendered(seed, mpp, **options):
    factor = round(MPP / mpp)
    picture = render(skin_mask().repeat(factor, axis=0).repeat(factor, axis=1), mpp, seed, **options)
    picture.setflags(write=False)
    return picture


def clean(seed, mpp=MPP):
    """The section in a stain and with the artefacts of its seed."""
    return _rendered(seed, mpp)


def undisturbed(seed):
    """The section in the mean stain, without any artefact: what is faint can be measured."""
    return _rendered(seed, MPP, stain=Stain(), artefacts=Artefacts())


def stained(seed, haematoxylin, eosin):
    """The same in other dyes."""
    return _rendered(seed, MPP, stain=Stain(haematoxylin=haematoxylin, eosin=eosin))


def out_of_focus(picture, sigma_px):
    """Blurred before the sensor, so that its noise is sharp."""
    planes = [ndimage.gaussian_filter(picture[..., k].astype(np.float32), sigma_px) for k in range(3)]
    return expose(np.stack(planes, axis=-1), MPP, 1, Artefacts(sensor_noise=1.0, jpeg_quality=85))


def marked(picture, rows, columns, pen):
    """A stroke over some rows and columns."""
    amount = np.zeros(picture.shape[:2])
    amount[rows, columns] = 0.8
    amount = ndimage.gaussian_filter(amount, 1.5)
    return (picture * 10 ** (-amount[..., None] * np.asarray(PENS[pen]))).astype(np.uint8)


def folded(picture, rows, columns):
    """Twice the density over some rows and columns."""
    glass = np.median(picture[:20], axis=(0, 1))
    double = picture.astype(np.float64)
    double[rows, columns] = glass * (double[rows, columns] / glass) ** 2
    return np.clip(double, 0, 255).astype(np.uint8)
