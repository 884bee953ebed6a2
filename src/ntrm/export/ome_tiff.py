"""Label masks, and confidences, as OME-TIFF: a tiled pyramid with colours, class names and µm/px.

A pixel is class index + 1; 0 is nothing. Level 0 is the first image of the file, coarser levels are its SubIFDs, as
QuPath, Fiji and tifffile expect. The same mask gives the same bytes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import tifffile

from ntrm.core.arrays import Bytes
from ntrm.core.io import whole_file
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.threads import most_threads
from ntrm.export.pyramid import MEANING, check_mask, halve, halve_mean, pyramid
from ntrm.version import __version__

TILE = 512
CONFIDENCE_MEANING = "255 = certainty 1; 0 = nothing"
SCHEMA = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
NAMESPACE = uuid.UUID("1b9d4f0e-6a57-5c0b-9d1e-7f4f2a3c8e55")  # Ours, for identifiers that are the same in every run


def write_mask_ome_tiff(
    path: Path,
    mask: Bytes,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    name: str = "tissue",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a mask (H, W) as a pyramid; ``metadata`` is kept in the file, too."""
    maps = {
        "classes": {str(tissue.index + 1): tissue.name for tissue in schema.tissues},
        "titles": {tissue.name: tissue.title for tissue in schema.tissues},
        "colours": {tissue.name: "#{:02x}{:02x}{:02x}".format(*tissue.rgb) for tissue in schema.tissues},
        "about": _about(MEANING, metadata),
    }
    check_mask(mask, schema)
    xml = ome_xml(mask.shape, resolution, name, "tissue", maps)
    # Of the pixel values, a byte scaled to 16 bits; nothing is white, as glass is.
    colours = np.full((256, 3), 255, dtype=np.uint16)
    colours[1 : len(schema) + 1] = schema.palette
    shown = {"photometric": "palette", "colormap": np.ascontiguousarray(colours.T * np.uint16(257))}
    _write(path, pyramid(mask, halve, path.parent), resolution, xml, 1, **shown)


def write_confidence_ome_tiff(
    path: Path,
    values: Bytes,
    resolution: Resolution,
    *,
    name: str = "confidence",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write confidences in bytes, 255 for certainty 1, as a pyramid of means."""
    xml = ome_xml(values.shape, resolution, name, "confidence", {"about": _about(CONFIDENCE_MEANING, metadata)})
    _write(path, pyramid(values, halve_mean, path.parent), resolution, xml, 0, photometric="minisblack")


def _about(meaning: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
    return {"program": "ntrm", "version": __version__, "pixel values": meaning, **(metadata or {})}


def _write(path: Path, levels: Sequence[Bytes], resolution: Resolution, xml: str, added: int, **kind: Any) -> None:
    """``added`` is what a pixel of the file is more than one of the map."""
    with (
        whole_file(path) as partial,
        tifffile.TiffWriter(partial, bigtiff=sum(level.size for level in levels) > 1 << 31) as writer,
    ):
        for number, level in enumerate(levels):
            factor, first = 2**number, number == 0
            writer.write(
                _tiles(level, np.uint8(added)),
                shape=level.shape,
                dtype=np.uint8,
                tile=(TILE, TILE),
                compression="zlib",
                maxworkers=most_threads(),
                # In pixels per centimetre.
                resolution=(10_000 / (resolution.x * factor), 10_000 / (resolution.y * factor)),
                resolutionunit="CENTIMETER",
                description=xml.encode() if first else None,
                subfiletype=0 if first else 1,
                subifds=len(levels) - 1 if first else 0,
                software=False,
                metadata=None,
                **kind,
            )


def _tiles(level: Bytes, added: np.uint8) -> Iterator[Bytes]:
    """Tiles from left to right, top to bottom; tifffile fills those at the border with 0, which is nothing."""
    for top, left in product(range(0, level.shape[0], TILE), range(0, level.shape[1], TILE)):
        # 255 + 1 is 0, too.
        yield level[top : top + TILE, left : left + TILE] + added


def ome_xml(
    shape: tuple[int, ...], resolution: Resolution, name: str, channel: str, maps: Mapping[str, Mapping[str, str]]
) -> str:
    """The OME-XML of an image of one channel: µm/px, and ``maps`` as annotations."""
    height, width = shape
    annotations = references = ""
    for number, (key, values) in enumerate(maps.items()):
        rows = "".join(f"<M K={quoteattr(_clean(k))}>{escape(_clean(v))}</M>" for k, v in values.items())
        annotations += (
            f'<MapAnnotation ID="Annotation:{number}" Namespace="ntrm/{key}"><Value>{rows}</Value></MapAnnotation>'
        )
        references += f'<AnnotationRef ID="Annotation:{number}"/>'
    identity = uuid.uuid5(NAMESPACE, f"{name}|{height}|{width}|{resolution}|{annotations}")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<OME xmlns="{SCHEMA}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{SCHEMA} {SCHEMA}/ome.xsd" UUID="urn:uuid:{identity}" Creator="ntrm {__version__}">'
        f'<Image ID="Image:0" Name={quoteattr(_clean(name))}>'
        '<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" BigEndian="false" Interleaved="false" '
        f'SizeX="{width}" SizeY="{height}" SizeC="1" SizeZ="1" SizeT="1" '
        f'PhysicalSizeX="{resolution.x!r}" PhysicalSizeXUnit="µm" '
        f'PhysicalSizeY="{resolution.y!r}" PhysicalSizeYUnit="µm">'
        f'<Channel ID="Channel:0:0" Name="{channel}" SamplesPerPixel="1"/>'
        '<TiffData IFD="0" PlaneCount="1"/></Pixels>'
        f"{references}</Image>"
        f"<StructuredAnnotations>{annotations}</StructuredAnnotations></OME>"
    )


def _clean(text: str) -> str:
    """The text without characters that XML cannot hold, escaped or not."""
    return re.sub("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)
