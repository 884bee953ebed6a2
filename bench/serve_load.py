"""`ntrm serve` under load: tiles for many viewers, uploads that break off, a worker that is busy meanwhile.

    python bench/serve_load.py [--seconds 120] [--clients 200] [--uploads 20] [--side 50000] [--seed 1] [--out FILE]

The service runs as its user starts it, on loopback, and clients, worker and server share the machine's cores.

- *Viewers* ask for tile after tile of a walk (pan, zoom, layers) over a slide of ``--side`` pixels squared and over a
  segmented section, each on a connection of its own; one request in fifty is dropped in the middle of the answer.
- *Uploads* send drawn sections in pieces; two in five go away in the middle.
- *First tile*: a slide that nobody has opened, from the request to the last byte, at three zooms.

Afterwards every accepted upload must be in the list, and descriptors, processes and temporary files must be what they
were before. The bench ends by itself. ``serve_view.py`` has viewers alone, as people look.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

TOKEN = "bench-token-0123456789abcdef"
MPP, TILE = 0.5, 512
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
DROPPED, CUT = 0.02, 0.4
PIECE = 64 * 1024
WARM_SECONDS, SETTLE_SECONDS = 20.0, 10.0


def write_large(path: Path, side: int, seed: int, mpp: float = MPP) -> None:
    """A pyramid of JPEG tiles, drawn once and repeated: glass with tissue in a quarter of the places."""
    import tifffile

    kinds = [encoded(np.full((TILE, TILE, 3), 245, dtype=np.uint8))] * 3 + [encoded(texture(seed))]

    def tiles(length: int) -> Iterator[bytes]:
        count = -(-length // TILE)
        return (kinds[(row // 5 + column // 7) % 4] for row in range(count) for column in range(count))

    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        for number, factor in enumerate(LEVELS):
            length = -(-side // factor)
            writer.write(
                tiles(length),
                shape=(length, length, 3),
                dtype=np.uint8,
                tile=(TILE, TILE),
                photometric="ycbcr",
                subsampling=(2, 2),
                compression="jpeg",
                resolution=(1e4 / (mpp * factor), 1e4 / (mpp * factor)),
                resolutionunit="CENTIMETER",
                subfiletype=1 if number else 0,
                metadata=None,
            )


def encoded(pixels: np.ndarray) -> bytes:
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=80, subsampling="4:2:0")
    return stream.getvalue()


def texture(seed: int) -> np.ndarray:
    """A piece of dermis as the phantom draws it."""
    from ntrm.labels import SKIN
    from ntrm.phantom.render import render

    mask = np.full((TILE, TILE), SKIN.index("RET"), dtype=np.uint8)
    mask[100:300, 150:400] = SKIN.index("BCC")
    return np.asarray(render(mask, 0.67, seed))


def write_sections(folder: Path, seed: int) -> list[Path]:
    command = [sys.executable, "-m", "ntrm", "phantom", str(folder), "--sections", "3", "--seed", str(seed)]
    subprocess.run([*command, "--quiet"], check=True)
    return sorted(folder.rglob("Images/*.tif"))


class Service:
    def __init__(self, out: Path, root: Path) -> None:
        command = [sys.executable, "-m", "ntrm", "serve", str(out), "--port", "0", "--no-open", "--json"]
        self.log = (out.parent / "serve.log").open("wb")
        self.process = subprocess.Popen(
            [*command, "--root", str(root)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "NTRM_TOKEN": TOKEN},
        )
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(self.process.stdout.readline())  # type: ignore[union-attr]
            if not lines[-1]:
                raise SystemExit("the service did not start")
        self.port = int(json.loads("".join(lines))["address"].rsplit(":", 1)[1])

    def descriptors(self) -> Counter[str]:
        """By kind: connections, pipes to other processes, files."""
        found: Counter[str] = Counter()
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                found[str(path.readlink()).split(":")[0] if ":" in str(path.readlink()) else "file"] += 1
            except OSError:
                continue
        return found

    def state(self) -> dict[str, Any]:
        """Descriptors by kind, processes below, memory."""
        folder, kinds = Path(f"/proc/{self.process.pid}"), self.descriptors()
        children = len((folder / "task" / str(self.process.pid) / "children").read_text().split())
        memory = int((folder / "status").read_text().split("VmRSS:")[1].split()[0]) / 1024
        every = {"descriptors": sum(kinds.values()), **dict(sorted(kinds.items()))}
        return {**every, "children": children, "memory_mb": round(memory, 1)}

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(timeout=60)
        self.log.close()
        return code


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def get(self, path: str, *, leave: bool = False) -> tuple[int, bytes]:
        """Status and content; with ``leave`` the connection is cut before the answer is read."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        self.writer.write(head.encode())
        await self.writer.drain()
        if leave:
            self.close()
            return 0, b""
        return await answer(self.reader)  # type: ignore[arg-type]

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    length = int(head.split("content-length:")[1].split("\r\n")[0]) if "content-length:" in head else 0
    return status, await reader.readexactly(length)


