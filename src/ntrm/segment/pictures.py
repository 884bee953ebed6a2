"""Small pictures of a segmented slide, sampled from masks that stay on disk."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.io import whole_file, write_bytes
from ntrm.core.labels import IGNORE, RGB, LabelSchema, rgb_of
from ntrm.core.mpp import Resolution
from ntrm.core.pixels import OPACITY, mean_colours, sampled
from ntrm.results.documents import Summary
from ntrm.results.familiarity import SlideFamiliarity
from ntrm.results.paths import FAMILIARITY_MAP, OVERLAY, PICTURE, THUMBNAIL

SMALLEST_SIDE, LARGEST_SIDE = 1200, 3000
"""Longer side of the overlay: letters need pixels, and people do not look at more."""
THUMBNAIL_SIDE, THUMBNAIL_BYTES = 160, 6000  # A page may show a thousand thumbnails
ROWS = 256  # Coloured at a time

Image = NDArray[np.uint8]


def overlay(picture: Image, labels: NDArray[np.uint8], schema: LabelSchema) -> Image:
    """The slide's picture with the tissues' colours over it; background and unpredicted pixels stay as they are."""
    seen = sampled(labels, picture.shape).astype(np.uint8)
    colours, mixed = schema.colour_table(), picture.copy()
    clear = [IGNORE] if schema.background_index is None else [IGNORE, schema.background_index]

    # In bands: as numbers with a fraction, a large picture takes many times its memory.
    for top in range(0, len(picture), ROWS):
        rows = slice(top, top + ROWS)
        tissue = ~np.isin(seen[rows], clear)
        colour = colours[seen[rows][tissue]]
        mixed[rows][tissue] = np.rint((1 - OPACITY) * picture[rows][tissue] + OPACITY * colour)
    return mixed


def write_plain(folder: Path, picture: Image) -> None:
    """Write the slide alone."""
    write_bytes(folder / PICTURE, jpeg(resized(picture, 1, 1600), 88))


def write_familiarity_map(
    folder: Path, picture: Image, familiarity: SlideFamiliarity, mask_shape: tuple[int, ...]
) -> None:
    """Write where the slide is like and unlike what the model knows; nothing where no window was judged."""
    from ntrm.report.overlay import familiarity_map

    if familiarity.windows:
        # Windows are coarse: a small map shows all of them.
        small, shape = resized(picture, 500, 900), (mask_shape[0], mask_shape[1])
        write_bytes(folder / FAMILIARITY_MAP, jpeg(familiarity_map(small, familiarity.windows, shape), 85))


class Tinted(NamedTuple):
    """A slide's pictures with the tissues' colours over them."""

    large: Image
    small: Image
    seen: dict[str, RGB]  # Mean colours of the tissues in the large one


def tinted(picture: Image, labels: Image, schema: LabelSchema) -> Tinted:
    """Colour a picture by the whole mask, which may lie on disk."""
    large = resized(picture, SMALLEST_SIDE, LARGEST_SIDE)
    # Read from disk once; the smaller picture is sampled from this.
    seen = sampled(labels, large.shape).astype(np.uint8)
    coloured = overlay(large, seen, schema)
    means = zip(schema.names, mean_colours(coloured, seen, len(schema)), strict=True)
    colours = {name: rgb_of(np.rint(mean)) for name, mean in means if not np.isnan(mean).any()}
    return Tinted(coloured, overlay(resized(picture, 1, THUMBNAIL_SIDE), seen, schema), colours)


def write_overlays(
    folder: Path,
    pictures: Tinted,
    shape: tuple[int, int],
    schema: LabelSchema,
    resolution: Resolution,
    summary: Summary,
) -> None:
    """Write the overlay with legend, scale bar and measured lines, and a small overlay for lists.

    The whole mask has this ``shape`` and ``resolution`` (µm/px); ``summary`` says what was measured.
    """
    from PIL import Image as Pillow

    from ntrm.report.overlay import annotated

    drawn = annotated(pictures.large, schema, shape, resolution.x, summary, pictures.seen)
    with whole_file(folder / OVERLAY) as partial:
        Pillow.fromarray(drawn).save(partial, format="PNG", compress_level=1)
    write_bytes(folder / THUMBNAIL, small_jpeg(pictures.small, THUMBNAIL_BYTES))


def resized(picture: Image, smallest: int, largest: int) -> Image:
    """A picture whose longer side has from ``smallest`` to ``largest`` pixels; as it is where it already has."""
    from PIL import Image as Pillow

    side = max(picture.shape[:2])
    wanted = min(max(side, smallest), largest)
    if wanted == side:
        return picture
    height, width = (max(1, round(length * wanted / side)) for length in picture.shape[:2])
    # A large one is shrunk by a whole number first, so long as this factor is left.
    gap = 1.9 if side > LARGEST_SIDE else None
    return np.asarray(Pillow.fromarray(picture).resize((width, height), Pillow.Resampling.BICUBIC, reducing_gap=gap))


def jpeg(picture: Image, quality: int) -> bytes:
    """Nothing but pixels in it, and the same bytes for the same pixels."""
    from PIL import Image as Pillow

    stream = BytesIO()
    Pillow.fromarray(picture).save(stream, format="JPEG", quality=quality, subsampling=0)
    return stream.getvalue()


def small_jpeg(picture: Image, most: int) -> bytes:
    """A JPEG as good as ``most`` bytes allow; where no quality fits, the picture is made smaller."""
    while True:
        for quality in (80, 70, 60, 50, 40):
            content = jpeg(picture, quality)
            if len(content) <= most:
                return content
        picture = resized(picture, 1, max(picture.shape[:2]) * 3 // 4)
