import io

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.data.broken import image, mask, png

from ntrm.core.errors import DataError
from ntrm.core.labels import SKIN
from ntrm.data.faults import FaultError
from ntrm.data.image_files import image_size, read_image, read_mask

SEEDS = st.integers(0, 2**32 - 1)


def pillow(picture, kind, **options):
    stream = io.BytesIO()
    picture = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    picture.save(stream, kind, **options)
    return stream.getvalue()


def tiff(pixels, **options):
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **{"photometric": "rgb", **options})
    return stream.getvalue()


LOSSLESS = {
    "png": lambda pixels: pillow(pixels, "PNG"),
    "pillow tiff": lambda pixels: pillow(pixels, "TIFF"),
    "pillow lzw tiff": lambda pixels: pillow(pixels, "TIFF", compression="tiff_lzw"),
    "tiff": tiff,
    "big-endian tiff": lambda pixels: tiff(pixels, byteorder=">"),
    "bigtiff": lambda pixels: tiff(pixels, bigtiff=True),
    "deflate tiff": lambda pixels: tiff(pixels, compression="zlib", predictor=True),
    "lzw strips": lambda pixels: tiff(pixels, compression="lzw", rowsperstrip=8),
    "tiled tiff": lambda pixels: tiff(pixels, tile=(16, 16), compression="packbits"),
    "planar tiff": lambda pixels: tiff(np.moveaxis(pixels, -1, 0), planarconfig="separate"),
}
LOSSY = {
    "jpeg": lambda pixels: pillow(pixels, "JPEG"),
    "progressive jpeg": lambda pixels: pillow(pixels, "JPEG", progressive=True),
    "jpeg tiff": lambda pixels: tiff(pixels, compression="jpeg", tile=(16, 16)),
}
ALL = LOSSLESS | LOSSY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("decode")


def written(folder, data, name="file.dat"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", LOSSLESS)
@settings(max_examples=8)
@given(seed=SEEDS, height=st.integers(1, 40), width=st.integers(1, 40))
def test_what_is_written_is_read(folder, kind, seed, height, width):
    pixels = image(height, width, seed)
    path = written(folder, LOSSLESS[kind](pixels))
    assert image_size(path) == (height, width)
    np.testing.assert_array_equal(read_image(path), pixels)


@pytest.mark.parametrize("kind", LOSSY)
def test_lossy_files_read_as_pillow_reads_them(folder, kind):
    smooth = np.add.outer(np.arange(40), np.arange(48))[..., None] + np.array([0, 40, 80])
    path = written(folder, LOSSY[kind](smooth.astype(np.uint8)))
    with Image.open(path) as reference:
        expected = np.asarray(reference.convert("RGB")).astype(int)
    assert np.abs(read_image(path) - expected).max() <= 2


@pytest.mark.parametrize("kind", ALL)
@settings(max_examples=12)
@given(seed=SEEDS, data=st.data())
def test_a_file_cut_anywhere_is_refused(folder, kind, seed, data):
    whole = ALL[kind](image(33, 37, seed))
    keep = data.draw(st.one_of(st.integers(0, len(whole) - 1), st.integers(max(0, len(whole) - 64), len(whole) - 1)))
    with pytest.raises(FaultError) as error:
        read_image(written(folder, whole[:keep]))
    assert error.value.fault.code in {"truncated", "unreadable"}, (keep, len(whole))


@pytest.mark.parametrize("kind", ALL)
@settings(max_examples=12)
@given(seed=SEEDS)
def test_damage_raises_nothing_but_our_error(folder, kind, seed):
    rng = np.random.default_rng(seed)
    whole = ALL[kind](image(33, 37, seed))
    spoilt = bytearray(whole)
    for _ in range(rng.integers(1, 6)):
        # Half of the damage goes into the first bytes, where the structure is.
        spoilt[rng.integers(len(spoilt) if rng.random() < 0.5 else min(400, len(spoilt)))] ^= rng.integers(256)
    path = written(folder, bytes(spoilt))
    try:
        pixels = read_image(path, max_pixels=1_000_000)
    except DataError:
        return
    assert pixels.shape == (*image_size(path), 3)
    assert kind != "png" or bytes(spoilt) == whole  # its checksums tell every wrong byte


def test_a_strip_that_was_never_written_is_refused(folder):
    data = bytearray(tiff(image(64, 64), compression="zlib", rowsperstrip=16))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as tif:
        counts = tif.pages[0].tags["StripByteCounts"]
        size = {3: 2, 4: 4}[int(counts.dtype)]
        data[counts.valueoffset + 3 * size : counts.valueoffset + 4 * size] = bytes(size)
    with pytest.raises(FaultError) as error:
        read_image(written(folder, bytes(data)))
    assert error.value.fault.code == "truncated"
    assert "3 of 4 strips" in str(error.value)


FOUR = np.dstack([image(), image()[..., 0]])
NO_IMAGES = {
    "8-bit grey": pillow(image()[..., 0], "PNG"),
    "16-bit grey": pillow(image()[..., 0].astype(np.uint16), "PNG"),
    "16-bit RGB": png(4, 3, bits=16, body=bytes(3 * (1 + 4 * 6))),
    "8-bit grey with alpha": pillow(image()[..., :2], "PNG"),
    "1-bit grey": pillow(image()[..., 0] > 9, "PNG"),
    "palette": png(4, 3, colour=3, body=bytes(3 * 5)),
    "CMYK": tiff(FOUR, photometric="separated"),
    "8-bit CMYK": pillow(Image.fromarray(image()).convert("CMYK"), "JPEG"),
    "float RGB": tiff(image().astype(np.float32)),
    "32-bit float grey": tiff(image()[..., 0].astype(np.float32), photometric="minisblack"),
    "16-bit RGB ": tiff(image().astype(np.uint16)),
    "and alpha": tiff(FOUR, extrasamples=["unassalpha"]),
}
NO_MASKS = {
    "JPEG": pillow(mask(), "JPEG"),
    "16-bit grey": pillow(mask().astype(np.uint16), "PNG"),
    "2-bit grey": png(4, 3, bits=2, colour=0, body=bytes(6)),
    "1-bit grey": pillow(mask(classes=2) > 0, "PNG"),
    "alpha": pillow(np.dstack([SKIN.colourise(mask()), mask()]), "PNG"),
    "inverted grey": tiff(mask(), photometric="miniswhite"),
    "float": tiff(mask().astype(np.float32), photometric="minisblack"),
}
STRAY, OUTSIDE = SKIN.colourise(mask(40, 50, classes=12)), mask()
STRAY.reshape(-1, 3)[:21], OUTSIDE[0, :2] = (10, 200, 30), 12
BOMB = png(60_000, 60_000, body=bytes(10_000))


def read_skin(path):
    return read_mask(path, SKIN)


@pytest.mark.parametrize(
    ("read", "data", "code", "said"),
    [
        *((read_image, data, "not-rgb8", said.strip()) for said, data in NO_IMAGES.items()),
        *((read_skin, data, "mask-format", said) for said, data in NO_MASKS.items()),
        *((read, BOMB, "too-large", "60000 × 60000") for read in (read_image, read_skin)),
        (read_skin, pillow(OUTSIDE, "PNG"), "index-range", "12 in 2 pixels"),
        (read_skin, pillow(STRAY, "PNG"), "stray-colours", "(10, 200, 30) × 21"),
    ],
)
def test_what_is_no_image_or_no_mask_is_refused_in_words(folder, read, data, code, said):
    with pytest.raises(FaultError) as error:
        read(written(folder, data))
    assert error.value.fault.code == code
    assert said in str(error.value)


@given(seed=SEEDS, rgb=st.booleans(), kind=st.sampled_from(["PNG", "TIFF"]))
def test_masks_keep_their_classes(folder, seed, rgb, kind):
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, 12, (13, 17)).astype(np.uint8)
    path = written(folder, pillow(SKIN.colourise(indices) if rgb else indices, kind))
    decoded = read_mask(path, SKIN)
    np.testing.assert_array_equal(decoded.mask, indices)
    assert decoded.strays == 0


