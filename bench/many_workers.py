"""Several processes that segment slides beside each other on one device: what each adds, and how busy the device is.

    python bench/many_workers.py --workers 1,2,4,8,12 --device cuda --batch 128 [--mps] [--out FILE]

Each worker does what ``ntrm segment --shard I/W`` does once its network is loaded: the same call, one folder of results
for all. Before it is timed it segments one slide, so that the device's kernels are there. Then all begin at once, and a
line's time ends with the last of them. Every worker gets as many slides as any other, and the same pictures: ``--each``
sheets of drawn sections of ``--side`` pixels, as uncompressed tiled TIFF at the model's µm/px, linked under other names
and, since they have just been written, read from memory rather than from a disk.

``e`` is what is left of a worker's rate when others work beside it: that of this line over that of the first, which
should be one worker. ``busy`` is the driver's own figure, the share of time in which at least one kernel runs, sampled
by nvidia-smi; its memory is the peak of the whole card. ``cores`` is processor time over time, reading children
included. A run longer than ``--seconds`` ends with the lines that it has.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import numpy as np
import tifffile

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.data.image_files import read_image
from ntrm.evaluation.loaded_model import open_subject
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.pipeline.batch import Segmented, segment_slides

GLASS = 245
GAP = 60
"""Pixels of glass around each section."""
MPS = "nvidia-cuda-mps-control"
MPS_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/nvidia/bin"))
PROBE = "import torch; x = torch.ones(64, 64, device='cuda'); print(float((x @ x).sum()))"


class LateError(Exception):
    """The time is up."""


# The slides


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


def drawn_sections(folder: Path, seed: int) -> list[np.ndarray]:
    """Four of different sizes."""
    write_phantom(folder, PhantomOptions(4, seed), jobs=min(4, len(os.sched_getaffinity(0))))
    return [tifffile.imread(path) for path in sorted((folder / "10x" / "Images").iterdir())]


def mirrored(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture as large as that: the small one and its mirror images again and again."""
    wide = np.concatenate([picture, picture[:, ::-1]], axis=1)
    whole = np.concatenate([wide, wide[::-1]])
    times = [-(-size // side) for size, side in zip((height, width), whole.shape[:2], strict=True)]
    return np.tile(whole, (*times, 1))[:height, :width]


def write_slides(
    folder: Path, sections: Sequence[np.ndarray], side: int, slides: int, mpp: float, *, mirror: bool = False
) -> list[Path]:
    """Different slides of about the same work: sections side by side, or with ``mirror`` the first again and again."""
    paths = [folder / f"sheet{number:02d}.tif" for number in range(slides)]
    for number, path in enumerate(paths):
        moved = np.roll(sections[0], 97 * number, axis=1) if mirror else sections[0]
        tifffile.imwrite(
            path,
            mirrored(moved, side, side) if mirror else sheet(sections, side, number),
            tile=(256, 256),
            photometric="rgb",
            resolution=(1e4 / mpp, 1e4 / mpp),
            resolutionunit="CENTIMETER",
        )
    return paths


def linked(sheets: Sequence[Path], folder: Path, workers: int) -> Path:
    """A folder in which shard I of ``workers`` holds every sheet once."""
    folder.mkdir()
    for number, sheet_path in enumerate(sheets):
        for worker in range(workers):
            # Shards take turns in the order of names.
            os.link(sheet_path, folder / f"s{number:03d}w{worker:03d}.tif")
    return folder


# The workers


def work(pipe: Connection, model: str, device: str, batch: int, warm: Path, folder: Path) -> None:
    """A process: loads the network, segments one slide, then a shard for each order until the pipe closes."""
    network = open_subject(model).network
    segment_slides(warm, out=folder, model=network, device=device, batch=batch)
    # Whoever gave the orders has enough of them.
    with suppress(EOFError, BrokenPipeError):
        pipe.send(os.getpid())
        while True:
            slides, out, shard = pipe.recv()
            before = processor_s()
            found = segment_slides(slides, out=out, model=network, device=device, batch=batch, shard=shard)
            pipe.send(told_of(found, processor_s() - before))


def told_of(found: Segmented, processor: float) -> dict[str, Any]:
    """What a worker says of its shard."""
    return {
        "ended": time.time(),
        "processor": processor,
        "tissue_mm2": sum(float(each.row.get("tissue_area_mm2") or 0) for each in found.slides),
        "done": sum(each.status == "done" for each in found.slides),
        "failed": [each.reason for each in found.failed],
    }


def processor_s() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Crew:
    """Worker processes; more are started when more are wanted."""

    def __init__(self, folder: Path, settings: tuple[str, str, int], warm: Path, until: float) -> None:
        self._folder, self._settings, self._warm, self._until = folder, settings, warm, until
        self._context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []

    def grow(self, workers: int) -> None:
        """Have so many, all of them warm."""
        new = range(len(self._pipes), workers)
        for number in new:
            pipe, theirs = self._context.Pipe()
            place = self._folder / f"warm{number}"
            process = self._context.Process(
                target=work, args=(theirs, *self._settings, self._warm, place), daemon=False
            )
            process.start()
            theirs.close()
            self._pipes.append(pipe)
            self._processes.append(process)
        self._answers(self._pipes[new.start : workers])

    def run(self, workers: int, slides: Path, out: Path) -> tuple[float, list[dict[str, Any]]]:
        """(begin, what each worker tells) of one line."""
        begun = time.time()
        for number, pipe in enumerate(self._pipes[:workers]):
            pipe.send((slides, out, f"{number + 1}/{workers}"))
        return begun, self._answers(self._pipes[:workers])

    def _answers(self, pipes: Sequence[Connection]) -> list[Any]:
        found, silent = dict[int, Any](), {pipe.fileno(): pipe for pipe in pipes}
        while silent:
            ready = wait([*silent], timeout=max(0.0, self._until - time.time()))
            if not ready:
                raise LateError
            for number in ready:
                pipe = silent.pop(cast("int", number))
                try:
                    found[id(pipe)] = pipe.recv()
                except EOFError:
                    raise SystemExit("a worker died; what it said stands above") from None
        return [found[id(pipe)] for pipe in pipes]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


# The device


class Card:
    """Samples of the GPU's utilisation and memory; nothing where there is no GPU."""

    def __init__(self, path: Path, device: str) -> None:
        self._path, self._on = path, device.startswith("cuda")

    def __enter__(self) -> Card:
        query = [
            "nvidia-smi",
            "--query-gpu=utilization.gpu,memory.used",
            "--format=csv,noheader,nounits",
            "-lms",
            "100",
        ]
        self._stream = self._path.open("w")
        self._begun = time.time()
        self._process = subprocess.Popen(query, stdout=self._stream) if self._on else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._stream.close()
        self._ended = time.time()

    def between(self, start: float, stop: float) -> tuple[float | None, float | None]:
        """(mean utilisation in %, peak memory in MiB); the samples are evenly spaced."""
        rows = [line.split(",") for line in self._path.read_text().splitlines() if line.count(",") == 1]
        step = (self._ended - self._begun) / max(1, len(rows))
        chosen = [row for place, row in enumerate(rows) if start <= self._begun + place * step <= stop]
        if not chosen:
            return None, None
        return statistics.fmean(float(row[0]) for row in chosen), max(float(row[1]) for row in chosen)


@contextmanager
def sharing(folder: Path) -> Iterator[str]:
    """NVIDIA's daemon that lets kernels of several processes run at once; gives ``on``, or why it is off."""
    program = shutil.which(MPS, path=MPS_PLACES)
    if program is None:
        yield f"off: no {MPS}"
        return
    places = {f"CUDA_MPS_{name}_DIRECTORY": str(folder / f"mps-{name.lower()}") for name in ("PIPE", "LOG")}
    for place in places.values():
        Path(place).mkdir()
    os.environ.update(places)
    # Not captured: the daemon would hold the pipe open.
    subprocess.run([program, "-d"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
    try:
        if _a_kernel_runs():
            yield "on"
            return
    finally:
        subprocess.run([program], input=b"quit\n", check=False, stdout=subprocess.DEVNULL, timeout=60)
        for name in places:
            os.environ.pop(name, None)
    yield "off: a first kernel failed with it"


def _a_kernel_runs() -> bool:
    try:
        return (
            subprocess.run([sys.executable, "-c", PROBE], check=False, capture_output=True, timeout=60).returncode == 0
        )
    except subprocess.TimeoutExpired:
        return False


# The study


def study(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    until = time.time() + asked.seconds
    mpp = float(open_subject(asked.model).config.mpp or 0)
    given = None if asked.picture is None else [read_image(asked.picture)]
    sections = given or drawn_sections(folder / "skin", asked.seed)
    sheets = write_slides(folder, sections, asked.side, asked.each, mpp, mirror=given is not None)
    report = {
        "device": asked.device,
        "cores": len(os.sched_getaffinity(0)),
        "threads": asked.threads,
        "batch": asked.batch,
        "side": asked.side,
        "each": asked.each,
        "slide_mm2": (asked.side * mpp / 1e3) ** 2,
        "mps": "not asked for",
        "lines": [],
    }
    # Before the first of them imports its libraries, which read it then.
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    with ExitStack() as stack:
        if asked.mps:
            report["mps"] = stack.enter_context(sharing(folder))
        crew = Crew(folder, (asked.model, asked.device, asked.batch), sheets[0], until)
        stack.callback(crew.close)
        try:
            for workers in asked.workers:
                crew.grow(workers)
                report["lines"].append(line(crew, workers, sheets, folder, report))
                print(json.dumps(report["lines"][-1]), flush=True)
                save(asked.out, report)
        except LateError:
            report["stopped"] = f"{asked.seconds:.0f} s were over"
            save(asked.out, report)
    return report


def line(crew: Crew, workers: int, sheets: Sequence[Path], folder: Path, report: dict[str, Any]) -> dict[str, Any]:
    """What so many workers do together."""
    slides = linked(sheets, folder / f"slides{workers}", workers)
    with Card(folder / f"card{workers}.txt", report["device"]) as card:
        begun, told = crew.run(workers, slides, folder / f"results{workers}")
    failed = [reason for each in told for reason in each["failed"]]
    done = sum(each["done"] for each in told)
    if failed or done != workers * len(sheets):
        raise SystemExit(f"{done} of {workers * len(sheets)} slides were segmented: {failed[:3]}")
    ended = max(each["ended"] for each in told)
    seconds = ended - begun
    busy, memory = card.between(begun, ended)
    first = report["lines"][0] if report["lines"] else None
    alone = first["slides_per_h"] / first["workers"] if first is not None else done / seconds * 3600 / workers
    return {
        "workers": workers,
        "slides": done,
        "seconds": seconds,
        "slides_per_h": done / seconds * 3600,
        "s_per_slide": seconds * workers / done,
        "mm2_per_s": done * report["slide_mm2"] / seconds,
        "tissue_mm2_per_s": sum(each["tissue_mm2"] for each in told) / seconds,
        "e": done / seconds * 3600 / workers / alone,
        "busy_percent": busy,
        "gpu_mib": memory,
        "cores_busy": sum(each["processor"] for each in told) / seconds,
        # How much of the line the quickest of them was at work: what waiting for the last one costs.
        "first_to_end": (min(each["ended"] for each in told) - begun) / seconds,
    }


def save(path: Path | None, report: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(report, indent=1))


def table(report: dict[str, Any]) -> str:
    side = f"{report['side']:,} × {report['side']:,} pixels ({report['slide_mm2']:.0f} mm²)"
    head = f"{report['each']} slides of {side} for each worker, batch {report['batch']}, {report['device']}"
    rows = [f"{head}, {report['cores']} cores, {report['threads']} threads each, MPS {report['mps']}", ""]
    rows += ["| workers | slides an hour | s a slide and worker | mm² a second | e | GPU busy | GPU MiB | cores busy |"]
    rows += ["|---|---|---|---|---|---|---|---|"]
    for each in report["lines"]:
        busy = "–" if each["busy_percent"] is None else f"{each['busy_percent']:.0f} %"
        memory = "–" if each["gpu_mib"] is None else f"{each['gpu_mib']:,.0f}"
        rows.append(
            f"| {each['workers']} | {each['slides_per_h']:,.0f} | {each['s_per_slide']:.2f} | {each['mm2_per_s']:.0f}"
            f" | {each['e']:.2f} | {busy} | {memory} | {each['cores_busy']:.1f} |"
        )
    return "\n".join([*rows, *([f"stopped: {report['stopped']}"] if "stopped" in report else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=lambda text: sorted({int(each) for each in text.split(",")}), default=[1, 2])
    parser.add_argument("--each", type=int, default=4, help="slides of every worker")
    parser.add_argument("--side", type=int, default=2560, help="pixels of a slide at the model's µm/px")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="OMP_NUM_THREADS of each worker")
    parser.add_argument("--mps", action="store_true", help="start NVIDIA's daemon for sharing a card, and end it")
    parser.add_argument("--seconds", type=float, default=170, help="no longer than this")
    parser.add_argument("--picture", type=Path, default=None, help="a picture to make slides of, not drawn sections")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(table(study(asked, Path(place))))


if __name__ == "__main__":
    main()
