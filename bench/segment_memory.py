"""Memory of `ntrm segment`: does it grow with the slide?

    python bench/segment_memory.py [--only NAME] [--enlarge N] [--maps] [--probabilities]

Slides are tiled pyramids at the network's µm/px, so that the mask is as large as the slide: glass, with one drawn
section in a few places, its compressed tiles repeated. The command runs in a child whose memory is sampled from /proc:

- all memory (RSS) and the part that is not backed by files (RssAnon), each as the peak above what the process takes
  with the network loaded, before any slide;
- the same for the process that reads the slide.

The network is small and untrained: it is not what is measured, and its mask is more ragged than a good one's.
``--enlarge`` draws the section so many times larger.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

TILE, MPP, WINDOW = 512, 0.5, 256
LEVELS = (1, 4, 16, 64)
DRAWN_MPP = 6.7
"""At which the section is drawn; on the slide its pixels are taken for finer ones."""


class Case(NamedTuple):
    height: int
    width: int
    places: int
    flags: tuple[str, ...] = ()
    enlarge: int = 0
    """As if ``--enlarge`` had this value; 0 for what was asked for."""


CASES = {
    "2,000 × 2,000": Case(2_000, 2_000, 1),
    "20,000 × 20,000": Case(20_000, 20_000, 4),
    "100,000 × 100,000": Case(100_000, 100_000, 6),
    "one piece of 200 megapixels": Case(12_288, 22_528, 1, enlarge=24),
    "2,000 × 2,000, every window": Case(2_000, 2_000, 1, ("--no-tissue-mask",)),
    "100,000 wide, 2,000 tall, every window": Case(2_000, 100_000, 6, ("--no-tissue-mask",)),
}

CHILD = """
import os, sys, threading
from pathlib import Path
import torch
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Segmenter
from ntrm.slides.inputs import SlideInput
import ntrm.pipeline.slide, ntrm.report.slide_report
model, slide, out, *flags = sys.argv[1:]
options = Options(tissue_mask="--no-tissue-mask" not in flags, maps="--maps" in flags,
                  probabilities="--probabilities" in flags)
