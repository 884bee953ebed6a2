"""Outlines of a mask by this package, OpenCV, rasterio and fastlabelcontours: time on one core, and what is exact.

    OMP_NUM_THREADS=1 python bench/region_comparison.py --masks FOLDER [--side 8] [--rounds 3]

The masks are those of ``bench/region_speed.py``, without the drawn ones. The libraries are no part of the package:
install what is to be compared (``opencv-python-headless``, ``rasterio``, ``fastlabelcontours``) into an environment of
its own; what is not there is left out. Background is outlined by none. *Areas* says whether the areas of the outlines
add up to the pixels of each class. Only this package tells contacts, too: they are part of its regions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.region_speed import MPP, confetti, mosaic

from ntrm.analysis.polygons import outlines_of
from ntrm.analysis.regions import scan_mask
from ntrm.core.labels import SKIN
from ntrm.version import __version__

BACKGROUND = SKIN.index("BKG")
Rings = list[tuple[int, Any]]
"""Class and (n, 2) corners of each ring; holes run the other way round."""


def classes_of(mask: np.ndarray) -> list[int]:
    """Those to be outlined; by counting, so that what the libraries need for it is as cheap as it can be."""
    found = np.flatnonzero(np.bincount(mask.ravel(), minlength=256)).tolist()
    return [tissue for tissue in found if tissue not in (BACKGROUND, 255)]


def numbered(mask: np.ndarray) -> np.ndarray:
    """32-bit labels: class + 1 for what is to be outlined, else 0."""
    label = np.arange(1, 257, dtype=np.uint32)
    label[[BACKGROUND, 255]] = 0
    return label.take(mask)


def ours(mask: np.ndarray) -> Rings:
    """Regions, their contacts and their outlines with holes."""
    regions, rings, first = scan_mask(mask, SKIN, MPP), [], 0
    tissue = regions.table.tissue.tolist()
    for outlines in outlines_of(regions):
        for number, spans in enumerate(outlines.spans(), start=first):
            rings += [(tissue[number], outlines.points[begin:end]) for begin, end in spans]
        first += len(outlines)
    return rings


def opencv(mask: np.ndarray) -> Rings:
    """Contours and hierarchy, class by class; they run through the centres of pixels, which touch at corners, too."""
    import cv2

    rings: Rings = []
    for tissue in classes_of(mask):
        found, _ = cv2.findContours((mask == tissue).view(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
        rings += [(tissue, contour[:, 0]) for contour in found]
    return rings


def rasterio(mask: np.ndarray) -> Rings:
    """Polygons with holes."""
    from rasterio.features import shapes

    found = shapes(mask, mask=numbered(mask) != 0, connectivity=4)
    return [(int(value), ring) for shape, value in found for ring in shape["coordinates"]]


def fastlabelcontours(mask: np.ndarray) -> Rings:
    """Outlines by class, holes marked; which ones are of one region is not told."""
    import fastlabelcontours as library

    found = library.contours(numbered(mask))
    rings: Rings = []
    for label, begin, end in zip(found.ids.tolist(), found.label_offsets[:-1], found.label_offsets[1:], strict=True):
        bounds = pairwise(found.contour_offsets[begin : end + 1].tolist())
        rings += [(label - 1, found.points[first:last]) for first, last in bounds]
    return rings


WAYS: dict[str, tuple[Callable[[np.ndarray], Rings], str]] = {
    "this package": (ours, ""),
    "OpenCV": (opencv, "opencv-python-headless"),
    "rasterio": (rasterio, "rasterio"),
    "fastlabelcontours": (fastlabelcontours, "fastlabelcontours"),
}


def exact_areas(rings: Rings, mask: np.ndarray) -> bool:
    """Whether the signed areas of the rings add up to the pixels of each class."""
    corners = [np.asarray(ring, dtype=np.float64) for _, ring in rings]
    first = np.cumsum([0, *map(len, corners)])
    x, y = np.concatenate(corners).T
    following = np.arange(1, len(x) + 1)
    following[first[1:] - 1] = first[:-1]
    twice = np.add.reduceat(x * y[following] - x[following] * y, first[:-1])
    areas = np.bincount([tissue for tissue, _ in rings], twice / 2, 256)
    pixels = np.bincount(mask.ravel(), minlength=256)
    return all(abs(abs(areas[tissue]) - pixels[tissue]) < 0.5 for tissue in classes_of(mask))


def compare(masks: dict[str, np.ndarray], rounds: int) -> Iterator[tuple[str, list[str]]]:
    """For each way that is installed its version, milliseconds per megapixel of each mask, and if areas are exact."""
    for name, (way, package) in WAYS.items():
        try:
            cells, exact = [version(package) if package else __version__], []
        except PackageNotFoundError:
            continue
        for mask in masks.values():
            times = []
            for _ in range(rounds):
                begun = time.process_time()
                rings = way(mask)
                times.append(time.process_time() - begun)
            cells.append(f"{min(times) * 1e9 / mask.size:.1f}")
            exact.append(exact_areas(rings, mask))
        yield name, [*cells, "yes" if all(exact) else "no"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", type=Path, required=True)
    parser.add_argument("--side", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    masks = {"skin": mosaic(asked.masks, asked.side), "confetti": confetti(256)}
    print(f"| processor ms per megapixel | version | {' | '.join(masks)} | areas |")
    print("|---" * (len(masks) + 3) + "|")
    for name, cells in compare(masks, asked.rounds):
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