async def ask(port: int, path: str) -> Any:
    client = Client(port)
    status, content = await client.get(path)
    client.close()
    return json.loads(content) if status == 200 else sys.exit(f"{path}: {status} {content[:200]!r}")


async def add_path(port: int, path: Path) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"path": str(path)}).encode()
    writer.write(post(port, "application/json", len(body), "") + body)
    status, content = await answer(reader)
    writer.close()
    return str(json.loads(content)["id"]) if status == 202 else sys.exit(f"{status} {content[:300]!r}")


def post(port: int, kind: str, length: int, query: str) -> bytes:
    lines = f"POST /v1/slides{query} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
    return "\r\n".join((*lines, f"Content-Type: {kind}", f"Content-Length: {length}", "", "")).encode()


class Walk:
    """A viewer's way through a slide: mostly to the next tile, at times another zoom or layer."""

    def __init__(self, source: dict[str, Any], slide: str, draw: random.Random) -> None:
        self.source, self.slide, self.draw = source, slide, draw
        self.level = draw.randint(8, source["max_level"])
        self.x, self.y = draw.random(), draw.random()
        self.layer = "slide"

    def step(self) -> str:
        if self.draw.random() < 0.1:
            self.level = self.draw.randint(min(8, self.source["max_level"]), self.source["max_level"])
        if self.draw.random() < 0.1:
            self.layer = self.draw.choice(self.source["layers"])
        self.x, self.y = ((v + self.draw.uniform(-0.03, 0.03)) % 1 for v in (self.x, self.y))
        scale = 2 ** (self.source["max_level"] - self.level)
        columns, rows = (math.ceil(math.ceil(self.source[side] / scale) / 256) for side in ("width", "height"))
        kind = "jpg" if self.layer == "slide" else "png"
        query = "?a=BCC&b=INF" if self.layer == "interface" else ""
        place = f"{self.level}/{int(self.x * columns)}_{int(self.y * rows)}.{kind}{query}"
        return f"/v1/slides/{self.slide}/tiles/{self.layer}/{place}"


async def view(port: int, walk: Walk, until: float, seen: Counter[str], times: list[float]) -> None:
    client = Client(port)
    while time.monotonic() < until:
        leave = walk.draw.random() < DROPPED
        begun = time.perf_counter()
        try:
            status, content = await client.get(walk.step(), leave=leave)
        except (OSError, asyncio.IncompleteReadError) as error:
            seen[f"connection: {type(error).__name__}"] += 1
            client.close()
            continue
        if leave:
            seen["left"] += 1
            continue
        times.append(time.perf_counter() - begun)
        good = status == 200 and content[:2] in (b"\xff\xd8", b"\x89P")
        seen["tile" if good else f"status {status}"] += 1
    client.close()


async def send(
    port: int, files: list[bytes], until: float, seen: Counter[str], ids: list[str], draw: random.Random
) -> None:
    while time.monotonic() < until:
        content = draw.choice(files)
        stop = draw.randint(0, len(content) - 1) if draw.random() < CUT else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(post(port, "application/octet-stream", len(content), "?name=load.tif"))
            for start in range(0, len(content) if stop is None else stop, PIECE):
                writer.write(content[start : start + PIECE])
                await writer.drain()
                await asyncio.sleep(draw.uniform(0, 0.05))
            if stop is not None:
                seen["cut"] += 1
                continue
            status, body = await answer(reader)
            seen["accepted" if status == 202 else f"status {status}"] += 1
            if status == 202:
                ids.append(json.loads(body)["id"])
        except (OSError, asyncio.IncompleteReadError) as error:
            seen[f"connection: {type(error).__name__}"] += 1
        finally:
            writer.close()
        await asyncio.sleep(min(draw.uniform(5, 25), max(0.0, until - time.monotonic())))


async def wait_done(port: int, slide: str) -> dict[str, Any]:
    while True:
        document = await ask(port, f"/v1/slides/{slide}")
        if document["status"] in ("done", "failed", "cancelled"):
            return dict(document)
        await asyncio.sleep(0.5)


