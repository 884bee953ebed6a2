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
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.serving import Client, Service, add_path, answer, ask, finish, options, percentiles, post, served, wait_done

DROPPED, CUT = 0.02, 0.4
PIECE = 64 * 1024
WARM_SECONDS, SETTLE_SECONDS = 20.0, 10.0


def write_sections(folder: Path, seed: int) -> list[Path]:
    command = [sys.executable, "-m", "ntrm", "phantom", str(folder), "--sections", "3", "--seed", str(seed)]
    subprocess.run([*command, "--quiet"], check=True)
    return sorted(folder.rglob("Images/*.tif"))


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
    port: int, sources: dict[str, Any], files: list[bytes], args: argparse.Namespace, seconds: float, record: Record
) -> None:
    until = time.monotonic() + seconds
    draws = [random.Random(args.seed + number) for number in range(args.clients + args.uploads)]
    keys = [*sources] * args.clients
    viewers = [
        view(port, Walk(sources[key], key, draw), until, record.tiles, record.times)
        for draw, key in zip(draws[: args.clients], keys, strict=False)
    ]
    senders = [send(port, files, until, record.uploads, record.ids, draw) for draw in draws[args.clients :]]
    await asyncio.gather(*viewers, *senders)


def temporary_files(out: Path) -> list[str]:
    partials = [path.name for path in out.rglob(".partial-*")]
    return sorted([path.name for path in (out / ".service" / "incoming").iterdir()] + partials)


async def measure(service: Service, sections: list[Path], args: argparse.Namespace) -> dict[str, Any]:
    port = service.port
    section = await wait_done(port, await add_path(port, sections[0]))
    if section["status"] != "done":
        raise SystemExit(f"the section failed: {section['error']}")
    slide = await add_path(port, service.large)
    top = (await ask(port, f"/v1/slides/{slide}/tiles"))["max_level"]
    first = await first_tiles(port, slide, top)
    sources = {key: await ask(port, f"/v1/slides/{key}/tiles") for key in (slide, section["id"])}
    files = [path.read_bytes() for path in sections]
    # Caches and the few slides that are kept open fill first: what grows afterwards is a leak.
    await load(port, sources, files, args, min(WARM_SECONDS, args.seconds), Record())
    await asyncio.sleep(SETTLE_SECONDS)
    before, record, begun = service.state(), Record(), time.monotonic()
    await load(port, sources, files, args, args.seconds, record)
    took = time.monotonic() - begun
    await asyncio.sleep(SETTLE_SECONDS)
    listed = {each["id"]: each["status"] for each in (await ask(port, "/v1/slides"))["slides"]}
    return {
        "seconds": round(took, 1),
        "viewers": args.clients,
        "senders": args.uploads,
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
        "temporary_files": temporary_files(service.out),
        "load_average": os.getloadavg(),
    }


def main() -> None:
    parser = options(__doc__, seconds=120)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--uploads", type=int, default=20)
    args = parser.parse_args()
    with served(args.side, args.seed) as service:
        sections = write_sections(service.root / "skin", args.seed)
        found = asyncio.run(measure(service, sections, args))
    finish({**found, "exit_code": service.exit_code}, args.out)


if __name__ == "__main__":
    main()
