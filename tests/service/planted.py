"""What somebody may put into a results folder before handing it over: links, pipes, and files that promise much."""

import functools
import hashlib
import io
import json
import math
import os
import shutil
import stat
import struct
import threading
import zlib
from contextlib import contextmanager, suppress
from itertools import repeat

import numpy as np
import tifffile
from PIL import Image

SECRET = b"a file of the machine"
SHOWN = (
    "graph.json", "regions.geojson", "coarse.ome.tif", "confidence.ome.tif", "truth.ome.tif", "report.html",
    "overlay.png", "slide.jpg", "thumbnail.jpg", "familiarity.jpg", "corrected/summary.json", "corrected/report.html",
    "corrected/overlay.png", "corrected/regions.csv",
)  # fmt: skip
LOCKS = (".ntrm/lock", ".ntrm/corrections.lock", ".ntrm/corrected.lock", "../.lock")
FILES = {
    **{name: (name,) for name in ("summary.json", "mask.ome.tif", "corrections.jsonl", "../run.json", "../slides.csv")},
    **{f".ntrm/{name}": (f".ntrm/{name}",) for name in ("done.json", "failed.json", "pieces.npz", "texture.npz")},
    "what is shown": SHOWN,
    "locks": LOCKS,
}
"""What readers look for before others is planted by itself."""


def placed(slide, name):
    """A place in the slide's folder that is free, with the folder that it lies in."""
    path = slide / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def link(names):
    def plant(slide, secret):
        for name in names:
            placed(slide, name).symlink_to(secret)

    return plant


def pipe(names):
    def plant(slide, _):
        for name in names:
            os.mkfifo(placed(slide, name))

    return plant


def folder_link(name):
    """The folder is moved to where the secret is, and a link put in its place."""

    def plant(slide, secret):
        path = slide / name
        path.mkdir(exist_ok=True)
        shutil.move(path, secret.parent / "moved")
        path.symlink_to(secret.parent / "moved")

    return plant


def content(name, make):
    def plant(slide, _):
        made = make(slide)
        placed(slide, name).write_bytes(made)

    return plant


def picture(kind, side):
    @functools.cache
    def make():
        stream = io.BytesIO()
        Image.new("1" if kind == "PNG" else "L", (side, side)).save(stream, format=kind, compress_level=1)
        return stream.getvalue()

    return lambda _: make()


PIECE = 2**22


def deflated(pieces, head=b"", byte=b"\0"):
    """A byte again and again after a head, deflated: pieces are equal, since none refers to what was before it."""
    squeeze = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    first, piece = (squeeze.compress(part) + squeeze.flush(zlib.Z_FULL_FLUSH) for part in (head, byte * PIECE))
    return first + piece * pieces + squeeze.flush()


def crc_of(pieces, head=b"", byte=b"\0"):
    return functools.reduce(lambda crc, part: zlib.crc32(part, crc), [byte * PIECE] * pieces, zlib.crc32(head))


@functools.cache
def large_array():
    """An NPZ file of 1 MB with one array of 1.2 GB; the texture asks for it by name."""
    pieces, name = 300, b"origin.npy"
    head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }\n" % (pieces * PIECE)
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
    packed, size = deflated(pieces, head), len(head) + pieces * PIECE
    about = struct.pack("<5H3L2H", 20, 0, 8, 0, 33, crc_of(pieces, head), len(packed), size, len(name), 0)
    entry = b"PK\3\4" + about + name + packed
    listed = b"PK\1\2" + struct.pack("<H", 20) + about + struct.pack("<3H2L", 0, 0, 0, 0, 0) + name
    return entry + listed + b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 1, 1, len(listed), len(entry), 0)


