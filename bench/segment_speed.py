"""What ``ntrm segment`` costs beside the bare network: the whole over the network alone, and stage by stage.

    python bench/segment_speed.py [--slide FILE] [--model bundled] [--repeats 3] [--slides 3] [--out FILE]

The *bare network* is ``Predictor.probabilities`` on the very windows that the slide needs, read beforehand, in batches
of the same size. The *whole* is one call of the segmenter with its network loaded: from the file to the last output;
the child that reads has been started before, as the command starts it while it loads the network. *One of several* is
the share of a slide in a run over ``--slides`` copies of it, where the files of one are written while the network works
on the next. The *command* is ``ntrm segment`` as a new process, imports and loading included. Each repeat times these
in turn, the network before and after the whole, and ratios are those within a repeat; the table has medians.

Beside the seconds of a clock stand those of processors, which a busy machine changes less: of the whole process for
those, of the calling thread alone for the stages (the network has more threads than that one).

Stages are timed inside the whole. Reading and writing run in threads beside the network: they cost something only where
the network waits for them, which is then in *blend and wait* (all that the stream takes beyond the network's calls).
*Files* is all that comes after; the stages marked so run within it, in two threads.
With ``--more ARCH`` a new network of that architecture sees every window as well, in all of these but the command, and
its answer is dropped: the cost of a large network, with the masks of one that was trained (new weights would give
confetti, and polygons of that). Without ``--slide`` a section is drawn, the largest of ``--sections`` that ``--seed``
gives.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.familiarity.loaded_model import LoadedModel, open_subject
from ntrm.inference.predict import read_tile
from ntrm.inference.predictor import Predictor
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.names import network_named
from ntrm.models.registry import create
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.options import Options
from ntrm.pipeline.overview import inspect_slide
from ntrm.pipeline.segmenter import Segmenter
from ntrm.slides.inputs import SlideInput
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.isolated import ReaderPool, open_isolated

STAGES = {
    "open": ("ntrm.wsi.isolated", "ReadingProcess.open"),
    "look": ("ntrm.pipeline.slide", "inspect_slide"),
    "stream": ("ntrm.pipeline.slide", "predict_maps"),
    "network": ("ntrm.inference.predictor", "Predictor.probabilities"),
    "read (beside)": ("ntrm.inference.predict", "read_tile"),
    "rows kept (in stream)": ("ntrm.inference.predict", "Maps.fill"),
    "files": ("ntrm.pipeline.slide", "write_outputs"),
    "regions (in files)": ("ntrm.pipeline.outputs", "scan_slide"),
    "measure (in files)": ("ntrm.pipeline.outputs", "measure_pieces"),
    "overlay (in files)": ("ntrm.pipeline.outputs", "write_overlays"),
    "ome-tiff (in files, beside)": ("ntrm.pipeline.slide_files", "write_mask_ome_tiff"),
    "polygons (in files, beside)": ("ntrm.pipeline.slide_files", "write_geojson"),
    "report (in files)": ("ntrm.pipeline.outputs", "write_slide_report"),
}
"""Where the stages are called from."""
NESTED = ("network", *(name for name in STAGES if name.endswith(")")))
"""Those that run within another stage or beside it."""


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock and of processors."""

    clock: float = 0.0
    processor: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.clock + other.clock, self.processor + other.processor)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.clock - other.clock, self.processor - other.processor)


@contextmanager
def costing(note: Callable[[Cost], None], processor: Callable[[], float]) -> Iterator[None]:
    """Tell ``note`` what the block cost."""
    begun = Cost(time.perf_counter(), processor())
    try:
        yield
    finally:
        note(Cost(time.perf_counter(), processor()) - begun)


