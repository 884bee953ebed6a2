"""Where the processor's time goes when the network costs nothing: what would hold a fast device back.

    python bench/segment_stages.py [--side 20000] [--sections 6] [--out FILE]

The slide is an uncompressed tiled TIFF at the network's µm/px, covered with drawn sections, and every window of it is
wanted. The network's answers to some windows are computed beforehand and given again and again, so that the mask has
the shapes of a good one, if with seams. The table has seconds of processors per megapixel, of the thread that works on
the stage; the child that reads is counted apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import segment_speed
from ntrm.data.image_files import read_image
from ntrm.evaluation.loaded_model import open_subject
from ntrm.inference.predictor import Predictor
from ntrm.models.base import Segmentation
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Segmenter
from ntrm.results.paths import table_file

MPP, TILE, BATCH, ANSWERS = 0.5, 512, 16, 48


def write_slide(path: Path, picture: np.ndarray, side: int) -> None:
    """The picture again and again, never in memory as a whole."""
    import tifffile

    def tiles() -> Iterator[np.ndarray]:
        for top in range(0, side, TILE):
            rows = picture.take(range(top, top + TILE), axis=0, mode="wrap")
            for left in range(0, side, TILE):
                yield np.ascontiguousarray(rows.take(range(left, left + TILE), axis=1, mode="wrap"))

    per_cm = 1e4 / MPP
    shape = {"shape": (side, side, 3), "dtype": np.uint8, "tile": (TILE, TILE), "photometric": "rgb"}
    tifffile.imwrite(path, tiles(), **shape, resolution=(per_cm, per_cm), resolutionunit="CENTIMETER", metadata=None)


def replayed(predictor: Predictor, picture: np.ndarray) -> Callable[..., Segmentation]:
    """``Predictor.probabilities`` without a network: its answers to some windows of the picture."""
    size = predictor.config.window
    tops, lefts = (range(0, length - size + 1, size) for length in picture.shape[:2])
    some = [picture[top : top + size, left : left + size] for top in tops for left in lefts]
    answers = predictor.probabilities(np.stack(some[:ANSWERS])).final
    following = cycle(range(len(answers)))

    def probabilities(_: Predictor, pixels: np.ndarray, **__: Any) -> Segmentation:
        return Segmentation(answers[[next(following) for _ in pixels]], None, None)

    return probabilities


def study(folder: Path, side: int, sections: int, seed: int) -> dict[str, Any]:
    """Seconds of processors by stage."""
    picture = read_image(segment_speed.drawn(folder / "skin", sections, seed))
    write_slide(folder / "slide.tif", picture, side)
    network = open_subject("bundled").network.describe(mpp=MPP)
    answers = replayed(Predictor(network, "cpu", batch=BATCH), picture)
    segmenter = Segmenter(network, folder / "out", Options(tissue_mask=False), device="cpu", batch=BATCH)
    # One thread, so that processor seconds are those of the work and not of waiting.
    torch.set_num_threads(1)
    with mock.patch.object(Predictor, "probabilities", answers):
        whole, stages = segment_speed.whole(segmenter, folder / "slide.tif")
    regions = len((folder / "out" / table_file("regions")).read_text(encoding="utf-8").splitlines()) - 1
    threads = sum(stages[name].processor for name in stages if name not in ("network", "files"))
    return {
        "side": side,
        "regions": regions,
        "clock": whole.clock,
        "stages": {name: cost.processor for name, cost in stages.items()},
        "child and rest": whole.processor - threads - stages["network"].processor,
    }


def table(found: dict[str, Any]) -> str:
    """In Markdown, per megapixel."""
    megapixels = found["side"] ** 2 / 1e6
    head = f"{found['side']:,} × {found['side']:,} pixels, {found['regions']:,} regions, {found['clock']:.0f} s"
    lines = [head, "", "| stage | processor ms per megapixel |", "|---|---|"]
    rows = {**found["stages"], "child and rest": found["child and rest"]}
    return "\n".join([*lines, *(f"| {name} | {1e3 * seconds / megapixels:.1f} |" for name, seconds in rows.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=20_000)
    parser.add_argument("--sections", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = study(Path(place), asked.side, asked.sections, asked.seed)
    print(table(found))
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
