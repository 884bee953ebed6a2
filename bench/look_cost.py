"""What is done before the network, and to read what it sees: processor milliseconds, stage by stage.

    OMP_NUM_THREADS=1 python bench/look_cost.py --picture FILE [--sizes 12288x12288,1810x1625] [--rounds 3] [--out FILE]

Slides are made of a picture and its mirror images, as in ``bench/one_slide.py``: uncompressed tiled TIFF at the model's
µm/px. *All threads* is the processor time of this process, *first thread* that of the thread which calls the stage: no
other one can take it over, so that it bounds what more cores can gain. *Children* is that of those that read, in steps
of 10 ms; with ``--children`` there are so many whatever the size of the slide. The least of some rounds is given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.one_slide import write_sheet

from bench import many_workers
from ntrm.core.threads import most_threads
from ntrm.data.image_files import read_image
from ntrm.inference.sliding_window import Stitching
from ntrm.inference.wsi_inference import reading_ahead
from ntrm.pipeline import pictures
from ntrm.pipeline.options import Options
from ntrm.pipeline.overview import inspect_slide
from ntrm.pipeline.pictures import resized
from ntrm.wsi import isolated
from ntrm.wsi.grid import THUMBNAIL_MPP, SlideGrid, thumbnail
from ntrm.wsi.isolated import open_in_children
from ntrm.wsi.pieces import PieceMap
from ntrm.wsi.quality.thumbnail import Thumbnail, find_pen
from ntrm.wsi.tissue_mask import find_tissue

MPP, WINDOW, BATCH = 6.7, 256, 32
SIDES = (
    (pictures.SMALLEST_SIDE, pictures.LARGEST_SIDE),
    (1, pictures.PLAIN_SIDE),
    (pictures.SMALLEST_MAP, pictures.LARGEST_MAP),
    (1, pictures.THUMBNAIL_SIDE),
)
"""Least and most pixels of the longer side of every picture of a slide."""
Result = TypeVar("Result")


class Cost(NamedTuple):
    """Seconds."""

    clock: float
    process: float
    thread: float
    children: float


def children_of(reader: Any) -> list[int]:
    """Their process ids."""
    return [child._child.pid for child in getattr(reader, "children", (reader,))]


def processor_of(pid: int) -> float:
    """Seconds of processors that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """The least cost of each stage."""

    def __init__(self, children: list[int]) -> None:
        self.costs: dict[str, Cost] = {}
        self._children = children

    def __call__(self, name: str, work: Callable[[], Result]) -> Result:
        before = self._now()
        result = work()
        cost = Cost(*(after - begun for after, begun in zip(self._now(), before, strict=True)))
        self.costs[name] = min(cost, self.costs.get(name, cost), key=lambda one: one.process)
        return result

    def _now(self) -> Cost:
        children = sum(processor_of(pid) for pid in self._children)
        return Cost(time.perf_counter(), time.process_time(), time.thread_time(), children)


def look(reader: Any, watch: Watch) -> None:
    """The stages one by one, then all of the look, what is done beside the network, and what that would be given."""
    grid = SlideGrid(reader, MPP)
    seen = watch("thumbnail", lambda: Thumbnail(*thumbnail(grid, max(THUMBNAIL_MPP, MPP))))
    pen = watch("densities and pen", lambda: find_pen(seen))
    watch("tissue", lambda: find_tissue(seen, pen))
    grid = SlideGrid(reader, MPP)
    overview = watch("look, all of it", lambda: inspect_slide(grid, Options()))
    watch("quality, beside the network", lambda: overview.quality)
    watch("pieces, beside the network", lambda: PieceMap.of(overview.tissue, overview.resolution))
    watch("pictures, beside the network", lambda: [resized(overview.picture, *sides) for sides in SIDES])
    windows = watch("choosing windows", lambda: overview.windows(grid, Options(), WINDOW))
    watch("tiles of the windows", lambda: tiles(SlideGrid(reader, MPP), windows))


def tiles(grid: SlideGrid, windows: Any) -> None:
    """As the network takes them."""
    with reading_ahead(grid, windows, BATCH) as read:
        for start in range(0, len(windows), BATCH):
            read(windows[start : start + BATCH])


def study(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All sizes."""
    picture, found = read_image(asked.picture), {}
    for size in asked.sizes.split(","):
        height, width = (int(side) for side in size.split("x"))
        slide = write_sheet(folder / f"{size}.tif", many_workers.mirrored(picture, height, width), MPP)
        with closing(open_in_children(slide)) as reader:
            watch = Watch(children_of(reader))
            for _ in range(asked.rounds):
                look(reader, watch)
        windows = len(Stitching(WINDOW).windows(height, width))
        found[size] = {"windows": windows, "stages": {name: cost._asdict() for name, cost in watch.costs.items()}}
    return {"threads": most_threads(), "sizes": found}


def table(report: dict[str, Any]) -> str:
    """In Markdown, in milliseconds."""
    lines = [f"{report['threads']} threads"]
    for size, found in report["sizes"].items():
        lines += ["", f"{size}, {found['windows']:,} windows in all", ""]
        lines += ["| stage | all threads | first thread | children | clock |", "|---|---|---|---|---|"]
        for name, cost in found["stages"].items():
            numbers = " | ".join(f"{1e3 * cost[key]:.0f}" for key in ("process", "thread", "children", "clock"))
            lines.append(f"| {name} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, required=True, help="of which slides are made")
    parser.add_argument("--sizes", default="12288x12288,1810x1625", help="height and width, several with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--children", type=int, default=None, help="that read each slide")
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    count = asked.children
    forced = mock.patch.object(isolated, "children_for", isolated.children_for if count is None else lambda _: count)
    with tempfile.TemporaryDirectory() as place, forced:
        report = study(asked, Path(place))
    print(table(report))
    if asked.out is not None:
        asked.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
