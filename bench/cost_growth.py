"""How cost grows: processor seconds and memory against pixels, regions, slides and workers, with the exponent of each.

    OMP_NUM_THREADS=1 python bench/cost_growth.py [--only pixels,regions,slides,workers] [--out FILE]

- *pixels*: one slide, the same drawn sections again and again, larger and larger.
- *regions*: a finished mask of one size, with ever finer patches: regions, polygons and tables.
- *slides*: a folder of slides of one size, in one process.
- *workers*: the same number of slides for each of some processes, which begin together: all processor seconds.

The network costs nothing: its answers to some windows are computed beforehand, as in ``bench/segment_stages.py``. Each
measurement is a process of its own, so that the peak of its memory is its own, above what it takes with the network
(or the mask) loaded; it holds what a first small slide (or mask) needs, imports among it, which is not in its time.
What the allocator kept of earlier work hides some of it, so that small figures are not exact. The exponent is the slope
of a line through the logarithms: 1 means that twice as much costs twice as much.
``--sides`` asks for larger slides; on a machine with many cores ``--workers 1,2,4,8`` asks for more of these; for a
real network on a GPU there is ``bench/many_workers.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

SIZES = {
    "pixels": (512, 1024, 2048, 4096),
    "regions": (8, 4, 2, 1),
    "slides": (1, 2, 4, 8),
    "workers": (1, 2),
}
"""Side of the slide; how many times the patches of the mask are enlarged; slides; processes."""
SIDE = 384
"""Of each of many slides, in pixels."""
EACH = 2
"""Slides of a worker."""
MASK = 1536
"""Side of the mask with more and more regions."""
GRAIN = 4.0
"""Of its finest patches, in pixels."""


class Measured(NamedTuple):
    """What one process found."""

    amount: float
    seconds: float
    mib: float


def exponent(amounts: list[float], costs: list[float]) -> float:
    """Slope of the straight line through the logarithms.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    return float(np.polyfit(np.log(amounts), np.log(costs), 1)[0])


def peak_kib() -> int:
    """The most memory that this process has held."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def forget_peak() -> int:
    """From now on the peak is a new one; returns the KiB held now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def of_slides(folder: Path, slides: list[tuple[Path, int]], picture: np.ndarray) -> tuple[float, float]:
    """Processor seconds and MiB of segmenting slides of these sides in a row, with a network that costs nothing."""
    import torch

    from bench import segment_speed, segment_stages
    from ntrm.evaluation.loaded_model import open_subject
    from ntrm.inference.predictor import Predictor
    from ntrm.pipeline.batch import segment_slides
    from ntrm.pipeline.options import Options

    torch.set_num_threads(1)
    for path, side in slides:
        segment_stages.write_slide(path, picture, side)
    network = open_subject("bundled").network.describe(mpp=segment_stages.MPP)
    answers = segment_stages.replayed(Predictor(network, "cpu", batch=segment_stages.BATCH), picture)
    options: dict[str, Any] = {"device": "cpu", "batch": segment_stages.BATCH}
    with mock.patch.object(Predictor, "probabilities", answers):
        # Memory counts from here: what a first slide leaves behind would hide what the others take.
        before = forget_peak()
        # What is imported and set up once for all is no time of a slide.
        warm = folder / "warm.tif"
        segment_stages.write_slide(warm, picture, SIDE)
        segment_slides(warm, out=folder / "warm", model=network, options=Options(tissue_mask=False), **options)
        begun = segment_speed.with_children()
        found = segment_slides(
            slides[0][0].parent, out=folder / "out", model=network, options=Options(tissue_mask=False), **options
        )
    if found.failed:
        raise SystemExit(found.failed[0].reason)
    return segment_speed.with_children() - begun, (peak_kib() - before) / 1024


def of_regions(folder: Path, enlarged: int) -> Measured:
    """What a finished mask of patches costs; the amount is its regions."""
    from bench import region_speed

    patches = region_speed.confetti(MASK // enlarged, grain=GRAIN)
    stages = region_speed.stages_of(patches.repeat(enlarged, axis=0).repeat(enlarged, axis=1), folder)
    done: dict[str, Any] = {"measurements": []}
    before = forget_peak()
    # What is imported and set up once is no time of a mask.
    region_speed.measured(region_speed.confetti(SIDE // 4, GRAIN), folder, rounds=1)
    begun = time.process_time()
    for name in ("regions", "polygons", "tables"):
        done[name] = stages[name](done)
    seconds = time.process_time() - begun
    return Measured(len(done["regions"].table), seconds, (peak_kib() - before) / 1024)


def measure(kind: str, size: int, picture: Path, folder: Path) -> Measured:
    """One measurement, in this process."""
    if kind == "regions":
        return of_regions(folder, size)
    many = 1 if kind == "pixels" else size if kind == "slides" else EACH
    slides = folder / "slides"
    slides.mkdir()
    sides = [(slides / f"{number}.tif", size if kind == "pixels" else SIDE) for number in range(many)]
    seconds, mib = of_slides(folder, sides, np.load(picture))
    return Measured(size * size / 1e6 if kind == "pixels" else size, seconds, mib)


def in_child(kind: str, size: int, picture: Path) -> subprocess.Popen[str]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--child", json.dumps([kind, size, str(picture)])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def answer_of(child: subprocess.Popen[str]) -> Measured:
    """What the process found."""
    said, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"a measurement ended with {child.returncode}")
    return Measured(*json.loads(said.splitlines()[-1]))


def grown(kind: str, sizes: tuple[int, ...], picture: Path) -> list[Measured]:
    """The measurements of one kind; of workers the processor seconds of all and the memory of all."""
    if kind != "workers":
        return [answer_of(in_child(kind, size, picture)) for size in sizes]
    found = []
    for workers in sizes:
        answers = [answer_of(child) for child in [in_child("workers", workers, picture) for _ in range(workers)]]
        found.append(Measured(workers, sum(each.seconds for each in answers), sum(each.mib for each in answers)))
    return found


def table(found: dict[str, list[Measured]]) -> str:
    """In Markdown."""
    lines = [
        "| against | amounts | processor s | exponent | MiB above the network | exponent |",
        "|---|---|---|---|---|---|",
    ]
    for kind, each in found.items():
        amounts, seconds, mib = ([*column] for column in zip(*each, strict=True))
        unit = "megapixels" if kind == "pixels" else kind
        cells = [
            f"{unit}",
            ", ".join(f"{amount:,.3g}" if amount < 1000 else f"{amount:,.0f}" for amount in amounts),
            ", ".join(f"{value:.2f}" for value in seconds),
            f"{exponent(amounts, seconds):.2f}",
            ", ".join(f"{value:.0f}" for value in mib),
            f"{exponent(amounts, [max(value, 1.0) for value in mib]):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SIZES))
    parser.add_argument("--sides", default=",".join(map(str, SIZES["pixels"])), help="of slides, in pixels")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if asked.child is not None:
            kind, size, path = json.loads(asked.child)
            print(json.dumps(measure(kind, size, Path(path), folder)))
            return
        from bench import segment_speed
        from ntrm.data.image_files import read_image

        picture = folder / "picture.npy"
        np.save(picture, read_image(segment_speed.drawn(folder / "skin", 3, asked.seed)))
        given = {"pixels": asked.sides, "workers": asked.workers}
        sizes = SIZES | {kind: tuple(int(each) for each in words.split(",")) for kind, words in given.items()}
        found = {kind: grown(kind, sizes[kind], picture) for kind in asked.only.split(",")}
    print(table(found))
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
