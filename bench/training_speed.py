"""How fast a training runs as users run it: windows per second, share of time the GPU is busy, waiting for data.

    python bench/training_speed.py --data phantom --resolution 10x --out speed.json

Each line is one call of ``ntrm.training.train.train`` with the recipe ``fast`` and another batch, network or way of
reading windows; the first round, in which kernels are chosen and compiled, is left out. ``busy`` is the driver's own
figure (the share of time in which at least one kernel runs), sampled ten times a second by nvidia-smi over the same
rounds, validations and checkpoints included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.models.names import network_named
from ntrm.training.log import read_log
from ntrm.training.recipe import load_recipe
from ntrm.training.train import train

ROUNDS = 4


class Utilisation:
    """Samples of the GPU's utilisation, each with the time it was taken."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "utilisation.txt"

    def __enter__(self) -> Utilisation:
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
        self.begun = time.time()
        self.stream = self.path.open("w")
        self.process = subprocess.Popen(query, stdout=self.stream) if torch.cuda.is_available() else None
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        self.stream.close()
        self.ended = time.time()

    def between(self, start: float, stop: float) -> float | None:
        """Mean between two times; the samples are evenly spaced."""
        values = [float(line) for line in self.path.read_text().split()]
        step = (self.ended - self.begun) / max(1, len(values))
        chosen = [value for place, value in enumerate(values) if start <= self.begun + place * step <= stop]
        return statistics.fmean(chosen) if chosen else None


def measure(args: argparse.Namespace, arch: str, batch: int, changes: dict[str, Any]) -> dict[str, Any]:
    steps = max(ROUNDS * 10, args.windows // batch // ROUNDS * ROUNDS)
    recipe = load_recipe("fast", {"batch": batch, "steps": steps, "validate_every": steps // ROUNDS, **changes})
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        with Utilisation(Path(folder)) as samples:
            result = train(
                args.data,
                out,
                arch=arch,
                recipe=recipe,
                resolution=args.resolution,
                device=args.device,
                pictures=False,
                reference=False,
                say=lambda _text: times.append(time.time()),
            )
        rows = read_log(out / "log.csv")[1:]
        busy = samples.between(times[-ROUNDS], times[-1])
    rate = statistics.median(row["windows_per_second"] or 0 for row in rows)
    line = {
        "arch": arch,
        "batch": batch,
        **changes,
        "steps": steps,
        "windows_per_s": rate,
        "ms_per_step": batch / rate * 1e3,
        "busy": busy,
        "waiting": statistics.median(row["waiting"] or 0 for row in rows),
        "seconds": result.seconds,
    }
    print(json.dumps(line), flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--resolution")
    parser.add_argument("--archs", default="ntrm-paper,ntrm-control")
    parser.add_argument("--batches", default="4,32,64")
    parser.add_argument("--windows", type=int, default=9600, help="windows of each training")
    parser.add_argument("--changes", default="[{}]", help='a training for each: [{}, {"compile": true}]')
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"
    report: dict[str, Any] = {"machine": machine, "torch": torch.__version__, "lines": []}
    for changes in json.loads(args.changes):
        for batch in map(int, args.batches.split(",")):
            for arch in map(network_named, args.archs.split(",")):
                report["lines"].append(measure(args, arch, batch, changes))
                if args.out:
                    args.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
