"""Every kind of file gives the pixels that were written into it, found by content; nothing else leaves a reader."""

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from tests.helpers import real_data
from tests.slides import making

from ntrm.core.errors import DataError
from ntrm.core.mpp import Resolution
from ntrm.slides.readers.formats import open_slide

openslide = pytest.importorskip("openslide")

KINDS = {
    "tiled": (making.write_tiled, {}, "tifffile", "tiff"),
    "svs": (making.write_svs, {}, "openslide", "aperio"),
    "ome": (making.write_ome, {}, "tifffile", "ome-tiff"),
    "ome-planar": (making.write_ome, {"planar": True}, "tifffile", "ome-tiff"),
    "ome-deflated": (making.write_ome, {"compression": "zlib", "predictor": True}, "tifffile", "ome-tiff"),
    "strips": (making.write_strips, {}, "tifffile", "tiff"),
    "strips-lzw": (making.write_strips, {"compression": "lzw"}, "tifffile", "tiff"),
    "one-strip": (making.write_strips, {"rows": 10_000}, "tifffile", "tiff"),
    "big-endian": (making.write_strips, {"byteorder": ">"}, "tifffile", "tiff"),
    "png": (making.write_png, {"mpp": 0.5}, "pillow", "png"),
}


def openslide_pixels(path, x, y, width, height, level):
    """What OpenSlide itself gives, on white."""
    with openslide.OpenSlide(path) as slide:
        region = slide.read_region((x, y), level, (width, height))
        return np.asarray(Image.alpha_composite(Image.new("RGBA", region.size, "white"), region).convert("RGB"))


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_and_resolution_come_back_whatever_the_file_is_called(kind, tmp_path, random):
    write, options, reader, vendor = KINDS[kind]
    image = making.tissue(random, 150, 211)
    slide = open_slide(write(tmp_path / "scan.dat", image, **options))
    info = slide.info
    assert (info.reader, info.vendor, info.width, info.height) == (reader, vendor, 211, 150)
    assert info.resolution is not None
    assert (info.resolution.x, info.resolution.y) == pytest.approx((0.5, 0.5), rel=1e-3)
    np.testing.assert_array_equal(slide.read(0, 0, 211, 150, 0), image)
    for _ in range(20):
        x, y = (int(random.integers(-20, size)) for size in (211, 150))
        width, height = (int(number) for number in random.integers(1, 90, 2))
        padded = np.full((400, 400, 3), 255, dtype=np.uint8)
        padded[50:200, 50:261] = image
        np.testing.assert_array_equal(slide.read(x, y, width, height, 0), padded[50 + y :, 50 + x :][:height, :width])
    slide.close()
    slide.close()


@pytest.mark.parametrize("write", [making.write_ome, making.write_tiled, making.write_svs])
def test_levels_are_those_written(write, tmp_path, random):
    image = making.tissue(random, 256, 384)
    slide = open_slide(write(tmp_path / "a.tif", image))
    assert len(slide.info.levels) == (2 if write is making.write_svs else 3)
    for number, level in enumerate(slide.info.levels):
        assert (level.width, level.height, level.downsample) == (image.shape[1], image.shape[0], 2.0**number)
        assert slide.info.scale(number) == (2**number, 2**number)
        whole = slide.read(0, 0, level.width, level.height, number)
        np.testing.assert_array_equal(whole, image)
        x, y = 2**number * 30, 2**number * 10
        np.testing.assert_array_equal(slide.read(x, y, 50, 100, number)[:40], image[10:50, 30:80])
        image = making.halved(image)