def with_children() -> float:
    """Seconds of processors that this process and its ended children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class StageWatch:
    """Times stages where they are called; what a call costs is for ``_adding`` to keep."""

    places: Mapping[str, tuple[str, str]]
    """Module and name that each stage is called by."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time every stage as long as this lasts."""
        with ExitStack() as stack:
            for name, (module, path) in self.places.items():
                *owners, attribute = path.split(".")
                owner = importlib.import_module(module)
                for part in owners:
                    owner = getattr(owner, part)
                stack.enter_context(mock.patch.object(owner, attribute, self._timed(name, getattr(owner, attribute))))
            yield

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **more: Any) -> Any:
            with self._adding(name):
                found = function(*arguments, **more)
            return self._drawn(name, found) if isinstance(found, Iterator) else found

        return timed

    def _drawn(self, name: str, values: Iterator[Any]) -> Iterator[Any]:
        """A generator's time is that of its steps."""
        while True:
            with self._adding(name):
                value = next(values, self)
            if value is self:
                return
            yield value

    @contextmanager
    def _adding(self, name: str) -> Iterator[None]:
        raise NotImplementedError
        yield


class Clock(StageWatch):
    """What each stage costs."""

    places = STAGES

    def __init__(self) -> None:
        self.costs = dict.fromkeys(STAGES, Cost())

    @contextmanager
    def _adding(self, name: str) -> Iterator[None]:
        def note(cost: Cost) -> None:
            self.costs[name] += cost

        with costing(note, time.thread_time):
            yield

    def stages(self, whole: Cost) -> dict[str, Cost]:
        """Stages that add up to the whole by the clock, and those beside."""
        found = dict(self.costs)
        stream = found.pop("stream")
        found["blend and wait"] = stream - found["network"]
        listed = (cost for name, cost in self.costs.items() if name not in NESTED)
        found["rest"] = Cost((whole - sum(listed, Cost())).clock)
        return found


@contextmanager
def more_network(arch: str | None, classes: int, device: str) -> Iterator[None]:
    """Let another network see whatever predictors see."""
    if arch is None:
        yield
        return
    plain, other = Predictor.probabilities, Predictor(create(arch, classes), device)

    def both(self: Predictor, pixels: Any, **more: Any) -> Segmentation:
        plain(other, pixels, **more)
        return plain(self, pixels, **more)

    with mock.patch.object(Predictor, "probabilities", both):
        yield


def tiles_of(path: Path, model_mpp: float, options: Options, window: int) -> np.ndarray:
    """(N, window, window, 3) the windows that the slide needs."""
    with closing(open_isolated(path)) as reader:
        grid = SlideGrid(reader, model_mpp, None)
        windows = inspect_slide(grid, options).windows(grid, options, window)
        return np.stack([read_tile(grid, each) for each in windows])


def bare(predictor: Predictor, tiles: np.ndarray) -> Cost:
    """The network alone."""
    costs: list[Cost] = []
    with costing(costs.append, time.process_time):
        for first in range(0, len(tiles), predictor.batch):
            probabilities = predictor.probabilities(tiles[first : first + predictor.batch]).final
        # Reading one value waits for the device.
        float(probabilities[0, 0, 0, 0])
    return costs[0]


def whole(segmenter: Segmenter, slide: Path) -> tuple[Cost, dict[str, Cost]]:
    """One slide with the network loaded, and its stages."""
    clock, costs = Clock(), list[Cost]()
    segmenter.claim()
    with clock.watching(), costing(costs.append, with_children):
        found = segmenter.segment(SlideInput(slide, "slide"), "slide")
        segmenter.tabulate()
    if found.status != "done":
        raise SystemExit(f"the slide was not segmented: {found.status} {found.reason}")
    return costs[0], clock.stages(costs[0])


def one_of(slides: int, slide: Path, out: Path, network: SegmentationModel, device: str, batch: int) -> Cost:
    """A slide's share of several in a row, the network loaded."""
    copies = [out.with_name(f"{out.name}-{number}{slide.suffix}") for number in range(slides)]
    for copy in copies:
        shutil.copyfile(slide, copy)
    costs: list[Cost] = []
    with costing(costs.append, with_children):
        found = segment_slides(copies, out=out, model=network, device=device, batch=batch)
    if found.exit_code:
        raise SystemExit(f"slides were not segmented: {found.failed}")
    return Cost(costs[0].clock / slides, costs[0].processor / slides)


