"""What a slide costs once its windows are predicted, stage by stage: the network's answers are kept and given again.

    OMP_NUM_THREADS=1 python bench/slide_tail.py --picture FILE [--size 6144x6144] [--times 2] [--threads 16]
        [--maps FILE] [--repeats 3] [--keep FOLDER]

The bundled model predicts a slide of the picture and its mirror images once, which takes a while; ``--maps`` keeps what
it said for the next time. The slide and its maps are then laid side by side ``--times`` across and down, and segmented
with rows that come from memory. So two versions of the program, or two numbers of ``--threads``, are compared on the
same maps: ``--keep`` keeps the files of the first repeat. With ``--ahead`` files are begun while rows come in, as
beside a GPU. *Thread* is the processor time of the thread that did a stage, without its helpers: all of it where
``OMP_NUM_THREADS`` is 1. The table is of the repeat with the least processor time; the last line has that of the slide
with its tables, in this process and in children that have ended, and of its files alone, in this process.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import many_workers, one_slide
from ntrm.core import threads
from ntrm.data.image_files import read_image
from ntrm.inference.mask_store import CONFIDENCE, LABELS
from ntrm.inference.wsi_inference import stream as predicted
from ntrm.pipeline import slide as one
from ntrm.pipeline.segmenter import Segmenter
from ntrm.slides.inputs import SlideInput
from ntrm.wsi.isolated import ReaderPool

MPP, ROWS = 6.7, 256
Maps = dict[str, np.ndarray]


class Predicted(Exception):  # noqa: N818 - no error
    """The network has seen all windows."""


def predict(slide: Path, folder: Path) -> Maps:
    """The network's maps of a slide, and what was recorded of its windows."""
    kept: Maps = {}

    def streaming(*given: Any, **more: Any) -> Iterator[int]:
        yield from predicted(*given, **more)
        kept["windows"] = np.array([(window.top, window.left) for window in more["windows"]])
        kept["sums"], kept["observed"] = (more[name].state().cpu().numpy() for name in ("sums", "observer"))

    def stop(prediction: Any, _: Any) -> None:
        kept.update({name: np.asarray(prediction.maps[name]) for name in (LABELS, CONFIDENCE)})
        raise Predicted

    segmenter = Segmenter("bundled", folder / "predicted", device="cpu")
    segmenter.claim()
    with mock.patch.object(one, "stream", streaming), mock.patch.object(one, "write_outputs", stop):
        segmenter.segment(SlideInput(slide, "slide"), "slide")
    return kept


def replayed(kept: Maps, times: int) -> Any:
    """``stream`` without a network: the maps side by side, and the windows as they were recorded."""
    labels, confidence = (np.tile(kept[name], (times, times)) for name in (LABELS, CONFIDENCE))
    height, width = kept[LABELS].shape
    place = {(top, left): number for number, (top, left) in enumerate(kept["windows"].tolist())}

    def streaming(_: Any, grid: Any, store: Any, *, windows: Any, sums: Any, observer: Any, **__: Any) -> Iterator[int]:
        sums.restore(torch.from_numpy(kept["sums"]))
        # A window across a seam was not seen: another one stands for it.
        numbers = [place.get((each.top % height, each.left % width), 0) for each in windows]
        observer.restore(torch.from_numpy(kept["observed"][numbers]))
        for top in range(0, grid.height, ROWS):
            rows = slice(top, top + ROWS)
            store.append(top, {LABELS: labels[rows] + np.uint8(1), CONFIDENCE: confidence[rows]})
            yield from range(top, min(top + ROWS, grid.height))

    return streaming


def study(asked: argparse.Namespace, folder: Path) -> None:
    """Predict where there are no maps yet, and segment as often as asked."""
    height, width = map(int, asked.size.split("x"))
    pixels = many_workers.mirrored(read_image(asked.picture), height, width)
    if asked.maps is None or not asked.maps.is_file():
        kept = predict(one_slide.write_sheet(folder / "small.tif", pixels, MPP), folder)
        if asked.maps is not None:
            np.savez_compressed(asked.maps, **kept)
    else:
        with np.load(asked.maps) as stored:
            kept = dict(stored)
    slide = one_slide.write_sheet(folder / "slide.tif", np.tile(pixels, (asked.times, asked.times, 1)), MPP)
    found = []
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(one, "stream", replayed(kept, asked.times)))
        if asked.threads:
            stack.enter_context(mock.patch.object(threads, "cores_given", return_value=asked.threads))
            stack.enter_context(mock.patch.dict("os.environ", {threads.LIMIT: str(asked.threads)}))
        if asked.ahead:
            stack.enter_context(mock.patch.object(one.Work, "works_ahead", True))
        readers = stack.enter_context(closing(ReaderPool(asked.repeats)))
        for number in range(asked.repeats):
            found.append(once(folder / f"out{number}", readers, slide))
            if asked.keep is not None and not number:
                shutil.copytree(folder / "out0", asked.keep)
    least = min(found, key=lambda each: each["processor"])
    print("\n".join(["| stage | clock ms | thread ms |", "|---|---|---|", *least["rows"]]))
    print(f"{least['regions']:,} regions; {least['processor']:.2f} processor s, of these files {least['files']:.2f}")


def once(out: Path, readers: ReaderPool, slide: Path) -> dict[str, Any]:
    """One slide and its tables."""
    used: list[float] = []
    written = one.write_outputs

    def writing(*given: Any) -> Any:
        begun = time.process_time()
        tables = written(*given)
        used.append(time.process_time() - begun)
        return tables

    segmenter = Segmenter("bundled", out, device="cpu")
    segmenter.claim()
    with mock.patch.object(one, "write_outputs", writing):
        found = one_slide.one(segmenter, readers, slide, "slide")
    stages = sorted(found["stages"].items(), key=lambda each: each[1]["began"])
    rows = [f"| {name} | {1e3 * each['clock']:.0f} | {1e3 * each['thread']:.0f} |" for name, each in stages]
    return {**found, "files": used[0], "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, required=True, help="of which slides are made")
    parser.add_argument("--size", default="6144x6144", help="height and width that the network sees")
    parser.add_argument("--times", type=int, default=2, help="that these are laid side by side, across and down")
    parser.add_argument("--threads", type=int, default=0, help="as on a machine of so many cores; default: this one")
    parser.add_argument("--ahead", action="store_true", help="begin files while rows come in")
    parser.add_argument("--maps", type=Path, default=None, help="NPZ file of what the network said")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the files of the first repeat")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        study(asked, Path(place))


if __name__ == "__main__":
    main()