@pytest.mark.parametrize("name", ["cmu-1-small-region.svs", "boxes.tiff", "small.svs"])
def test_pixels_of_real_slides_agree_with_openslide(name, random):
    slide = open_slide(real_data("slides", name))
    for level, size in enumerate(slide.info.levels):
        for _ in range(8):
            x, y = (int(random.integers(0, side)) for side in (slide.info.width, slide.info.height))
            column, row = round(x / size.downsample), round(y / size.downsample)
            width, height = max(1, min(200, size.width - column)), max(1, min(200, size.height - row))
            between = slide.info.reader == "tifffile" and (x % size.downsample or y % size.downsample)
            if column + width > size.width or row + height > size.height or between:
                continue  # OpenSlide interpolates between pixels of a level
            region = (x, y, width, height, level)
            np.testing.assert_array_equal(slide.read(*region), openslide_pixels(real_data("slides", name), *region))
    slide.close()


def test_real_files_tell_their_resolution_or_nothing_and_broken_ones_are_refused():
    assert open_slide(real_data("slides", "cmu-1-small-region.svs")).info.resolution == Resolution(0.499, 0.499)
    boxes = open_slide(real_data("slides", "boxes.tiff")).info
    assert boxes.resolution is None  # 72 dpi is a printer's
    assert boxes.stated_mpp == pytest.approx((352.78, 352.78), rel=1e-4)
    assert open_slide(real_data("slides", "pen-marks.png")).info.resolution is None
    for name in ("broken.svs", "unopenable.tiff"):
        with pytest.raises(DataError, match="cannot read the slide"):
            open_slide(real_data("slides", name))


def test_the_scanned_part_of_a_leica_slide_is_known(tmp_path, random):
    image = making.tissue(random, 200, 260)
    slide = open_slide(making.write_scn(tmp_path / "a.scn", image, offset=(300, 200)))
    assert slide.info.bounds == slide.info.area == (300, 200, 260, 200)
    assert slide.info.resolution == Resolution(0.5, 0.5)
    np.testing.assert_array_equal(slide.read(300, 200, 260, 200, 0), image)
    around = slide.read(290, 190, 280, 220, 0)
    assert (around[:10] == 255).all()
    np.testing.assert_array_equal(around[10:210, 10:270], image)


def test_transparent_pixels_are_on_white(tmp_path, random):
    pixels = np.dstack([making.tissue(random, 30, 40), random.integers(0, 256, (30, 40), dtype=np.uint8)])
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = open_slide(tmp_path / "a.png").read(0, 0, 40, 30, 0)
    alpha = pixels[..., 3:] / 255
    np.testing.assert_allclose(found, pixels[..., :3] * alpha + 255 * (1 - alpha), atol=0.51)


@pytest.mark.parametrize("tile", [None, (64, 64)], ids=["strips", "tiles"])
@pytest.mark.parametrize("kind", ["unassalpha", "assocalpha", "unspecified"])
def test_a_fourth_sample_of_a_tiff_is_alpha_only_where_it_says_so(kind, tile, tmp_path, random):
    image, alpha = making.tissue(random, 70, 90), random.integers(1, 256, (70, 90, 1), dtype=np.uint8)
    expected = np.round(image * (alpha / 255) + 255 - alpha) if kind != "unspecified" else image
    stored = np.round(image * (alpha / 255)).astype(np.uint8) if kind == "assocalpha" else image
    options = {"photometric": "rgb", "extrasamples": [kind], "tile": tile, "metadata": None}
    tifffile.imwrite(tmp_path / "a.tif", np.dstack([stored, alpha]), **options)
    found = open_slide(tmp_path / "a.tif").read(0, 0, 90, 70, 0)
    # Where OpenSlide reads, it has divided by alpha in between.
    np.testing.assert_allclose(found, expected, atol=2)


@pytest.mark.parametrize("kind", ["strips", "tiles", "ome", "label of an ome"])
def test_of_several_images_the_slide_is_read_with_its_own_resolution(kind, tmp_path, random):
    slide, label = making.tissue(random, 150, 211), np.full((70, 60, 3), 7, dtype=np.uint8)
    if kind == "label of an ome":
        label = np.full((250, 250, 3), 7, dtype=np.uint8)  # a slide that was cut out is smaller than its label
    with tifffile.TiffWriter(tmp_path / "a.tif", ome="ome" in kind) as tif:
        for image, name, mpp in ((label, "label image", 20.0), (slide, "a", 0.5)):
            metadata = {"Name": name, "PhysicalSizeX": mpp, "PhysicalSizeY": mpp} if "ome" in kind else None
            tile = (64, 64) if kind == "tiles" else None
            tif.write(image, photometric="rgb", metadata=metadata, tile=tile, **making.per_cm(mpp))
    found = open_slide(tmp_path / "a.tif")
    np.testing.assert_array_equal(found.read(0, 0, found.info.width, found.info.height, 0), slide)
    assert found.info.resolution == Resolution(0.5, 0.5)