segmenter = Segmenter(model, Path(out), options, device="cpu")
segmenter.claim()
print("loaded", flush=True)
sys.stdin.readline()
outcome = segmenter.segment(SlideInput(Path(slide), "slide"), "slide")
segmenter.tabulate()
print(outcome.status, outcome.reason, outcome.row.get("pieces"), flush=True)
"""


def section(seed: int, enlarge: int) -> np.ndarray:
    """A drawn section on glass, in whole tiles."""
    from ntrm.phantom.layout import layout
    from ntrm.phantom.render import render

    drawn = layout(seed, DRAWN_MPP, "BCC")
    picture = np.asarray(render(drawn.mask, DRAWN_MPP, seed))
    picture = picture.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
    height, width = (-(-side // (TILE * LEVELS[1])) * TILE * LEVELS[1] for side in picture.shape[:2])
    canvas = np.full((height, width, 3), 245, dtype=np.uint8)
    canvas[: picture.shape[0], : picture.shape[1]] = picture
    return canvas


def write_slide(path: Path, case: Case, picture: np.ndarray) -> None:
    """A pyramid that is never in memory as a whole."""
    import tifffile

    places = _places(case, picture.shape[:2])
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        for number, factor in enumerate(LEVELS):
            height, width = -(-case.height // factor), -(-case.width // factor)
            writer.write(
                _tiles(height, width, factor, places, picture),
                shape=(height, width, 3),
                dtype=np.uint8,
                tile=(TILE, TILE),
                photometric="rgb",
                compression="zlib",
                resolution=(1e4 / (MPP * factor), 1e4 / (MPP * factor)),
                resolutionunit="CENTIMETER",
                subfiletype=1 if number else 0,
                metadata=None,
            )


def _places(case: Case, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Corners of the sections, on the grid of tiles, spread from the first corner to the last."""
    last = [max(full - own, 0) // TILE for full, own in zip((case.height, case.width), size, strict=True)]
    steps = max(case.places - 1, 1)
    return [(last[0] * n // steps * TILE, last[1] * n // steps * TILE) for n in range(case.places)]


def _tiles(height: int, width: int, factor: int, places: list[tuple[int, int]], picture: np.ndarray) -> Iterator[bytes]:
    """Compressed tiles, row by row; glass is compressed once."""
    small = picture[::factor, ::factor]
    glass = np.full((TILE, TILE, 3), 245, dtype=np.uint8)
    empty = zlib.compress(glass.tobytes(), 1)
    for top in range(0, height, TILE):
        for left in range(0, width, TILE):
            tile = glass.copy()
            pasted = [_paste(tile, small, y // factor - top, x // factor - left) for y, x in places]
            yield zlib.compress(tile.tobytes(), 1) if any(pasted) else empty


def _paste(tile: np.ndarray, picture: np.ndarray, top: int, left: int) -> bool:
    """Put what the picture shows of a tile there; whether it shows anything."""
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = min(top + picture.shape[0], TILE), min(left + picture.shape[1], TILE)
    if y0 >= y1 or x0 >= x1:
        return False
    tile[y0:y1, x0:x1] = picture[y0 - top : y1 - top, x0 - left : x1 - left]
    return True


class Watch:
    """Samples a process and its children until it ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak: dict[str, int] = {}
        self.child: dict[str, int] = {}
        self.curve: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def now(self) -> dict[str, int]:
        return _memory(self._pid)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._stop.wait(0.02):
            found = _memory(self._pid)
            _raise(self.peak, found)
            if found:
                self.curve.append((time.monotonic() - begin, found["RssAnon"]))
            try:
                children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text(encoding="ascii").split()
            except OSError:
                children = []
            for child in children:
                _raise(self.child, _memory(int(child)))


def _raise(peak: dict[str, int], found: dict[str, int]) -> None:
    for name, value in found.items():
        peak[name] = max(peak.get(name, 0), value)


def _memory(pid: int) -> dict[str, int]:
    """VmRSS and RssAnon in MiB; nothing of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    table = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: int(table[name].split()[0]) // 1024 for name in ("VmRSS", "RssAnon") if name in table}


def measure(model: Path, slide: Path, out: Path, flags: tuple[str, ...]) -> dict[str, Any]:
    """Run the command on one slide and watch it."""
    words = [sys.executable, "-c", CHILD, str(model), str(slide), str(out), *flags]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        if child.stdin is None or child.stdout is None or child.stdout.readline() != "loaded\n":
            raise SystemExit("the network could not be loaded")
        watch = Watch(child.pid)
        loaded, begin = watch.now(), time.monotonic()
        watch.start()
        child.stdin.write("go\n")
        child.stdin.flush()
        told = child.stdout.readline().strip()
        seconds = time.monotonic() - begin
        watch.stop()
    return {
        "told": told,
        "seconds": seconds,
        "loaded": loaded["VmRSS"],
        "rss": watch.peak["VmRSS"] - loaded["VmRSS"],
        "anon": watch.peak["RssAnon"] - loaded["RssAnon"],
        "reader": watch.child.get("VmRSS", 0),
        "curve": [[round(t, 1), mib - loaded["RssAnon"]] for t, mib in watch.curve],
    }


def save_model(folder: Path, width: float) -> None:
    """A small network of the usual kind."""
    import torch

    from ntrm.core.labels import SKIN
    from ntrm.models.registry import create

    torch.manual_seed(0)
    create("ntrm", SKIN, width=width).describe(window=WINDOW, mpp=MPP, name="small").save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=CASES, help="may be given several times")
    parser.add_argument("--enlarge", type=int, default=2)
    parser.add_argument("--model-width", type=float, default=0.125)
    parser.add_argument("--maps", action="store_true")
    parser.add_argument("--probabilities", action="store_true")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder if not given")
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    more = tuple(flag for flag in ("maps", "probabilities") if getattr(asked, flag))
    rows = {}
    print("| slide | seconds | peak RSS over the loaded network, MiB | not file-backed, MiB | reader's RSS, MiB |")
    print("|---|---|---|---|---|", flush=True)
    for name, case in CASES.items():
        if asked.only and name not in asked.only:
            continue
        with tempfile.TemporaryDirectory(dir=asked.folder) as temporary:
            folder = Path(temporary)
            save_model(folder / "model", asked.model_width)
            write_slide(folder / "slide.tif", case, section(1, case.enlarge or asked.enlarge))
            flags = (*case.flags, *(f"--{flag}" for flag in more))
            row = measure(folder / "model", folder / "slide.tif", folder / "out", flags)
        rows[name] = row
        print(f"| {name} | {row['seconds']:.0f} | {row['rss']} | {row['anon']} | {row['reader']} |", flush=True)
        if not row["told"].startswith("done"):
            print(f"  {row['told']}")
    if asked.out is not None:
        asked.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
