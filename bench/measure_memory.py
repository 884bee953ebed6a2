"""Memory and processor time of what is told from a finished mask: one piece, as large and as ragged as wanted.

    python bench/measure_memory.py [--height 12288] [--width 16384] [--grain 40] [--folder F]

The piece is a block of skin full of patches of all tissues, ``--grain`` pixels across, about: a bad mask, since memory
grows with outlines and regions, not with pixels. It lies on disk, as the maps of a slide do. Each stage is watched on
its own: the regions, the measurements of the piece, its graph as a document, and the polygons.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.analysis.polygons import outlines_of
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.pipeline.measurements import measure_pieces, scan_slide
from ntrm.wsi.pieces import PieceMap

MPP, COARSE = Resolution.square(0.5), Resolution.square(16.0)
TILE = 2048
FRAME = 256
"""Pixels of glass around the block."""
SURE = 230
BKG, EPI, RET, KER = (SKIN.index(name) for name in ("BKG", "EPI", "RET", "KER"))


def bands(height: int, width: int, grain: float, seed: int) -> Iterator[np.ndarray]:
    """The mask from top to bottom: one tile of patches, moved about."""
    from scipy import ndimage

    random = np.random.default_rng(seed)
    fields = (ndimage.gaussian_filter(random.standard_normal((TILE, TILE)), grain / 2, mode="wrap") for _ in SKIN.names)
    tile = np.argmax(np.stack([field.astype(np.float32) for field in fields]), axis=0).astype(np.uint8)
    tile[tile == BKG] = RET
    for top in range(0, height, TILE):
        rows = np.arange(top, min(top + TILE, height))
        moved = [np.roll(tile, tuple(random.integers(TILE, size=2)), (0, 1)) for _ in range(-(-width // TILE))]
        band = np.concatenate(moved, axis=1)[: len(rows), :width]
        # The surface lies at the top: keratin over epidermis.
        band[rows < 3 * FRAME], band[rows < 2 * FRAME] = EPI, KER
        band[(rows < FRAME) | (rows >= height - FRAME)] = BKG
        band[:, :FRAME] = band[:, width - FRAME :] = BKG
        yield band


def draw(folder: Path, height: int, width: int, grain: float, seed: int = 0) -> tuple[Path, Path]:
    """The maps of labels and of confidences."""
    paths = folder / "labels.u8", folder / "confidence.u8"
    with paths[0].open("wb") as labels, paths[1].open("wb") as confidence:
        for band in bands(height, width, grain, seed):
            labels.write(band.tobytes())
            confidence.write(np.full(band.shape, SURE, dtype=np.uint8).tobytes())
    return paths


def watched(work: Callable[[], Any], before: int) -> tuple[Any, tuple[float, float]]:
    """What the work gives, its peak in MiB above the KiB ``before``, and its seconds of a processor."""
    stop, peak = threading.Event(), [0]

    def watch() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], _resident() - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begun = time.process_time()
    result = work()
    seconds = time.process_time() - begun
    stop.set()
    watcher.join()
    return result, (peak[0] / 1024, seconds)


def _resident() -> int:
    """Memory of its own in KiB: pages of mapped files are the system's to take back."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def study(labels: np.ndarray, confidence: np.ndarray) -> dict[str, tuple[float, float]]:
    """MiB and seconds of each stage."""
    shape = tuple(-(-side // 32) for side in labels.shape)
    pieces = PieceMap.of(np.ones(shape, dtype=bool), COARSE)
    maps: Any = (labels, confidence)
    before = _resident()
    regions, scanned = watched(lambda: scan_slide(*maps, pieces, schema=SKIN, resolution=MPP), before)
    (found,), measured = watched(lambda: [*measure_pieces(regions, pieces, schema=SKIN)], before)
    _, document = watched(found.graph.as_node_link, before)
    count, outlined = watched(lambda: sum(map(len, outlines_of(regions))), before)
    return {
        f"find {len(found.graph.regions)} regions": scanned,
        "measure the piece": measured,
        "graph as a document": document,
        f"{count} polygons": outlined,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--height", type=int, default=12_288)
    parser.add_argument("--width", type=int, default=16_384)
    parser.add_argument("--grain", type=float, default=40.0)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder if not given")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        paths = draw(Path(place), asked.height, asked.width, asked.grain)
        shape = (asked.height, asked.width)
        labels, confidence = (np.memmap(path, np.uint8, "r", shape=shape) for path in paths)
        print("| stage | peak above the start, MiB | processor s |\n|---|---|---|")
        for name, (mib, seconds) in study(labels, confidence).items():
            print(f"| {name} | {mib:.0f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
