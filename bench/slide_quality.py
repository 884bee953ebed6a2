"""What the look at low resolution finds on phantom sections: tissue, glass, and folds drawn at random.

    python bench/slide_quality.py --sections 100 --seed 0

Sections are drawn at 6.7 µm/px, scanned with random artefacts and looked at at 13.4 µm/px, as `ntrm segment` does.
Prints one JSON document: shares of tissue missed and of glass taken, folds found and false alarms, for several
thresholds of contrast. A fold counts as found if the section is flagged and most of what was found lies on it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.wsi.pictures import BKG, creased

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average
from ntrm.phantom.layout import lay_slide
from ntrm.phantom.noise import derive
from ntrm.phantom.render import Artefacts, expose, render
from ntrm.wsi.quality import folds
from ntrm.wsi.quality.folds import find_folds
from ntrm.wsi.quality.thumbnail import Thumbnail, find_pen
from ntrm.wsi.tissue_mask import find_tissue

MPP, SHRUNK = 6.7, 2
CONTRASTS = (0.2, 0.25, 0.3, 0.35, 0.4)


def shrunk(places: Any) -> Any:
    return area_average((places * np.uint8(255))[..., None], SHRUNK, SHRUNK)[..., 0] > 127


def scanned(picture: Any, seed: int) -> Thumbnail:
    """As it comes out of a scanner; ink is on the picture already."""
    drawn = Artefacts.draw(derive(seed, "scan"))
    mild = Artefacts(drawn.uneven_light, drawn.blur_um, drawn.sensor_noise, drawn.jpeg_quality)
    out = expose(picture.astype(np.float32), MPP, seed, mild)
    return Thumbnail(area_average(out, SHRUNK, SHRUNK), Resolution.square(MPP * SHRUNK))


def found_folds(seen: Thumbnail) -> dict[float, Any]:
    pen = find_pen(seen)
    tissue = seen.downsampled(find_tissue(seen, pen)) & ~pen
    chosen, found = folds.LEAST_CONTRAST, {}
    for contrast in CONTRASTS:
        folds.LEAST_CONTRAST = contrast
        found[contrast] = seen.upsampled(find_folds(seen.averaged, tissue, seen.coarse))
    folds.LEAST_CONTRAST = chosen
    return found


def section(seed: int, cancer: str) -> dict[str, Any]:
    """One section without and with a fold."""
    mask = lay_slide(seed, MPP, cancer).mask
    ink = Artefacts(ink=Artefacts.draw(derive(seed, "scan")).ink)
    picture = render(mask, MPP, seed, artefacts=ink)
    seen, true = scanned(picture, seed), shrunk(mask != BKG)
    tissue, fat = find_tissue(seen, find_pen(seen)), shrunk(mask == SKIN.index("HYP"))
    row = {
        "missed": (true & ~tissue).sum() / true.sum(),
        "fat_missed": (fat & ~tissue).sum() / max(fat.sum(), 1),
        "taken": (~true & tissue).sum() / max((~true).sum(), 1),
        "alarms": {contrast: bool(places.any()) for contrast, places in found_folds(seen).items()},
    }
    drawn = creased(picture, mask, np.random.default_rng(seed), MPP)
    if drawn is not None:
        near = ndimage.binary_dilation(shrunk(drawn[1]), iterations=4)
        found = found_folds(scanned(drawn[0], seed))
        row["hits"] = {
            contrast: bool((places & near).sum() > 0.5 * places.sum() > 0) for contrast, places in found.items()
        }
    return row


def rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield section(derive(seed, number) >> 1, ("BCC", "SCC", "IEC")[number % 3])


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    with_fold = [row["hits"] for row in found if "hits" in row]
    return {
        "sections": len(found),
        **{
            f"{key}_{what}": round(float(of([row[key] for row in found])), 4)
            for key in ("missed", "fat_missed", "taken")
            for what, of in (("mean", np.mean), ("most", np.max))
        },
        "folds_drawn": len(with_fold),
        "chosen_contrast": folds.LEAST_CONTRAST,
        "folds": {
            str(contrast): {
                "found": sum(hits[contrast] for hits in with_fold),
                "false_alarms": sum(row["alarms"][contrast] for row in found),
            }
            for contrast in CONTRASTS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps(summary(list(rows(args.sections, args.seed))), indent=2))


if __name__ == "__main__":
    main()
