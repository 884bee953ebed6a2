"""Seconds and memory of `ntrm segment`, beside the bare network on as many windows.

    python bench/slide_speed.py [--sizes 1810x1625,12288x12288] [--device cuda --batch 128] [--out FILE]
    python bench/slide_speed.py --sizes 20000x20000,20000x100000 --every 40 --width 0.125

Slides are drawn sections side by side on glass, at the model's µm/px, in one of ``--every`` places; they are written
tile by tile, so that their size is no limit. Each is segmented ``--repeats`` times in a process of its own, with the
network loaded and warm, and then ``--slides`` copies of it in one run, where the files of one are written while the
network works on the next. *Before*, *windows* and *after* are what comes before the first window, while windows are
predicted, and after the last row. The *bare network* sees random windows in batches of the same sizes. Processor
seconds are those of the process and its children. Memory is sampled from /proc: the most that no file backs above what
the process takes with the network loaded, and the reading child's. With ``--width`` the network is a new one of that
width, for memory alone: its mask is confetti. Times are medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

MPP, TILE, GAP, GLASS = 6.7, 256, 60, 245


def section(seed: int) -> np.ndarray:
    """A drawn section on glass, in whole tiles."""
    from ntrm.phantom.layout import layout
    from ntrm.phantom.render import render

    picture = np.asarray(render(layout(seed, MPP, "BCC").mask, MPP, seed))
    height, width = (-(-(side + 2 * GAP) // TILE) * TILE for side in picture.shape[:2])
    canvas = np.full((height, width, 3), GLASS, dtype=np.uint8)
    canvas[GAP : GAP + picture.shape[0], GAP : GAP + picture.shape[1]] = picture
    return canvas


def write_slide(path: Path, height: int, width: int, picture: np.ndarray, every: int) -> None:
    """The section in one of ``every`` places, glass in the others; never in memory as a whole."""
    import tifffile

    rows, columns = (side // TILE for side in picture.shape[:2])
    parts = picture.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2)
    drawn = [[zlib.compress(part.tobytes(), 1) for part in row] for row in parts]
    glass = zlib.compress(bytes([GLASS]) * (3 * TILE**2), 1)

    def tiles() -> Iterator[bytes]:
        for y in range(-(-height // TILE)):
            for x in range(-(-width // TILE)):
                there = (y // rows * 7 + x // columns) % every == 0
                yield drawn[y % rows][x % columns] if there else glass

    centimetre = 1e4 / MPP
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        writer.write(
            tiles(),
            shape=(height, width, 3),
            dtype=np.uint8,
            tile=(TILE, TILE),
            photometric="rgb",
            compression="zlib",
            resolution=(centimetre, centimetre),
            resolutionunit="CENTIMETER",
            metadata=None,
        )


class Stages:
    """A progress bar that nobody sees: when the windows of a slide began and ended."""

    def __init__(self) -> None:
        self.begun = self.ended = 0.0

    def track(self, items: Iterable[Any], total: int, label: str) -> Iterator[Any]:
        if label == "slides":
            yield from items
            return
        self.begun = time.perf_counter()
        yield from items
        self.ended = time.perf_counter()


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Bench:
    """What runs in the process that is watched."""

    def __init__(self, model: str, width: float | None, device: str, batch: int) -> None:
        import ntrm
        from ntrm.core.labels import SKIN
        from ntrm.models.predictor import Predictor
        from ntrm.models.registry import create

        network = ntrm.load(model) if width is None else create("ntrm", SKIN, width=width).describe(mpp=MPP, name="new")
        self.network, self.device, self.batch = network, device, batch
        self.predictor, self.kind = Predictor(network, device, batch=batch), Predictor

    def segment(self, slides: list[Path], out: Path) -> dict[str, Any]:
        """One run; times in seconds, and how many windows each batch had."""
        from ntrm import segment_slides

        stages, batches, plain = Stages(), list[tuple[int, ...]](), self.kind.probabilities

        def counted(predictor: Any, pixels: Any, **more: Any) -> Any:
            batches.append(tuple(pixels.shape))
            return plain(predictor, pixels, **more)

        used, begun = processor_seconds(), time.perf_counter()
        with mock.patch.object(self.kind, "probabilities", counted):
            done = segment_slides(
                slides, out=out, model=self.network, device=self.device, batch=self.batch, progress=stages
            )
        ended = time.perf_counter()
        if done.exit_code or not batches:
            raise SystemExit(f"slides were not segmented: {done.failed or 'no tissue'}")
        parts = {"before": stages.begun - begun, "windows": stages.ended - stages.begun, "after": ended - stages.ended}
        regions = len((out / "regions.csv").read_text(encoding="utf-8").splitlines()) - 1
        found = {"whole": ended - begun, **parts, "processor": processor_seconds() - used}
        return {**found, "bare network": self.bare(batches), "regions": regions, "windows seen": _windows(batches)}

    def bare(self, batches: list[tuple[int, ...]]) -> float:
        """The network alone, on random windows."""
        random = np.random.default_rng(0)
        pixels = {shape: random.integers(0, 256, shape, dtype=np.uint8) for shape in set(batches)}
        begun = time.perf_counter()
        for shape in batches:
            last = self.predictor.probabilities(pixels[shape]).final
        # Reading one value waits for the device.
        float(last[0, 0, 0, 0])
        return time.perf_counter() - begun


def _windows(batches: list[tuple[int, ...]]) -> int:
    return sum(shape[0] for shape in batches)


def child(asked: argparse.Namespace) -> None:
    """Load, warm up, tell; then one run for each line: names of slides, and last the folder for results."""
    bench = Bench(asked.model, asked.width, asked.device, asked.batch)
    for number, line in enumerate(sys.stdin):
        *slides, out = map(Path, json.loads(line))
        found = bench.segment(slides, out)
        print(json.dumps(found if number else "warm"), flush=True)


def memory(pid: int) -> dict[str, float]:
    """VmRSS and RssAnon in MiB; nothing of a process that has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        table = dict(line.split(":", 1) for line in lines if ":" in line)
        return {name: int(table[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon") if name in table}
    return {}


class Watched:
    """The process that segments, and the most memory that it and its children take in a run."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words, "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, slides: list[Path], out: Path) -> Any:
        """What the process tells of a run, with memory."""
        if self.process.stdin is None or self.process.stdout is None:
            raise SystemExit("the process has no pipes")
        most: dict[str, float] = defaultdict(float)
        before, over = memory(self.process.pid).get("RssAnon", 0.0), threading.Event()
        watch = threading.Thread(target=self._watch, args=(most, over))
        watch.start()
        self.process.stdin.write(json.dumps([*map(str, slides), str(out)]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        over.set()
        watch.join()
        if not line:
            raise SystemExit("the process ended")
        found = json.loads(line)
        if isinstance(found, dict):
            found |= {"memory MiB": most["own"] - before, "reader MiB": most["child"]}
        return found

    def _watch(self, most: dict[str, float], over: threading.Event) -> None:
        pid = self.process.pid
        while not over.wait(0.02):
            most["own"] = max(most["own"], memory(pid).get("RssAnon", 0.0))
            with suppress(OSError):
                for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
                    most["child"] = max(most["child"], memory(int(each)).get("VmRSS", 0.0))

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


def study(asked: argparse.Namespace, words: list[str], folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """All sizes, one after the other."""
    picture, found = section(asked.seed), dict[str, Any]()
    warm = folder / "warm.tif"
    write_slide(warm, 600, 600, picture, 1)
    for size in asked.sizes.split(","):
        height, width = map(int, size.split("x"))
        slide = folder / "slide.tif"
        write_slide(slide, height, width, picture, asked.every)
        with closing(Watched(words)) as watched:
            watched.run([warm], folder / f"{size}-warm")
            rounds = [watched.run([slide], folder / f"{size}-{number}") for number in range(asked.repeats)]
            middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
            if asked.slides > 1:
                copies = [folder / f"copy-{number}.tif" for number in range(asked.slides)]
                for copy in copies:
                    shutil.copyfile(slide, copy)
                shared = watched.run(copies, folder / f"{size}-copies")["whole"] / asked.slides
                middle[f"one of {asked.slides}"] = shared
        found[size] = {"median": middle, "rounds": rounds}
        cells = ", ".join(f"{name} {value:,.2f}" for name, value in middle.items())
        report(f"{size}: {cells}; over the bare network {middle['whole'] / middle['bare network']:.2f}")
    return found


def options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1810x1625", help="height and width, several with commas")
    parser.add_argument("--every", type=int, default=1, help="a section in one of so many places")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--width", type=float, help="a new network of this width in place of the model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slides", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> None:
    asked = options(sys.argv[1:])
    if asked.child:
        child(asked)
        return
    with tempfile.TemporaryDirectory() as place:
        found = study(asked, sys.argv[1:], Path(place), lambda text: print(text, flush=True))
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