def stacked(path, planes):
    with tifffile.TiffWriter(path) as writer:
        for plane in planes:
            writer.write(plane, photometric="rgb", metadata=None)


STACKS = {
    "pages": stacked,
    "shaped": lambda path, planes: tifffile.imwrite(path, planes, photometric="rgb", tile=(64, 64)),
    "imagej": lambda path, planes: tifffile.imwrite(path, planes, photometric="rgb", imagej=True),
    "ome": lambda path, planes: tifffile.imwrite(path, planes, photometric="rgb", ome=True, metadata={"axes": "ZYXS"}),
}


@pytest.mark.parametrize("write", STACKS.values(), ids=STACKS)
def test_a_stack_is_not_read_by_its_first_page(write, tmp_path, random):
    write(tmp_path / "Jane.tif", random.integers(0, 256, (3, 128, 192, 3), dtype=np.uint8))
    with pytest.raises(DataError, match="a stack of several images") as error:
        open_slide(tmp_path / "Jane.tif")
    assert error.value.got == "3 images of 192 × 128 pixels in one file"


NO_COLOURS = {
    "empty": lambda path: path.write_bytes(b""),
    "16 bits": lambda path: tifffile.imwrite(path, np.zeros((30, 40, 3), dtype=np.uint16), photometric="rgb"),
    "a grey stack": lambda path: tifffile.imwrite(path, np.zeros((5, 30, 40), np.uint8), metadata={"axes": "ZYX"}),
    "luma and chroma": lambda path: Image.new("YCbCr", (40, 30)).save(path, format="TIFF"),
    "CMYK": lambda path: Image.new("CMYK", (40, 30)).save(path, format="JPEG"),
    "grey": lambda path: Image.new("L", (40, 30)).save(path, format="PNG"),
}


@pytest.mark.parametrize("write", NO_COLOURS.values(), ids=NO_COLOURS)
def test_what_is_no_colour_image_is_refused_without_its_name(write, tmp_path):
    write(tmp_path / making.NAME)
    with pytest.raises(DataError) as caught:
        open_slide(tmp_path / making.NAME)
    assert making.NAME not in str(caught.value)


@pytest.mark.parametrize("tile", [None, (64, 64)])
def test_pages_that_are_smaller_or_of_another_kind_make_no_stack(tile, tmp_path, random):
    plane = random.integers(0, 256, (128, 192, 3), dtype=np.uint8)
    for others in ([plane[::2, ::2], plane[::4, ::4]], [plane[:30, :50]] * 2, [plane[..., 0]]):
        with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
            for page in (plane, *others):
                kind = "rgb" if page.ndim == 3 else "minisblack"
                writer.write(page, photometric=kind, metadata=None, tile=tile, subfiletype=int(page is not plane))
        assert np.array_equal(open_slide(tmp_path / "a.tif").read(0, 0, 192, 128, 0), plane)


def test_pieces_that_were_never_written_are_white(tmp_path, random):
    image = making.tissue(random, 128, 192)
    path = making.write_ome(tmp_path / "a.ome.tif", image, levels=1)
    with tifffile.TiffFile(path, mode="r+") as tif:
        counts = tif.pages[0].tags["TileByteCounts"]
        counts.overwrite([0, *counts.value[1:]])
    found = open_slide(path).read(0, 0, 192, 128, 0)
    assert (found[:64, :64] == 255).all()
    np.testing.assert_array_equal(found[64:], image[64:])