@pytest.mark.parametrize("scale", [257, 256, 1])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_palette_of_a_tiff_counts_as_well(folder, scale, swapped):
    colours = np.zeros((3, 256), np.uint16)
    colours[:, : len(SKIN)] = SKIN.palette.T.astype(np.uint16) * scale
    if swapped:
        colours[:, :2] = colours[:, 1::-1]
    indices = mask(classes=2)
    tifffile.imwrite(folder / "mask.tif", indices, photometric="palette", colormap=colours)
    if not swapped:
        assert np.array_equal(read_mask(folder / "mask.tif", SKIN).mask, indices)
        return
    with pytest.raises(FaultError, match=r"index 0 \(EPI\) has the colour of GLD") as error:
        read_mask(folder / "mask.tif", SKIN)
    assert error.value.fault.code == "palette-order"


def test_stray_colours_up_to_one_per_cent_are_ignored(folder):
    colours = STRAY.copy()
    colours[0, 20] = SKIN.colourise(mask(40, 50, classes=12))[0, 20]
    decoded = read_skin(written(folder, pillow(colours, "PNG")))
    assert (decoded.strays, decoded.ignored) == (20, 20)


def pages(folder, *arrays, **options):
    with tifffile.TiffWriter(folder / "pages.tif") as writer:
        for array in arrays:
            writer.write(array, photometric="rgb" if array.ndim == 3 else "minisblack", metadata=None, **options)
    return folder / "pages.tif"


@pytest.mark.parametrize("options", [{}, {"tile": (16, 16)}, {"compression": "deflate", "description": "one of them"}])
def test_a_stack_is_neither_an_image_nor_a_mask(folder, options):
    indices = mask(40, 50)
    colours = SKIN.colourise(indices)
    for arrays, read in (
        ([colours] * 3, read_image),
        ([colours, colours[::2, ::2], colours, colours], read_image),
        ([indices] * 3, read_skin),
        # Beside an image a page of another kind may lie; which of two says what a mask is?
        ([indices, colours, colours], read_skin),
        ([colours, indices, indices], read_skin),
    ):
        path = pages(folder, *arrays, **options)
        with pytest.raises(FaultError, match="a stack of several images") as error:
            read(path)
        assert error.value.fault.code == "several-pages"
        assert error.value.got == "3 pages of 50 × 40 pixels"


@pytest.mark.parametrize("compression", ["jpeg", "jpeg2000"])
def test_tiles_larger_than_the_file_promises_are_not_decoded(tmp_path, compression):
    if compression == "jpeg2000":
        pytest.importorskip("imagecodecs")
    huge = pillow(np.full((900, 900, 3), 200, dtype=np.uint8), compression.upper())
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        colour = {"photometric": "ycbcr", "subsampling": (2, 2)} if compression == "jpeg" else {"photometric": "rgb"}
        shape = {"shape": (32, 32, 3), "dtype": np.uint8, "tile": (16, 16)}
        writer.write(iter([huge] * 4), compression=compression, **shape, **colour)
    with pytest.raises(FaultError) as caught:
        read_image(tmp_path / "a.tif")
    assert caught.value.got == "a tile of 900 × 900 pixels"
