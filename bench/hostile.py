"""Files and requests that nobody sends by mistake; each made anew from a seed, none larger than a few hundred kB."""

from __future__ import annotations

import io
import itertools
import random
import struct
import zlib
from collections.abc import Iterator

import numpy as np

SIDE = 262_144
PATHS = ("/", "/v1/slides", "/v1/about", "/healthz", "/open/x", "/page/app.js", "/openapi.json", "/v1/links")
METHODS = ("GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS", "PATCH", "TRACE", "CONNECT", "G E T", "get", "")


def sound_slide(seed: int, height: int = 90, width: int = 120, mpp: float | None = 6.7) -> bytes:
    """A small slide that is as it should be."""
    import tifffile

    pixels = np.random.default_rng(seed).integers(120, 250, (height, width, 3)).astype(np.uint8)
    stream = io.BytesIO()
    resolution = {} if mpp is None else {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(stream, pixels, photometric="rgb", rowsperstrip=32, metadata=None, **resolution)
    return stream.getvalue()


def sparse_slide(side: int = SIDE, tile: int = 4096, mpp: float = 0.25) -> bytes:
    """A header that promises ``side`` pixels squared in tiles, of which none is there."""
    import tifffile

    stream = io.BytesIO()
    with tifffile.TiffWriter(stream, bigtiff=True) as writer:
        writer.write(
            itertools.repeat(b"", (side // tile) ** 2),
            shape=(side, side, 3),
            dtype=np.uint8,
            tile=(tile, tile),
            photometric="rgb",
            compression="zlib",
            resolution=(1e4 / mpp, 1e4 / mpp),
            resolutionunit="CENTIMETER",
            metadata=None,
        )
    return stream.getvalue()


def tiff_bomb(side: int = 30_000) -> bytes:
    """One strip that decodes to ``side`` pixels squared."""
    import tifffile

    packer, row = zlib.compressobj(9), bytes(3 * side)
    strip = b"".join(packer.compress(row) for _ in range(64)) + packer.flush()
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream, bigtiff=True) as writer:
        writer.write(
            iter([strip]),
            shape=(side, side, 3),
            dtype=np.uint8,
            rowsperstrip=side,
            photometric="rgb",
            compression="zlib",
            resolution=(1e4, 1e4),
            resolutionunit="CENTIMETER",
            metadata=None,
        )
    return stream.getvalue()


def png_bomb(side: int = 60_000) -> bytes:
    """A PNG of ``side`` pixels squared, all of one colour."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    packer, row = zlib.compressobj(9), bytes(3 * side + 1)
    pixels = b"".join(packer.compress(row) for _ in range(64)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def vms(image: str) -> bytes:
    """A slide of Hamamatsu's VMS format, which is a text that names the files with the pixels."""
    keys = {"NoLayers": 1, "NoJpegColumns": 1, "NoJpegRows": 1, "ImageFile": image, "MapFile": image}
    return "\n".join(["[Virtual Microscope Specimen]", *(f"{key}={value}" for key, value in keys.items())]).encode()


def picture(seed: int, side: int = 256) -> bytes:
    """A private JPEG, which no answer may show; OpenSlide itself reads it where a VMS text names it."""
    from PIL import Image

    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (side // 16, side // 16, 3)).astype(np.uint8)
    whole = Image.fromarray(pixels.repeat(16, 0).repeat(16, 1))
    whole.save(stream, format="JPEG", quality=95, subsampling=0, restart_marker_rows=1)
    return stream.getvalue()


def hostile_files(seed: int, outside: str) -> dict[str, bytes]:
    """By name; ``outside`` is a path of a file that is none of the sender's business."""
    draw, sound = random.Random(seed), sound_slide(seed)
    found = {
        "sparse TIFF": sparse_slide(),
        "sparse TIFF, small tiles": sparse_slide(tile=1024),
        "TIFF bomb": tiff_bomb(),
        "PNG bomb": png_bomb(),
        "VMS outside": vms(outside),
        "VMS outside, upwards": vms("../" * 40 + outside),
        "VMS of a device": vms("/dev/zero"),
        "empty": b"",
        "page": b"<!doctype html><script>alert(1)</script>",
        "archive": b"PK\x03\x04" + draw.randbytes(500),
        "program": b"\x7fELF" + draw.randbytes(500),
        "noise": draw.randbytes(4096),
        "TIFF of noise": sound[:8] + draw.randbytes(300),
    }
    for number in range(6):
        found[f"cut {number}"] = sound[: draw.randrange(1, len(sound) // 2)]
    for number in range(6):
        damaged = bytearray(sound)
        for _ in range(8):
            # In the header and the directory behind it, where every byte means something.
            damaged[draw.randrange(250)] = draw.randrange(256)
        found[f"damaged {number}"] = bytes(damaged)
    return found


def malformed_requests(seed: int, count: int, port: int) -> Iterator[bytes]:
    """Requests without any right to an answer, sound in parts."""
    draw = random.Random(seed)
    for _ in range(count):
        method, path = draw.choice(METHODS), draw.choice(PATHS)
        path += draw.choice(("", "?" + _text(draw, 20), "/" + _text(draw, 12), "%00", "%2e%2e%2f" * 8, "/.." * 8))
        version = draw.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "", "\x00"))
        head = [f"{method} {path} {version}", f"Host: 127.0.0.1:{port}"]
        head += draw.sample(_headers(draw), draw.randrange(4))
        end = draw.choice(("\r\n", "\r\n", "\n", "\r"))
        content = (end.join([*head, "", ""]) + draw.choice(("", "x", "5\r\nabc", "0\r\n\r\n"))).encode("latin-1")
        if draw.random() < 0.1:
            content = draw.randbytes(draw.randrange(1, 400))
        yield content


def _headers(draw: random.Random) -> list[str]:
    return [
        "Content-Length: -1",
        "Content-Length: 99999999999999999999",
        "Content-Length: 3\r\nContent-Length: 5",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Authorization: Bearer " + _text(draw, 40),
        "Cookie: ntrm_session=" + _text(draw, 40),
        "Cookie: " + ";" * 200,
        'Cookie: ntrm_session="' + '\\"' * draw.choice((10, 31_000)) + '"',
        "Range: bytes=0-,-1,5-2",
        "Upgrade: websocket\r\nConnection: Upgrade",
        "Expect: 100-continue",
        f"X-{_text(draw, 5)}: {'a' * draw.choice((10, 9000, 70_000))}",
        "Content-Type: " + draw.choice(("application/json", "multipart/form-data", "application/octet-stream", "\x01")),
        f"Host: {_text(draw, 10)}",
    ]


def _text(draw: random.Random, length: int) -> str:
    """Printable or nearly so, without ends of lines."""
    return "".join(chr(draw.choice((draw.randrange(33, 127), draw.randrange(128, 256)))) for _ in range(length))


def path_tricks(outside: str, root: str) -> list[str]:
    """Spellings of a file outside, of folders and of devices."""
    up = "../" * 12
    return [
        outside,
        up + outside.lstrip("/"),
        f"{root}/../{outside.rsplit('/', 1)[-1]}",
        f"{root}/link",
        f"{root}/folder-link/{outside.rsplit('/', 1)[-1]}",
        "link",
        ".",
        "..",
        "",
        "/",
        "//",
        "/dev/zero",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "~/.ssh/id_rsa",
        "%2e%2e%2f" * 6 + "etc/passwd",
        "..\\..\\..\\etc\\passwd",
        outside + "\x00.svs",
        "a" * 5000,
        "file://" + outside,
        "-",
        "..%c0%af",
        "\u202e" + outside,
    ]