def command(slide: Path, out: Path, model: str, device: str, batch: int) -> Cost:
    """The command."""
    words = [sys.executable, "-m", "ntrm", "segment", str(slide), "--out", str(out), "--model", model, "--progress"]
    costs: list[Cost] = []
    with costing(costs.append, with_children):
        subprocess.run([*words, "none", "--device", device, "--batch", str(batch)], check=True, capture_output=True)
    return costs[0]


def study(
    slide: Path, model: str, folder: Path, *, repeats: int, batch: int, device: str, slides: int = 3,
    more: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """All repeats; a first batch, with which memory is claimed, is not counted."""
    subject = open_subject(model)
    more = network_named(more) if more else None  # figures name the network, not the default of a version
    with more_network(more, subject.config.classes, device):
        return _study(subject, slide, model, folder, repeats, batch, device, slides, more)


def _study(
    subject: LoadedModel, slide: Path, model: str, folder: Path, repeats: int, batch: int, device: str, slides: int,
    more: str | None,
) -> dict[str, Any]:  # fmt: skip
    options = Options()
    predictor = Predictor(subject.network, device, batch=batch)
    tiles = tiles_of(slide, float(subject.config.mpp or 0), options, subject.config.window)
    bare(predictor, tiles[:batch])
    rounds = []
    for number in range(repeats):
        with closing(ReaderPool(1)) as readers:
            out = folder / f"whole{number}"
            segmenter = Segmenter(model, out, options, device=device, batch=batch, open_slide=readers.open)
            before = bare(predictor, tiles)
            took, stages = whole(segmenter, slide)
        after = bare(predictor, tiles)
        shared = one_of(slides, slide, folder / f"several{number}", subject.network, device, batch)
        process = {} if more else {"command": command(slide, folder / f"command{number}", model, device, batch)}
        network = Cost((before.clock + after.clock) / 2, (before.processor + after.processor) / 2)
        costs = {"network alone": network, "whole": took, f"one of {slides}": shared, **process, **stages}
        rounds.append({name: asdict(cost) for name, cost in costs.items()})
    known = {"slide": _about(slide), "windows": len(tiles), "batch": batch, "device": device, "more": more}
    return {**known, "rounds": rounds}


def _about(slide: Path) -> str:
    with closing(open_isolated(slide)) as reader:
        left, top, width, height = reader.info.area
    return f"{height - top} × {width - left} pixels"


def table(found: dict[str, Any]) -> str:
    """Medians in Markdown; every share is of the bare network in the same repeat."""
    rounds = found["rounds"]
    head = f"{found['slide']}, {found['windows']} windows, batch {found['batch']}, {found['device']}"
    head += f", and {found['more']}" if found.get("more") else ""
    lines = [f"{head}, {len(rounds)} repeats", ""]
    lines += ["| | s | over the bare network | processor s | over the bare network |", "|---|---|---|---|---|"]
    for name in rounds[0]:
        cells = []
        for kind in ("clock", "processor"):
            seconds = statistics.median(each[name][kind] for each in rounds)
            share = statistics.median(each[name][kind] / each["network alone"][kind] for each in rounds)
            cells += [f"{seconds:.2f}", f"{share:.3f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def drawn(folder: Path, sections: int, seed: int) -> Path:
    """The largest picture of a drawn dataset."""
    write_phantom(folder, PhantomOptions(sections, seed))
    return max((folder / "10x" / "Images").iterdir(), key=lambda path: path.stat().st_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slide", type=Path, default=None)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--sections", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--slides", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--more", metavar="ARCH", help="a further network, for its cost")
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        slide = asked.slide or drawn(Path(place) / "skin", asked.sections, asked.seed)
        found = study(
            slide,
            asked.model,
            Path(place),
            repeats=asked.repeats,
            batch=asked.batch,
            device=asked.device,
            slides=asked.slides,
            more=asked.more,
        )
    print(table(found))
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
