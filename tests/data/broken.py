"""Datasets with one of each fault, and the faults that must be found in them."""

import struct
import zlib
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from ntrm.core.labels import SKIN

HEIGHT, WIDTH = 24, 32

CLASSES = "index,name,r,g,b\n0,background,0,0,0\n1,gland,86,180,233\n2,stroma,213,94,0\n"


def image(height=HEIGHT, width=WIDTH, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def mask(height=HEIGHT, width=WIDTH, classes=3):
    return (np.add.outer(np.arange(height), np.arange(width)) % classes).astype(np.uint8)


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def cut(path, keep=0.6):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def png(width, height, bits=8, colour=2, body=b""):
    """PNG file with a sound structure whose header says what it likes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


class Plain:
    """A folder in the plain layout under construction; a name is sound until it is spoilt."""

    def __init__(self, root: Path):
        self.root = root
        self.rows = ["name,group,split,mpp"]

    def add(self, name, pixels=None, indices=None, row=None):
        save(self.image(name), image() if pixels is None else pixels)
        save(self.mask(name), mask() if indices is None else indices)
        self.rows.append(row or f"{name},patient-{name},train,0.5")

    def image(self, name, suffix=".png"):
        return self.root / "Images" / f"{name}{suffix}"

    def mask(self, name):
        return self.root / "Masks" / f"{name}.png"

    def finish(self):
        (self.root / "classes.csv").write_text(CLASSES)
        (self.root / "cases.csv").write_text("\n".join(self.rows) + "\n")


def sound_plain(root, names=("a", "b")):
    folder = Plain(root)
    for name in names:
        folder.add(name)
    folder.finish()
    return root


def broken_plain(root):
    """One of each fault that the plain layout can have; returns the expected {(code, file)}."""
    folder = Plain(root)
    folder.add("good")
    expected = _broken_pairs(folder) | _broken_images(folder) | _broken_masks(folder) | _broken_rows(folder)
    folder.finish()
    return expected


def _broken_pairs(folder):
    for name in ("no-image", "no-mask", "twice", "Case", "case", "odd; name", "small-mask"):
        folder.add(name)
    folder.image("no-image").unlink()
    folder.mask("no-mask").unlink()
    save(folder.image("twice", ".tif"), image())
    save(folder.mask("small-mask"), mask(HEIGHT - 1))
    return {
        ("missing-image", "Masks/no-image.png"),
        ("missing-mask", "Images/no-mask.png"),
        ("duplicate-name", "Images/twice.tif"),
        ("duplicate-name", "Images/case.png"),
        ("duplicate-name", "Masks/case.png"),
        ("odd-name", "Images/odd; name.png"),
        ("odd-name", "Masks/odd; name.png"),
        ("size-mismatch", "Masks/small-mask.png"),
    }


def _broken_images(folder):
    folder.add("grey", image()[..., 0])
    folder.add("alpha", np.dstack([image(), image()[..., 0]]))  # which is no fault
    for name in ("stack", "text", "cut", "bomb"):
        folder.add(name)
        folder.image(name).unlink()
    tifffile.imwrite(folder.image("stack", ".tif"), np.stack([image()] * 3), photometric="rgb")
    folder.image("text").write_text("this is no image")
    Image.fromarray(image()).save(folder.image("cut", ".jpg"))
    cut(folder.image("cut", ".jpg"))
    folder.image("bomb").write_bytes(png(60_000, 60_000, body=bytes(1000)))
    return {
        ("not-rgb8", "Images/grey.png"),
        ("several-pages", "Images/stack.tif"),
        ("unreadable", "Images/text.png"),
        ("truncated", "Images/cut.jpg"),
        ("too-large", "Images/bomb.png"),
        ("size-mismatch", "Masks/bomb.png"),
    }


def _broken_masks(folder):
    stray = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    stray[:2] = (10, 200, 30)
    folder.add("stray", indices=stray)
    folder.add("range", indices=mask(classes=5))
    folder.add("ignored", indices=np.full((HEIGHT, WIDTH), 255, dtype=np.uint8))
    folder.add("empty", indices=np.zeros((HEIGHT, WIDTH), dtype=np.uint8))
    folder.add("deep-mask", indices=mask().astype(np.uint16))
    folder.add("swapped")
    swapped = Image.fromarray(mask(), mode=None).convert("P")
    swapped.putpalette([0, 0, 0, 213, 94, 0, 86, 180, 233])
    swapped.save(folder.mask("swapped"))
    folder.add("exchanged", pixels=mask(), indices=image())
    folder.add("cut-mask")
    cut(folder.mask("cut-mask"))
    return {
        ("stray-colours", "Masks/stray.png"),
        ("index-range", "Masks/range.png"),
        ("empty-mask", "Masks/ignored.png"),
        ("background-only", "Masks/empty.png"),
        ("mask-format", "Masks/deep-mask.png"),
        ("palette-order", "Masks/swapped.png"),
        ("exchanged", "Masks/exchanged.png"),
        ("truncated", "Masks/cut-mask.png"),
    }


def _broken_rows(folder):
    folder.add("torn-1", row="torn-1,patient-torn,train,0.5")
    folder.add("torn-2", row="torn-2,patient-torn,test,0.5")
    folder.add("no-mpp", row="no-mpp,patient-n,train,")
    folder.add("unlisted")
    folder.rows.pop()
    return {("patient-split", "cases.csv"), ("no-mpp", "cases.csv"), ("bad-cases", "cases.csv")}


def sound_queensland(root, names=("BCC_1", "SCC_2"), levels=(("10x", 1), ("5x", 2)), data="data"):
    for level, scale in levels:
        for name in names:
            save(root / data / level / "Images" / f"{name}.tif", image(HEIGHT * scale, WIDTH * scale))
            colours = SKIN.colourise(mask(HEIGHT * scale, WIDTH * scale, classes=12))
            save(root / data / level / "Masks" / f"{name}.png", colours)
    return root


def broken_queensland(root):
    """Faults between resolutions; returns the expected {(code, file)}."""
    sound_queensland(root, names=("BCC_1", "SCC_2", "IEC_3"))
    save(root / "data/5x/Images/SCC_2.tif", image(HEIGHT * 2 + 3, WIDTH * 2))
    save(root / "data/5x/Masks/SCC_2.png", SKIN.colourise(mask(HEIGHT * 2 + 3, WIDTH * 2)))
    (root / "data/10x/Images/IEC_3.tif").unlink()
    (root / "data/10x/Masks/IEC_3.png").unlink()
    (root / "data/10x/Images/.partial-x.tif").write_bytes(b"II")
    (root / "data/10x/Images/Thumbs.db").write_bytes(b"")
    return {
        ("level-mismatch", "SCC_2"),
        ("missing-level", "IEC_3"),
        ("partial-file", "data/10x/Images/.partial-x.tif"),
        ("other-file", "data/10x/Images/Thumbs.db"),
    }
