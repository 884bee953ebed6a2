"""Slide files of every kind, small and made on the spot."""

from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

NAME = "Jane Doe 1957-03-04"  # What must never leave a reader


def tissue(random, height, width):
    """Smooth colours with some noise: what JPEG keeps well, and nowhere the same."""
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([128 + 80 * np.sin(x / 17 + phase) * np.cos(y / 23 - phase) for phase in (0.0, 1.0, 2.0)], axis=-1)
    return (base + random.uniform(0, 30, base.shape)).clip(0, 255).astype(np.uint8)


def halved(image):
    """Means over 2 × 2 pixels; an odd last row or column is dropped, as scanners do."""
    height, width = image.shape[0] // 2 * 2, image.shape[1] // 2 * 2
    even = image[:height, :width].astype(np.uint16).reshape(height // 2, 2, width // 2, 2, 3)
    return ((even.sum(axis=(1, 3)) + 2) // 4).astype(np.uint8)


def per_cm(mpp):
    x, y = mpp if isinstance(mpp, tuple) else (mpp, mpp)
    return {"resolution": (1e4 / x, 1e4 / y), "resolutionunit": "CENTIMETER"}


def pyramid(image, levels):
    """An image and halves of it."""
    images = [image]
    while len(images) < levels:
        images.append(halved(images[-1]))
    return images


def write_levels(path: Path, images, *, subifds=False, metadata=None, ome=False, **options):
    """Tiled images, each a page, or in SubIFDs of the first."""
    options = {"tile": (64, 64), "photometric": "rgb", **options}
    with tifffile.TiffWriter(path, ome=ome) as tif:
        for number, image in enumerate(images):
            first = {"metadata": metadata, "subifds": len(images) - 1 if subifds else None}
            further = {"metadata": None, "subfiletype": 1}
            tif.write(image, **(further if number else first), **options)
    return path


def write_tiled(path: Path, image, mpp=0.5, levels=3, **options):
    """A plain tiled pyramid: every level a page."""
    return write_levels(path, pyramid(image, levels), **per_cm(mpp), **options)


def write_ome(path: Path, image, mpp=0.5, levels=3, planar=False, **options):
    """An OME-TIFF with its pyramid in SubIFDs; its description holds a name."""
    x, y = mpp if isinstance(mpp, tuple) else (mpp, mpp)
    metadata = {"axes": "SYX" if planar else "YXS", "PhysicalSizeX": x, "PhysicalSizeY": y}
    metadata |= {"Description": NAME, "Name": NAME}
    images = [np.moveaxis(one, -1, 0) if planar else one for one in pyramid(image, levels)]
    planes = "separate" if planar else "contig"
    return write_levels(path, images, subifds=True, ome=True, metadata=metadata, planarconfig=planes, **options)


def write_strips(path: Path, image, mpp=0.5, rows=16, **options):
    """A plain TIFF in strips."""
    tifffile.imwrite(path, image, photometric="rgb", rowsperstrip=rows, metadata=None, **per_cm(mpp), **options)
    return path


def write_svs(path: Path, image, mpp=0.5, levels=2):
    """What an Aperio scanner writes: levels, a thumbnail, label and macro images, and names in the description."""
    size = f"{image.shape[1]}x{image.shape[0]}"
    text = f"Aperio Image Library v11.2.1 \r\n{size} [0,0 {size}] (64x64) JPEG/RGB Q=90|AppMag = 20|MPP = {mpp}"
    text += f"|Filename = {NAME}|User = {NAME}"
    common = {"photometric": "rgb", "metadata": None}
    small = np.full((20, 30, 3), 7, dtype=np.uint8)
    with tifffile.TiffWriter(path) as tif:
        tif.write(image, tile=(64, 64), description=text, **common)
        tif.write(halved(halved(image)), description=text, rowsperstrip=16, **common)
        for _ in range(levels - 1):
            image = halved(image)
            tif.write(image, tile=(64, 64), description=text, **common)
        tif.write(small, description=f"Aperio Image Library\r\nlabel 30x20 {NAME}", subfiletype=1, **common)
        tif.write(small + 1, description=f"Aperio Image Library\r\nmacro 30x20 {NAME}", subfiletype=9, **common)
    return path


def write_scn(path: Path, image, offset=(300, 200), glass=(2000, 1500), nm=500):
    """What a Leica scanner writes: the scanned part somewhere on the glass, and a barcode."""
    height, width = image.shape[:2]
    macro = np.full((75, 100, 3), 200, dtype=np.uint8)
    source = "<illuminationSettings><illuminationSource>brightfield</illuminationSource></illuminationSettings>"
    settings = f"<scanSettings><objectiveSettings><objective>20</objective></objectiveSettings>{source}</scanSettings>"

    def one(pixels, ifds, view):
        sizes = "".join(
            f'<dimension sizeX="{level.shape[1]}" sizeY="{level.shape[0]}" r="{number}" ifd="{ifd}"/>'
            for number, (level, ifd) in enumerate(zip(pixels, ifds, strict=True))
        )
        first = pixels[0]
        return (
            f'<image name="{NAME}"><creationDate>2020-01-01T00:00:00Z</creationDate>'
            f'<device model="Leica SCN400" version="1"/>'
            f'<pixels sizeX="{first.shape[1]}" sizeY="{first.shape[0]}">{sizes}</pixels>'
            f'<view sizeX="{view[0]}" sizeY="{view[1]}" offsetX="{view[2]}" offsetY="{view[3]}"/>{settings}</image>'
        )

    levels = [image, halved(image)]
    whole = (glass[0] * nm, glass[1] * nm)
    xml = (
        '<?xml version="1.0"?><scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01">'
        f'<collection name="{NAME}" sizeX="{whole[0]}" sizeY="{whole[1]}"><barcode>SmFuZSBEb2U=</barcode>'
        + one([macro], [2], (*whole, 0, 0))
        + one(levels, [0, 1], (width * nm, height * nm, offset[0] * nm, offset[1] * nm))
        + "</collection></scn>"
    )
    with tifffile.TiffWriter(path) as tif:
        for pixels in (*levels, macro):
            tif.write(pixels, tile=(64, 64), photometric="rgb", metadata=None, description=xml, **per_cm(nm / 1000))
    return path


def write_png(path: Path, image, mpp=None):
    dots = None if mpp is None else (25_400 / mpp, 25_400 / mpp)
    Image.fromarray(image).save(path, format="PNG", dpi=dots)
    return path


def write_jpeg(path: Path, image, mpp=None, quality=95):
    options = {} if mpp is None else {"dpi": (round(25_400 / mpp), round(25_400 / mpp))}
    Image.fromarray(image).save(path, format="JPEG", quality=quality, **options)
    return path


def write_vms(path: Path, picture: str, **more) -> Path:
    """The text that makes a Hamamatsu slide of a JPEG file."""
    keys = {"NoLayers": 1, "NoJpegColumns": 1, "NoJpegRows": 1, "ImageFile": picture, "MapFile": picture, **more}
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["[Virtual Microscope Specimen]", *(f"{key}={value}" for key, value in keys.items())]))
    return path
