"""One worker and one slide after the other: seconds from the file to the last output, stage by stage.

    python bench/one_slide.py --device cuda --batch 128 [--sizes 12288x12288,1810x1625] [--out FILE]

Slides are sheets of drawn sections, uncompressed tiled TIFF at ``--mpp`` (by default the model's), read from memory
rather than from a disk since they were just written; with ``--picture`` they are made of that picture and its mirror
images, which takes no time. The network is loaded and has seen one slide before the first is timed; each slide is
segmented ``--repeats`` times into a new folder, and the table has the repeat of median time. A stage's *clock* is how
long it lasted, *began* and *ended* when, in seconds from the opening of the slide; stages that run beside each other
overlap. *Thread* is the processor time of the thread that did it, without its helpers. *Tables* is what a run does once
at its end.

With ``--workers`` as many processes then segment slides of ``--side`` pixels at the same time
(``bench/py``), each with its share of the cores. Where Jinja2 is missing, no pages are written.
``--switch`` is how long a thread of one worker may keep Python's lock while another wants it (Python: 5 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import segment_speed
from ntrm.core.threads import most_threads
from ntrm.data.image_files import read_image
from ntrm.familiarity.loaded_model import open_subject
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Segmenter
from ntrm.slides.inputs import SlideInput
from ntrm.wsi.isolated import ReaderPool

GLASS = 245
GAP = 60
"""Pixels of glass around each section."""
STAGES = {
    "open": ("ntrm.wsi.isolated", "ReadingProcess.open"),
    "look": ("ntrm.pipeline.slide", "inspect_slide"),
    "look: thumbnail": ("ntrm.pipeline.overview", "thumbnail"),
    "look: pen": ("ntrm.pipeline.overview", "find_pen"),
    "look: tissue": ("ntrm.pipeline.overview", "find_tissue"),
    "quality": ("ntrm.pipeline.overview", "assess_quality"),
    "stream": ("ntrm.pipeline.slide", "predict_maps"),
    "network's calls": ("ntrm.inference.predictor", "Predictor.probabilities"),
    "reading": ("ntrm.inference.predict", "read_tile"),
    "blending": ("ntrm.inference.sliding_window", "blended"),
    "rows kept": ("ntrm.inference.predict", "Maps.fill"),
    "relations": ("ntrm.pipeline.relations_mean", "RelationsMean.add_graphs"),
    "familiarity, windows": ("ntrm.familiarity.recorder", "BlockRecorder.__call__"),
    "pieces": ("ntrm.wsi.pieces", "PieceMap.of"),
    "regions": ("ntrm.pipeline.outputs", "scan_slide"),
    "mask": ("ntrm.pipeline.slide_files", "write_mask_ome_tiff"),
    "slide alone": ("ntrm.pipeline.outputs", "write_plain"),
    "tinting": ("ntrm.pipeline.pictures", "TintedSlide.of"),
    "files": ("ntrm.pipeline.slide", "write_outputs"),
    "polygons": ("ntrm.pipeline.slide_files", "write_geojson"),
    "measuring": ("ntrm.pipeline.outputs", "measure_pieces"),
    "familiarity": ("ntrm.pipeline.outputs", "judge_slide"),
    "familiarity, map": ("ntrm.pipeline.outputs", "write_familiarity_map"),
    "graph": ("ntrm.pipeline.slide_files", "write_graph"),
    "overlays": ("ntrm.pipeline.outputs", "write_overlays"),
    "report": ("ntrm.pipeline.outputs", "write_slide_report"),
    "rows": ("ntrm.pipeline.slide_files", "SlideFiles.tables"),
    "record": ("ntrm.pipeline.slide", "remember"),
    "tables": ("ntrm.pipeline.segmenter", "tabulate"),
}
"""Where the stages are called from."""


@dataclass
class Stage:
    """What all calls of a stage took together."""

    calls: int = 0
    clock: float = 0.0
    thread: float = 0.0
    began: float = 0.0
    ended: float = 0.0


class Clock(segment_speed.StageWatch):
    """What each stage takes, in any thread."""

    places = STAGES

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self._lock = threading.Lock()
        self._zero = time.perf_counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time every stage as long as this lasts."""
        with super().watching():
            self._zero = time.perf_counter()
            yield

    @contextmanager
    def _adding(self, name: str) -> Iterator[None]:
        begun, used = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            ended = time.perf_counter()
            with self._lock:
                stage = self.stages.setdefault(name, Stage(began=begun - self._zero))
                stage.calls += 1
                stage.clock += ended - begun
                stage.thread += time.thread_time() - used
                stage.ended = max(stage.ended, ended - self._zero)


