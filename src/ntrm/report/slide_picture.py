"""A slide on a page: the slide, its tissues in two palettes one over the other, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ntrm.core.labels import RGB, LabelSchema, rgb_of, safe_palette
from ntrm.core.pixels import OPACITY, mean_colours, sampled, size_within
from ntrm.report.html import data_uri
from ntrm.report.overlay import Frame, drawing_of, font_size, scale_bar
from ntrm.results.documents import Slide, unusable
from ntrm.results.folder import SlideFolder
from ntrm.results.mask_file import check_shape, opened_mask, schema_in
from ntrm.results.paths import PICTURE

SIDE = 1600  # Longer side of the tissues' layer
UNITS = 1000.0  # Longer side of the drawing, in its own units


@dataclass(frozen=True, eq=False)
class SlidePictures:
    """What the mask's file and the slide's picture have to show."""

    plain: bytes  # The slide as JPEG
    labels: NDArray[np.uint8]  # (H, W) class index + 1, 0 for nothing, at most SIDE long
    seen: NDArray[np.float64]
    """(256, 3) mean colours of the slide where each label lies; white for those that are not there."""
    schema: LabelSchema  # Of the classes that the slide's documents name

    def as_seen(self, palette: Sequence[RGB]) -> list[RGB]:
        """Colours of a palette, one for each class, as they look over the slide."""
        seen = self.seen[1 : len(self.schema) + 1]
        mixed = np.rint((1 - OPACITY) * seen + OPACITY * np.array(palette, dtype=np.float64)).astype(int)
        return [rgb_of(colour) for colour in mixed]


def read_pictures(folder: Path, slide: Slide) -> SlidePictures:
    """What the slide's folder has to show; whatever is damaged in mask or picture is this slide's error."""
    with opened_mask(folder) as stored:
        check_shape(stored, (slide.grid.height, slide.grid.width))
        # The finest level that is not needlessly fine.
        level = next((number for number, of in enumerate(stored.levels) if max(of.shape) <= 2 * SIDE), None)
        if level is None:
            raise ValueError("no level is small enough")
        values, schema = stored.pixels(level), schema_in(stored, slide)
    labels = sampled(values, size_within(values.shape, SIDE))
    try:
        content, picture = SlideFolder(folder).picture(PICTURE)
    except FileNotFoundError as error:
        raise unusable(folder, f" has no {PICTURE}", "no such file") from error
    except OSError as error:
        raise unusable(folder, f": cannot read {PICTURE}", error) from error
    pixels = np.asarray(picture.convert("RGB").resize(labels.shape[::-1], Image.Resampling.NEAREST))
    seen = np.nan_to_num(mean_colours(pixels, labels, 256), nan=255.0)
    return SlidePictures(content, labels, seen, schema)


def stored_jpeg(folder: SlideFolder, name: str, most: int) -> str:
    """A small picture of the folder as part of a page; empty where there is none, or one larger than ``most`` bytes."""
    try:
        content = folder.read(name, most=most)
    except OSError:
        return ""
    return data_uri(content, "jpeg") if content.startswith(b"\xff\xd8\xff") else ""


def stage(slide: Slide, pictures: SlidePictures) -> dict[str, Any]:
    """What ``stage.html`` shows: the slide, its tissues in one or two palettes, and what was measured."""
    schema = pictures.schema
    # Labels are index + 1; nothing, and the background, are transparent.
    alpha = bytes(0 if index in (-1, schema.background_index) else 255 for index in range(-1, len(schema)))
    tints = {}
    for name, palette in (("own", [tissue.rgb for tissue in schema.tissues]), ("safe", safe_palette(schema))):
        if palette is not None:
            layer, stream = Image.fromarray(pictures.labels), BytesIO()
            layer.putpalette([channel for colour in ((0, 0, 0), *palette) for channel in colour])
            layer.save(stream, format="PNG", transparency=alpha)
            tints[name] = data_uri(stream.getvalue(), "png")
    height, width = slide.grid.height, slide.grid.width
    scale = UNITS / max(height, width)
    frame = Frame(width * scale, height * scale, scale, scale, 1.1 * font_size(UNITS, UNITS))
    return {
        "slide_id": slide.slide_id,
        "width": width,
        "height": height,
        "plain": data_uri(pictures.plain, "jpeg"),
        "tints": tints,
        "frame": frame,
        "drawing": drawing_of(slide.pieces, frame),
        "bar": scale_bar(frame, slide.grid.mpp[0]),
    }
