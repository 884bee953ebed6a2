"""`ntrm serve` for people who look: first tile, 20 viewers at once, frames a second in Chromium, on a large slide.

    python bench/serve_view.py [--viewers 20] [--seconds 60] [--side 50000] [--seed 1] [--out FILE]

The slide is a file of ``--side`` pixels squared that says 0.134 µm/px, so that its segmentation takes seconds. Nobody
uploads, and no slide is being segmented meanwhile.

- *First tile*: links to the slide, more than the service keeps open. Those that it has closed again are *cold*: a
  process opens the file, reads and sends. The others are *open*.
- *Viewers* pan as a person does: a screen of 6 × 4 tiles moves by a third of its width or height, what is new is asked
  for over six connections, and half a second after the last tile has come the next step begins. The same with a single
  viewer is the reference.
- *Frames*: Chromium without a GPU pans at full resolution for some seconds over tiles that it has not seen, with the
  overlay on; frames are counted by the browser. Alone, and with all viewers at work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.serving import TOKEN, Client, Service, add_path, answer, ask, finish, options, percentiles, served, wait_done

MPP = 0.134
SCREEN = (6, 4)
CONNECTIONS = 6
PAUSE_SECONDS = 0.5
LINKS = 14
FRAME_SECONDS = 8
RESERVE_SECONDS = 3.0
PAN = """async (seconds) => {
  const { viewport } = window.OpenSeadragon.getViewer(document.querySelector(".pane"));
  const step = new window.OpenSeadragon.Point(8 / viewport.getContainerSize().x / viewport.getZoom(true), 0);
  const times = [];
  return new Promise((done) => {
    const frame = (now) => {
      times.push(now);
      viewport.panBy(step, true);
      if (now - times[0] < seconds * 1000) requestAnimationFrame(frame);
      else done(times);
    };
    requestAnimationFrame(frame);
  });
}"""


FULL = """(side) => {
  const { viewport } = window.OpenSeadragon.getViewer(document.querySelector(".pane"));
  viewport.zoomTo(side / viewport.getContainerSize().x, null, true);
  viewport.panTo(new window.OpenSeadragon.Point(0.2, 0.5), true);
}"""
"""One pixel of the slide on one of the screen."""


class Screen:
    """What one viewer has before him, and the tiles that a step brings."""

    def __init__(self, source: dict[str, Any], draw: random.Random) -> None:
        self.top, self.draw = source["max_level"], draw
        self.level = draw.randint(self.top - 4, self.top)
        side = -(-source["width"] // 2 ** (self.top - self.level))
        self.columns = self.rows = -(-side // 256)
        self.x, self.y = draw.randrange(self.columns), draw.randrange(self.rows)
        self.shown: set[tuple[int, int]] = set()

    def step(self) -> list[str]:
        dx, dy = self.draw.choice(((2, 0), (-2, 0), (0, 1), (0, -1)))
        self.x = min(max(self.x + dx, 0), max(self.columns - SCREEN[0], 0))
        self.y = min(max(self.y + dy, 0), max(self.rows - SCREEN[1], 0))
        wanted = {
            (column, row)
            for column in range(self.x, min(self.x + SCREEN[0], self.columns))
            for row in range(self.y, min(self.y + SCREEN[1], self.rows))
        }
        new, self.shown = sorted(wanted - self.shown), wanted
        return [f"{self.level}/{column}_{row}.jpg" for column, row in new]


class Seen:
    """Times of tiles and of whole steps."""

    def __init__(self) -> None:
        self.tiles: list[float] = []
        self.steps: list[float] = []
        self.failed = 0


async def look(port: int, slide: str, screen: Screen, until: float, seen: Seen) -> None:
    clients = [Client(port) for _ in range(CONNECTIONS)]
    while time.monotonic() < until:
        places = screen.step()
        begun = time.perf_counter()

        async def fetch(client: Client, left: list[str]) -> None:
            while left:
                started = time.perf_counter()
                status, content = await client.get(f"/v1/slides/{slide}/tiles/slide/{left.pop()}")
                seen.failed += status != 200 or content[:2] != b"\xff\xd8"
                seen.tiles.append(time.perf_counter() - started)

        if places:
            await asyncio.gather(*(fetch(client, places) for client in clients))
            seen.steps.append(time.perf_counter() - begun)
        await asyncio.sleep(PAUSE_SECONDS)
    for client in clients:
        client.close()


async def viewers(port: int, slide: str, count: int, seconds: float, seed: int) -> dict[str, Any]:
    source, seen = await ask(port, f"/v1/slides/{slide}/tiles"), Seen()
    until = time.monotonic() + seconds
    screens = [Screen(source, random.Random(seed + number)) for number in range(count)]
    await asyncio.gather(*(look(port, slide, screen, until, seen) for screen in screens))
    return {
        "viewers": count,
        "tiles": len(seen.tiles),
        "failed": seen.failed,
        "tile_ms": percentiles(seen.tiles),
        "step_ms": percentiles(seen.steps),
        "load_average": round(os.getloadavg()[0], 1),
    }


async def cancel(port: int, slide: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = f"POST /v1/slides/{slide}/cancel HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
    writer.write("\r\n".join((*lines, "Content-Length: 0", "", "")).encode())
    await answer(reader)
    writer.close()


async def first_tiles(port: int, links: list[Path]) -> dict[str, Any]:
    """Milliseconds; the last eight links are still open, of those before only the file's cache is."""
    slides = []
    for link in links:
        slides.append(await add_path(port, link))
        await cancel(port, slides[-1])
    times = []
    for slide in reversed(slides):
        # Time for the process that is kept in reserve to be replaced: people do not open slides faster than that.
        await asyncio.sleep(RESERVE_SECONDS)
        client = Client(port)
        begun = time.perf_counter()
        status, _ = await client.get(f"/v1/slides/{slide}/tiles/slide/8/0_0.jpg")
        times.append(1000 * (time.perf_counter() - begun))
        client.close()
        if status != 200:
            raise SystemExit(f"the first tile: {status}")
    opened, cold = times[:6], times[8:]
    rounded = {name: [round(value) for value in sorted(some)] for name, some in (("open", opened), ("cold", cold))}
    return {
        **rounded,
        "open_median": statistics.median(rounded["open"]),
        "cold_median": statistics.median(rounded["cold"]),
    }