async def first_tiles(port: int, slide: str, top: int) -> dict[str, float]:
    """Milliseconds of the first tile of a slide that nobody has opened, then of two others."""
    found = {}
    for name, level in (("overview", 8), ("middle", (8 + top) // 2), ("full resolution", top)):
        middle = 2 ** (level - 8) // 2
        client = Client(port)
        begun = time.perf_counter()
        status, _ = await client.get(f"/v1/slides/{slide}/tiles/slide/{level}/{middle}_{middle}.jpg")
        found[name] = round(1000 * (time.perf_counter() - begun), 1)
        client.close()
        if status != 200:
            raise SystemExit(f"the first tile: {status}")
    return found


class Record:
    """What came of the requests."""

    def __init__(self) -> None:
        self.tiles: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.times: list[float] = []
        self.ids: list[str] = []


async def load(
    port: int, sources: dict[str, Any], files: list[bytes], options: argparse.Namespace, seconds: float, record: Record
) -> None:
    until = time.monotonic() + seconds
    draws = [random.Random(options.seed + number) for number in range(options.clients + options.uploads)]
    keys = [*sources] * options.clients
    viewers = [
        view(port, Walk(sources[key], key, draw), until, record.tiles, record.times)
        for draw, key in zip(draws[: options.clients], keys, strict=False)
    ]
    senders = [send(port, files, until, record.uploads, record.ids, draw) for draw in draws[options.clients :]]
    await asyncio.gather(*viewers, *senders)


def temporary_files(out: Path) -> list[str]:
    partials = [path.name for path in out.rglob(".partial-*")]
    return sorted([path.name for path in (out / ".service" / "incoming").iterdir()] + partials)


def percentiles(times: list[float]) -> dict[str, float]:
    """In milliseconds."""
    times = sorted(times)
    found = {f"p{q}": times[min(len(times) - 1, len(times) * q // 100)] for q in (50, 90, 95, 99)}
    found |= {"mean": statistics.fmean(times), "max": times[-1]}
    return {key: round(1000 * value, 1) for key, value in found.items()}


async def measure(
    service: Service, out: Path, large: Path, sections: list[Path], options: argparse.Namespace
) -> dict[str, Any]:
    port = service.port
    section = await wait_done(port, await add_path(port, sections[0]))
    if section["status"] != "done":
        raise SystemExit(f"the section failed: {section['error']}")
    slide = await add_path(port, large)
    top = (await ask(port, f"/v1/slides/{slide}/tiles"))["max_level"]
    first = await first_tiles(port, slide, top)
    sources = {key: await ask(port, f"/v1/slides/{key}/tiles") for key in (slide, section["id"])}
    files = [path.read_bytes() for path in sections]
    # Caches and the few slides that are kept open fill first: what grows afterwards is a leak.
    await load(port, sources, files, options, min(WARM_SECONDS, options.seconds), Record())
    await asyncio.sleep(SETTLE_SECONDS)
    before, record, begun = service.state(), Record(), time.monotonic()
    await load(port, sources, files, options, options.seconds, record)
    took = time.monotonic() - begun
    await asyncio.sleep(SETTLE_SECONDS)
    listed = {each["id"]: each["status"] for each in (await ask(port, "/v1/slides"))["slides"]}
    return {
        "seconds": round(took, 1),
        "viewers": options.clients,
        "senders": options.uploads,
        "tiles": dict(record.tiles),
        "tiles_per_second": round(len(record.times) / took, 1),
        "milliseconds": percentiles(record.times),
        "uploads": dict(record.uploads),
        "accepted": len(record.ids),
        "lost": sorted(set(record.ids) - set(listed)),
        "states": dict(Counter(listed[key] for key in record.ids if key in listed)),
        "first_tile_ms": first,
        "before": before,
        "after": service.state(),
        "temporary_files": temporary_files(out),
        "load_average": os.getloadavg(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--uploads", type=int, default=20)
    parser.add_argument("--side", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root, out = Path(name) / "root", Path(name) / "out"
        root.mkdir()
        sections = write_sections(root / "skin", options.seed)
        write_large(root / "large.tif", options.side, options.seed)
        service = Service(out, root)
        try:
            found = asyncio.run(measure(service, out, root / "large.tif", sections, options))
        finally:
            code = service.stop()
            print((Path(name) / "serve.log").read_text(errors="replace")[-4000:], file=sys.stderr)
        found["exit_code"] = code
    text = json.dumps(found, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
