"""How much fine detail sharp and blurred pictures have: the distance of the focus's threshold from either.

    NTRM_REAL_DATA=data python bench/slide_focus.py --sections 100 --blurred 40

Phantom sections at 6.7 µm/px, and where NTRM_REAL_DATA names a folder the colon images in ``glas`` and the prostate
cores in ``gleason2019``, at several µm/px, as ``ntrm segment`` judges them. Each is blurred by Gaussians of so many
pixels (as they are judged), and the sensor's noise and JPEG come after that. Prints one JSON document: for every kind
and every blur the least, the median and the largest detail of a picture, and how many would be called out of focus.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.wsi.pictures import clean, out_of_focus, tissue_of

from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average
from ntrm.wsi.grid import THUMBNAIL_MPP, SlideGrid, thumbnail
from ntrm.wsi.quality.checks import FLAGGED
from ntrm.wsi.quality.focus import as_judged, blur_score, fine_detail, sample_windows
from ntrm.wsi.quality.thumbnail import glass_colour
from ntrm.wsi.readers.formats import open_slide

BLURS = (0.0, 0.7, 1.0, 1.2, 1.7, 2.5)
REAL = {"glas": (0.62, 1.24, 2.5), "gleason2019": (1.25, 2.5, 6.7)}
PHANTOM_MPP = 6.7
COARSE = Resolution.square(2 * PHANTOM_MPP)


def phantom(seed: int) -> tuple[Any, list[Any]]:
    """Thumbnail and samples of a drawn section."""
    picture = clean(seed, PHANTOM_MPP)
    small = area_average(picture, 2, 2)
    windows = sample_windows(tissue_of(small, COARSE), COARSE, Resolution.square(PHANTOM_MPP), picture.shape[:2])
    return small, [picture[window.slices] for window in windows]


def real(path: Path, own_mpp: float, model_mpp: float) -> tuple[Any, list[Any]]:
    """The same of an image in a file."""
    grid = SlideGrid(open_slide(path), model_mpp, Resolution.square(own_mpp))
    small, mpp = thumbnail(grid, max(THUMBNAIL_MPP, model_mpp))
    windows = sample_windows(tissue_of(small, mpp), mpp, grid.resolution, (grid.height, grid.width))
    read = [grid.read(window.top, window.left, window.height, window.width) for window in windows]
    return small, [as_judged(sample, grid.resolution) for sample in read]


def pictures(sections: int, seed: int) -> Iterator[tuple[str, int, Any, list[Any]]]:
    """Kind, number, thumbnail and samples."""
    for number in range(sections):
        yield f"phantom {PHANTOM_MPP}", number, *phantom(seed + number)
    folder = os.environ.get("NTRM_REAL_DATA")
    for name, mpps in REAL.items() if folder else ():
        with (Path(str(folder)) / name / "cases.csv").open(encoding="utf-8") as stream:
            cases = [(row["name"], float(row["mpp"])) for row in csv.DictReader(stream)]
        for number, (case, mpp) in enumerate(cases):
            for model_mpp in mpps:
                yield (
                    f"{name} {model_mpp}",
                    number,
                    *real(Path(str(folder), name, "Images", f"{case}.jpg"), mpp, model_mpp),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blurred", type=int, default=40, help="pictures of each kind that are blurred, too")
    args = parser.parse_args()
    found: dict[str, dict[float, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    for kind, number, small, samples in pictures(args.sections, args.seed):
        glass = glass_colour(small)
        for blur in BLURS if number < args.blurred else BLURS[:1]:
            seen = [out_of_focus(sample, blur) if blur else sample for sample in samples]
            details = [detail for sample in seen if (detail := fine_detail(sample, glass=glass)) is not None]
            if details:
                flag = (blur_score(details) or 0.0) >= FLAGGED["out_of_focus"]
                found[kind][blur].append((float(np.median(details)), flag))
    print(json.dumps({kind: {str(blur): summary(rows) for blur, rows in of.items()} for kind, of in found.items()}))


def summary(rows: list[tuple[float, bool]]) -> dict[str, Any]:
    details = [detail for detail, _ in rows]
    least, median, most = (round(float(np.quantile(details, share)), 3) for share in (0, 0.5, 1))
    return {"pictures": len(rows), "least": least, "median": median, "most": most, "flagged": sum(f for _, f in rows)}


if __name__ == "__main__":
    main()