def frames(port: int, slide: str, side: int) -> dict[str, Any] | None:
    """Frames a second while the page pans; None where there is no Chromium."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    import urllib.request

    address = f"http://127.0.0.1:{port}"
    request = urllib.request.Request(
        f"{address}/v1/links", data=b"", method="POST", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        path = json.loads(reply.read())["path"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(240_000)
        page.goto(address + path)
        page.goto(f"{address}/#/slide/{slide}")
        page.wait_for_selector(".legend li")
        page.wait_for_timeout(3000)
        page.evaluate(FULL, side)
        page.wait_for_timeout(1000)
        times = page.evaluate(PAN, FRAME_SECONDS)
        zoom = page.locator(".hud.scale").inner_text()
        browser.close()
    gaps = [after - before for before, after in pairwise(times)]
    return {
        "zoom": zoom,
        "frames_per_second": round(1000 * len(gaps) / (times[-1] - times[0]), 1),
        "gap_ms": percentiles([gap / 1000 for gap in gaps]),
        "load_average": round(os.getloadavg()[0], 1),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of those that it started and that live."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = 0
    for each in (pid, *children):
        try:
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(service: Service, args: argparse.Namespace) -> dict[str, Any]:
    port = service.port
    links = [service.root / f"link-{number}.tif" for number in range(LINKS)]
    for link in links:
        link.hardlink_to(service.large)
    done = asyncio.run(segmented(port, service.large))
    found: dict[str, Any] = {"side": args.side, "first_tile_ms": asyncio.run(first_tiles(port, links))}
    for name, count in (("one", 1), ("all", args.viewers)):
        before = cpu_seconds(service.process.pid)
        found[name] = asyncio.run(viewers(port, done, count, args.seconds, args.seed))
        spent = cpu_seconds(service.process.pid) - before
        found[name]["cpu_ms_per_tile"] = round(1000 * spent / max(found[name]["tiles"], 1), 2)
    found["frames_alone"] = frames(port, done, args.side)
    crowd = threading.Thread(
        target=lambda: asyncio.run(viewers(port, done, args.viewers, args.seconds, args.seed + 1000))
    )
    crowd.start()
    found["frames_among_viewers"] = frames(port, done, args.side)
    crowd.join()
    return found


async def segmented(port: int, path: Path) -> str:
    document = await wait_done(port, await add_path(port, path))
    if document["status"] != "done":
        raise SystemExit(f"the slide failed: {document['error']}")
    return str(document["id"])


def main() -> None:
    parser = options(__doc__, seconds=60)
    parser.add_argument("--viewers", type=int, default=20)
    args = parser.parse_args()
    with served(args.side, args.seed, MPP) as service:
        found = measure(service, args)
        found["service"] = service.state()
    finish(found, args.out)


if __name__ == "__main__":
    main()