def write_sheet(path: Path, pixels: np.ndarray, mpp: float) -> Path:
    """As a slide."""
    import tifffile

    kept = {"tile": (256, 256), "photometric": "rgb", "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, np.ascontiguousarray(pixels), resolution=(1e4 / mpp, 1e4 / mpp), **kept)
    return path


def drawn_sections(folder: Path, seed: int) -> list[np.ndarray]:
    """Four of different sizes."""
    write_phantom(folder, PhantomOptions(4, seed), jobs=min(4, len(os.sched_getaffinity(0))))
    return [read_image(path) for path in sorted((folder / "10x" / "Images").iterdir())]


def sheet(sections: Sequence[np.ndarray], side: int, first: int) -> np.ndarray:
    """(side, side, 3) sections in rows on glass, beginning with the one numbered ``first``."""
    canvas = np.full((side, side, 3), GLASS, dtype=np.uint8)
    number, top = first, GAP
    while top < side - GAP:
        left, row = GAP, 0
        while left < side - GAP:
            section = sections[number % len(sections)][: side - GAP - top, : side - GAP - left]
            height, width = section.shape[:2]
            canvas[top : top + height, left : left + width] = section
            left, row, number = left + width + GAP, max(row, height), number + 1
        top += row + GAP
    return canvas


def mirrored(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture as large as that: the small one and its mirror images again and again."""
    wide = np.concatenate([picture, picture[:, ::-1]], axis=1)
    whole = np.concatenate([wide, wide[::-1]])
    times = [-(-size // side) for size, side in zip((height, width), whole.shape[:2], strict=True)]
    return np.tile(whole, (*times, 1))[:height, :width]


def sheet_of(asked: argparse.Namespace, folder: Path) -> Callable[[int, int], np.ndarray]:
    """A function that gives a picture of any size: drawn sections side by side, or a given picture and its mirrors."""
    if asked.picture is not None:
        picture = read_image(asked.picture)
        return lambda height, width: mirrored(picture, height, width)
    sections = drawn_sections(folder / "skin", asked.seed)
    return lambda height, width: sheet(sections, max(height, width), 0)[:height, :width]


def one(segmenter: Segmenter, readers: ReaderPool, slide: Path, slide_id: str) -> dict[str, Any]:
    """A slide from its file to the last output, and the tables."""
    clock, used = Clock(), segment_speed.with_children()
    with clock.watching():
        begun = time.perf_counter()
        found = segmenter.segment(SlideInput(slide, slide_id), slide_id, open_slide=readers.open)
        done = time.perf_counter() - begun
        segmenter.tabulate()
        whole = time.perf_counter() - begun
    if found.status != "done":
        raise SystemExit(f"the slide was not segmented: {found.status} {found.reason}")
    regions = len((segmenter.out / "regions.csv").read_text(encoding="utf-8").splitlines()) - 1
    stages = {name: vars(stage) for name, stage in clock.stages.items()}
    return {
        "slide": done,
        "whole": whole,
        "processor": segment_speed.with_children() - used,
        "regions": regions,
        "stages": stages,
    }


def study(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All sizes, one worker; the smallest once before, so that the device's kernels are there."""
    options = Options(report=find_spec("jinja2") is not None)
    subject = open_subject(asked.model)
    mpp = asked.mpp or float(subject.config.mpp or 0)
    # By its name where it can be: a network alone does not know what slides it was trained on.
    model = asked.model if asked.mpp is None else subject.network.describe(mpp=mpp)
    report: dict[str, Any] = {"device": asked.device, "batch": asked.batch, "threads": most_threads(), "mpp": mpp}
    report |= {"pages": options.report, "sizes": {}}
    sizes = [(*map(int, size.split("x")),) for size in asked.sizes.split(",")]
    sheet = sheet_of(asked, folder)
    slides = {size: write_sheet(folder / f"{size[0]}x{size[1]}.tif", sheet(*size), mpp) for size in sizes}
    plan = [min(sizes), *(size for size in sizes for _ in range(asked.repeats))]
    with closing(ReaderPool(len(plan))) as readers:
        for number, size in enumerate(plan):
            segmenter = Segmenter(model, folder / f"out{number}", options, device=asked.device, batch=asked.batch)
            segmenter.claim()
            time.sleep(asked.pause)  # the child that reads starts meanwhile
            found = one(segmenter, readers, slides[size], "slide")
            print(f"{size[0]} x {size[1]}: {found['whole']:.2f} s{'' if number else ' (to warm up)'}", flush=True)
            if number:
                report["sizes"].setdefault(f"{size[0]} x {size[1]}", []).append(found)
                save(asked.out, report)
    return report


def save(path: Path | None, report: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(report, indent=1))


def table(report: dict[str, Any]) -> str:
    """In Markdown."""
    pages = "" if report["pages"] else ", no pages"
    lines = [f"{report['device']}, batch {report['batch']}, {report['threads']} threads, {report['mpp']} µm/px{pages}"]
    for size, rounds in report["sizes"].items():
        middle = sorted(rounds, key=lambda each: each["whole"])[len(rounds) // 2]
        every = ", ".join(f"{each['whole']:.2f}" for each in rounds)
        lines += ["", f"{size}: slide {middle['slide']:.2f} s, with tables {middle['whole']:.2f} s (all: {every})"]
        lines += [f"{middle['processor']:.1f} processor s, {middle['regions']:,} regions", ""]
        lines += ["| stage | calls | clock | thread | began | ended |", "|---|---|---|---|---|---|"]
        for name, stage in sorted(middle["stages"].items(), key=lambda item: item[1]["began"]):
            numbers = " | ".join(f"{stage[key]:.3f}" for key in ("clock", "thread", "began", "ended"))
            lines.append(f"| {name} | {stage['calls']} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="12288x12288,1810x1625", help="height and width, several with commas")
    parser.add_argument("--mpp", type=float, default=None, help="µm/px of slides and network; default: the model's")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3, help="of each size")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds before each slide")
    parser.add_argument("--picture", type=Path, default=None, help="a picture to make slides of, not drawn sections")
    parser.add_argument("--switch", type=float, default=5.0, help="ms for a thread to keep Python's lock")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    sys.setswitchinterval(asked.switch / 1e3)
    with tempfile.TemporaryDirectory() as place:
        report = study(asked, Path(place))
    print(table(report), flush=True)


if __name__ == "__main__":
    main()