def test_openslide_does_not_tell_the_name_either(tmp_path, random, monkeypatch):
    path = making.write_tiled(tmp_path / f"{making.NAME}.tif", making.tissue(random, 150, 211), levels=1)
    with tifffile.TiffFile(path, mode="r+") as tif:
        counts = tif.pages[0].tags["TileByteCounts"]
        counts.overwrite([7] * len(counts.value))
    with openslide.OpenSlide(path) as handle, pytest.raises(openslide.OpenSlideError, match="Jane Doe"):
        handle.read_region((0, 0), 0, (100, 100))
    monkeypatch.chdir(tmp_path)
    for spelling in (path, Path(path.name), tmp_path / "." / path.name, tmp_path / "x" / ".." / path.name):
        (tmp_path / "x").mkdir(exist_ok=True)
        slide = open_slide(spelling)
        with pytest.raises(DataError) as caught:
            slide.read(0, 0, 100, 100, 0)
        assert "Jane" not in str(caught.value)
        assert "1957" not in str(caught.value)


def test_missing_files_folders_and_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.svs", tmp_path, tmp_path / "pipe"):
        with pytest.raises(DataError, match="cannot read the slide"):
            open_slide(path)


def test_a_file_that_shrinks_while_it_is_open_is_an_error(tmp_path, random):
    path = making.write_strips(tmp_path / "a.tif", making.tissue(random, 150, 211))
    slide = open_slide(path)
    os.truncate(path, 2000)
    with pytest.raises(DataError, match="cannot read the slide"):
        slide.read(0, 0, 211, 150, 0)


def test_sizes_beyond_reason_are_refused_before_decoding(tmp_path, random):
    path = making.write_strips(tmp_path / "a.tif", making.tissue(random, 40, 50), compression="zlib")
    with tifffile.TiffFile(path, mode="r+") as tif:
        tags = tif.pages[0].tags
        for name in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            tags[name].overwrite(60_000)
    with pytest.raises(DataError):
        open_slide(path).read(0, 0, 10, 10, 0)
    png = bytearray(making.write_png(tmp_path / "a.png", making.tissue(random, 40, 50)).read_bytes())
    png[16:24] = (60_000).to_bytes(4, "big") * 2
    (tmp_path / "a.png").write_bytes(png)
    with pytest.raises(DataError):
        open_slide(tmp_path / "a.png")


def test_parts_of_an_ome_tiff_in_other_files_are_not_followed(tmp_path, random):
    image = making.tissue(random, 64, 64)
    path = making.write_ome(tmp_path / "a.ome.tif", image, levels=1)
    secret = making.write_ome(tmp_path / "b.ome.tif", 255 - image, levels=1)
    with tifffile.TiffFile(path, mode="r+") as tif:
        page = tif.pages[0]
        xml = page.description
        uuid = xml.split("<TiffData")[1].split("</TiffData>")[0]
        assert "IFD" in uuid or "UUID" in uuid
        page.tags["ImageDescription"].overwrite(xml.replace("a.ome.tif", secret.name))
    np.testing.assert_array_equal(open_slide(path).read(0, 0, 64, 64, 0), image)


@pytest.mark.parametrize("write", [making.write_svs, making.write_ome, making.write_scn])
def test_names_in_headers_stay_in_the_file(write, tmp_path, random):
    path = write(tmp_path / "a.tif", making.tissue(random, 128, 192))
    assert making.NAME.encode() in path.read_bytes()
    slide = open_slide(path)
    told = repr(slide.info) + str(slide.info.as_dict())
    assert "Jane" not in told
    assert "SmFuZSBEb2U" not in told
    slide.close()
    data, errors = path.read_bytes(), []
    for end in range(len(data) // 10, len(data), len(data) // 10):
        path.write_bytes(data[:end])
        try:
            open_slide(path).read(0, 0, 100, 100, 0)
        except DataError as error:
            errors.append(str(error))
    assert errors
    assert "Jane" not in "".join(errors)