def mask(compression, tile, side=None):
    """A mask of the slide's size, or of ``side`` pixels, whose tiles are large or compressed in another way."""

    def make(slide):
        summary = json.loads((slide / "summary.json").read_bytes())["grid"]
        shape = (summary["height"], summary["width"]) if side is None else (side, side)
        stream, pixels = io.BytesIO(), np.zeros(shape, dtype=np.uint8)
        if compression == "zlib":  # all tiles are the same
            pixels = repeat(zlib.compress(bytes(tile * tile), 1), math.prod(-(-length // tile) for length in shape))
        with tifffile.TiffWriter(stream) as writer:
            options = {"tile": (tile, tile), "compression": compression, "metadata": None}
            writer.write(pixels, shape=shape, dtype=np.uint8, photometric="minisblack", **options)
        return stream.getvalue()

    return make


def swollen_tiles(slide):
    """The slide's own mask with every tile replaced by one that unpacks to 400 MB."""
    bomb = b"\x78\xda" + deflated(100) + struct.pack(">L", 100 * PIECE % 65521 << 16 | 1)
    whole = bytearray((slide / "mask.ome.tif").read_bytes())
    with tifffile.TiffFile(slide / "mask.ome.tif") as tif:
        pages = [level.keyframe for level in tif.series[0].levels]
        for page in pages:
            for tag, value in (("TileOffsets", len(whole)), ("TileByteCounts", len(bomb))):
                of = page.tags[tag]
                size = (of.dtype in (3, 16) and {3: 2, 16: 8}[of.dtype]) or 4
                whole[of.valueoffset : of.valueoffset + size] = value.to_bytes(8, "little")[:size]
    return bytes(whole) + bomb


def swollen_polygons(_):
    """Polygons of 400 MB, all in one line."""
    foot = struct.pack("<2L", crc_of(100, byte=b"{"), 100 * PIECE)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(100, byte=b"{") + foot


def long_log(slide):
    """300,000 corrections of the slide's own mask, each undone."""
    summary = json.loads((slide / "summary.json").read_bytes())
    head = {
        "format": "ntrm-corrections/1",
        "slide_id": summary["slide_id"],
        "mask": hashlib.sha256((slide / "mask.ome.tif").read_bytes()).hexdigest(),
        "height": summary["grid"]["height"],
        "width": summary["grid"]["width"],
        "classes": summary["classes"],
        "purpose": "for research, not for diagnosis",
    }
    rest = '"places": [], "whole_regions": false, "left_out": [], "spread": null, "reach": null, "named": "0+1", '
    rest += '"followed": {}, "regions": 1, "area_mm2": 0.1, "of": null, "origin": "", "by": null, "when": "", '
    tissue = summary["classes"][0]
    lines = (
        f'{{"number": {number}, "action": "name", "tissue": "{tissue}", {rest}"version": "0"}}'
        for number in range(1, 300_001)
    )
    return "\n".join([json.dumps(head), *lines, ""]).encode()


PLANTS = {
    **{f"{name}: links": link(names) for name, names in FILES.items()},
    **{f"{name}: pipes": pipe(names) for name, names in FILES.items()},
    **{f"folder {name} is a link": folder_link(name) for name in (".", ".ntrm", "corrected")},
}
BOMBS = {
    "slide.jpg is PostScript": content("slide.jpg", lambda _: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    "slide.jpg is a PNG of 20,000²": content("slide.jpg", picture("PNG", 20_000)),
    "slide.jpg is a PNG of 13,300²": content("slide.jpg", picture("PNG", 13_300)),
    "slide.jpg is a JPEG of 12,000²": content("slide.jpg", picture("JPEG", 12_000)),
    "overlay.png is a TIFF": content("overlay.png", picture("TIFF", 100)),
    "pieces.npz unpacks to 1.2 GB": content(".ntrm/pieces.npz", lambda _: large_array()),
    "texture.npz unpacks to 1.2 GB": content(".ntrm/texture.npz", lambda _: large_array()),
    "mask.ome.tif in tiles of 16,384²": content("mask.ome.tif", mask("zlib", 16_384)),
    "mask.ome.tif in LZW": content("mask.ome.tif", mask("lzw", 256)),
    "mask.ome.tif in JPEG": content("mask.ome.tif", mask("jpeg", 256)),
    "mask.ome.tif of 20,000²": content("mask.ome.tif", mask("zlib", 256, 20_000)),
    "tiles of mask.ome.tif unpack to 400 MB": content("mask.ome.tif", swollen_tiles),
    "regions.geojson.gz unpacks to 400 MB": content("regions.geojson.gz", swollen_polygons),
    "300,000 corrections": content("corrections.jsonl", long_log),
    "summary.json nested without end": content("summary.json", lambda _: b"[" * 2**20),
    "done.json of 300 MB": content(".ntrm/done.json", lambda _: b" " * (300 * 2**20)),
}


@contextmanager
def nobody_waits(folder):
    """Every pipe in a folder is left alone inside; whoever opens one is let go, and the test fails."""
    pipes = [path for path in folder.rglob("*") if path.is_fifo()]
    waited, ended = [], threading.Event()

    def let_go():
        while not ended.wait(0.2):
            for path in pipes:
                # A pipe opens only while somebody has it open to read; a file may have replaced it.
                with suppress(OSError):
                    one = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                    waited.extend([path.name] if stat.S_ISFIFO(os.fstat(one).st_mode) else [])
                    os.close(one)

    thread = threading.Thread(target=let_go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert waited == []
