"""Do relations help? Arms × data × seeds, trained alike, scored section by section, compared with their control.

    python research/relation_study.py --out study --data phantom-0.5,glas --arms control,section --seeds 0,1 --jobs 6

One command, and the same command again goes on: data that are there are not made anew, and runs that are there are not
run anew. Section networks are trained by ``section_networks.training``, all others by the package itself. Jobs go seed
by seed, so that whenever it stops every arm has about as many. Writes ``results-SPLIT.csv`` (a row a run),
``report.md`` and its plots. Scores are of the split ``val`` unless ``--split test`` is asked for, which is to be done
once, at the end.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]


@dataclass(frozen=True)
class Arm:
    """One kind of training."""

    arch: str
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What differs from COMMON."""


COMMON: dict[str, Any] = {
    "steps": 1000,
    "batch": 16,
    "validate_every": 500,
    "weighting": "running",  # of one batch from few sections they are noisy
    "keep": "last",  # nothing is chosen by the split that is scored
    "overlap": 64,
}
"""The recipe ``fast`` with these: the same for all arms, so that they see the very same batches."""

S, P, M = "ntrm-section", "ntrm-paper", "mit-section"
LARGE: dict[str, Any] = {"window": 512, "batch": 4, "overlap": 128}
LARGEST: dict[str, Any] = {"window": 1024, "batch": 1, "overlap": 256}
ARMS: dict[str, Arm] = {
    "unet": Arm("unet-resnet18"),
    "control": Arm("ntrm-control"),
    "paper": Arm(P),
    "trm-soft": Arm(P, {"masks": "soft", "absent": "linked"}),
    # As far as the section, without relations; and a larger field
    "vector": Arm(S, {"nodes": "vector", "graph": "none"}),
    "tokens": Arm(S, {"nodes": "tokens", "graph": "none"}),
    "tokens-graph": Arm(S, {"nodes": "tokens", "graph": "complete"}),
    "control-512": Arm("ntrm-control", {}, LARGE),
    "unet-512": Arm("unet-resnet18", {}, LARGE),
    "control-1024": Arm("ntrm-control", {}, LARGEST),
    "unet-1024": Arm("unet-resnet18", {}, LARGEST),
    # One factor at a time
    "section": Arm(S),
    "window": Arm(S, {"scope": "window"}),
    "nodes-alone": Arm(S, {"graph": "none"}),
    "complete": Arm(S, {"graph": "complete"}),
    "position": Arm(S, {"position": True}),
    "paste": Arm(S, {"readout": "paste"}),
    "d2": Arm(S, {"source": "d2"}),
    "both": Arm(S, {"source": "both"}),
    "straight-through": Arm(S, {"masks": "straight-through"}),
    "detached": Arm(S, {"masks": "detached"}),
    "shift": Arm(S, {"shift": True}),
    "shift-position": Arm(S, {"shift": True, "position": True}),
    "ask-amounts": Arm(S, {"position": True, "looks": False}),
    "ask-dropout": Arm(S, {"position": True, "dropout": 0.5}),
    "amounts": Arm(S, {"shift": True, "position": True, "looks": False}),
    "dropout": Arm(S, {"shift": True, "position": True, "dropout": 0.5}),
    "alone": Arm(S, {"shift": True, "position": True, "dropout": 0.5, "alone": 0.5}),
    "shift-vector": Arm(S, {"nodes": "vector", "graph": "none", "shift": True}),
    "shift-tokens": Arm(S, {"nodes": "tokens", "graph": "none", "shift": True}),
    # How far the coarse head's own errors reach: masks that are right, masks that know nothing
    "true-masks": Arm(S, {"masks": "true"}),
    "random-masks": Arm(S, {"masks": "random"}),
    # How much depends on numbers
    "sharp": Arm(S, {"temperature": 0.5}),
    "blunt": Arm(S, {"temperature": 2.0}),
    "layers-1": Arm(S, {"layers": 1}),
    "layers-4": Arm(S, {"layers": 4}),
    "dim-64": Arm(S, {"dim": 64}),
    "dim-256": Arm(S, {"dim": 256}),
    "heads-8": Arm(S, {"heads": 8}),
    "section-512": Arm(S, {}, LARGE),
    "paper-tau-0.3": Arm(P, {"tau": 0.3}),
    "paper-tau-0.7": Arm(P, {"tau": 0.7}),
    "paper-layers-1": Arm(P, {"layers": 1}),
    "paper-layers-5": Arm(P, {"layers": 5}),
    "paper-dim-64": Arm(P, {"dim": 64}),
    "paper-dim-256": Arm(P, {"dim": 256}),
    "paper-512": Arm(P, {}, LARGE),
    # Another encoder
    "mit": Arm("mit-b0"),
    "mit-trm": Arm("mit-trm"),
    "mit-section": Arm(M),
    "mit-vector": Arm(M, {"nodes": "vector", "graph": "none"}),
}

PHANTOMS = {"phantom-0": 0.0, "phantom-0.5": 0.5, "phantom-1": 1.0}
RENDERS = {"renders-0.5": 0.5, "renders-1": 1.0}
FOLDERS = ("glas", "gleason2019")
ROW, LOG = "row.json", "log.txt"


@dataclass(frozen=True)
class Job:
    """One training and its score."""

    data: str
    arm: str
    seed: int

    def folder(self, out: Path) -> Path:
        return out / "runs" / Path(self.data).name / self.arm / str(self.seed)


def jobs_of(asked: argparse.Namespace) -> list[Job]:
    """Seed by seed, so that all arms keep step."""
    return [Job(data, arm, seed) for seed, data, arm in product(asked.seeds, asked.data, asked.arms)]


def prepare(name: str, asked: argparse.Namespace) -> Any:
    """The dataset of that name, made where it is missing."""
    from research.relation_data import Prepared, make_phantom, make_renders

    folder = asked.out / "data" / name
    if name in PHANTOMS:
        return make_phantom(folder, PHANTOMS[name], asked.sections, asked.cores)
    if name in RENDERS:
        return make_renders(folder, asked.real / "skin-masks", RENDERS[name], asked.cores)
    return Prepared(asked.real / name if name in FOLDERS else Path(name))


def recipe_of(arm: Arm, asked: argparse.Namespace, aligned: bool) -> Any:
    from ntrm.training.recipe import load_recipe, parse_overrides

    changes = {**COMMON, **arm.recipe, **({"overlap": 0} if aligned else {}), **parse_overrides(asked.set)}
    return load_recipe("fast", changes)


def run(job: Job, asked: argparse.Namespace) -> dict[str, Any]:
    """Train, or go on training, then score; the row is written last."""
    from research.relation_edges import EDGES, cut_edges
    from research.relation_scores import score
    from research.section_networks.networks import NETWORKS

    from ntrm.training.recipe import parse_overrides

    folder, arm, data = job.folder(asked.out), ARMS[job.arm], prepare(job.data, asked)
    train = trained_here if arm.arch in NETWORKS else trained_by_ntrm
    result = train(
        arm.arch, data.folder, folder / "run", recipe=recipe_of(arm, asked, data.aligned), splits=data.split_file,
        options={**parse_overrides(asked.option), **arm.options}, seed=job.seed, device=asked.device, name=job.arm,
        sections=asked.train_sections,
    )  # fmt: skip
    found = score(
        result.model, data.folder, folder / asked.split, split=asked.split, split_file=data.split_file,
        device=asked.device, aligned=data.aligned,
    )  # fmt: skip
    if job.arm in asked.edges and not (folder / asked.split / EDGES).exists():
        cut_edges(
            result.model, data.folder, folder / asked.split, split=asked.split, split_file=data.split_file,
            device=asked.device, aligned=data.aligned,
        )  # fmt: skip
    row = {"data": Path(job.data).name, "arm": job.arm, "seed": job.seed, "split": asked.split, **found}
    return {**row, "steps": result.steps, "train_seconds": round(result.seconds, 2)}


def trained_here(*what: Any, **how: Any) -> Any:
    """A section network, by the loop of this study; an interrupted run starts anew."""
    from research.section_networks.training import train

    return train(*what, **how)


def trained_by_ntrm(arch: str, data: Path, out: Path, **how: Any) -> Any:
    """A network of the package, as ``ntrm train`` does it; an interrupted run goes on."""
    from ntrm.training.train import train

    return train(data, out, arch=arch, resume=True, pictures=False, **how)


def work(asked: argparse.Namespace) -> int:
    """A worker: whatever job nobody has begun, one after the other; how many failed."""
    from ntrm.core.errors import RefusedError
    from ntrm.core.io import holding, write_json

    failed, longest, begun = 0, 0.0, time.monotonic()
    for job in jobs_of(asked):
        folder = job.folder(asked.out)
        row = folder / asked.split / ROW
        if asked.minutes and time.monotonic() - begun + longest > 60 * asked.minutes:
            break
        if row.exists():
            continue
        started = time.monotonic()
        try:
            with holding(folder / "lock"):
                if not row.exists():
                    print(f"{job.data} {job.arm} {job.seed}", flush=True)
                    write_json(row, run(job, asked))
        except RefusedError as error:
            if "another process works" not in str(error):
                failed += _tell(folder)
        except Exception:  # noqa: BLE001 - one arm that cannot be trained must not end the others
            failed += _tell(folder)
        longest = max(longest, time.monotonic() - started)
    return failed


def _tell(folder: Path) -> int:
    text = traceback.format_exc()
    print(text, flush=True)
    (folder / LOG).write_text(text)
    return 1


def rows_of(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is finished of the study, whatever was asked for this time."""
    for path in sorted(asked.out.glob(f"runs/*/*/*/{asked.split}/{ROW}")):
        yield json.loads(path.read_text())


def report(asked: argparse.Namespace) -> Path | None:
    """``results.csv``, ``report.md`` and plots of all that is finished."""
    from research.relation_page import page
    from research.relation_report import read_runs

    from ntrm.core.io import write_text

    rows = list(rows_of(asked))
    if not rows:
        return None
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(asked.out / f"results-{asked.split}.csv", stream.getvalue())
    folders = [Job(row["data"], row["arm"], row["seed"]).folder(asked.out) / asked.split for row in rows]
    return page(read_runs(rows, folders, list(ARMS)), asked.reference, asked.split, asked.out)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = parse(given)
    os.environ.setdefault("NTRM_CACHE", str(asked.out / "cache"))
    if asked.weights.is_dir():
        os.environ.setdefault("NTRM_WEIGHTS", str(asked.weights))
    if asked.worker:
        return work(asked)
    if not asked.report_only:
        asked.out.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        for name in asked.data:
            prepare(name, asked)
        print(f"data ready after {time.monotonic() - begun:.0f} s", flush=True)
        if asked.prepare_only:
            return 0
        failed = _work_together(given, asked)
        print(f"{failed} runs failed; all done after {time.monotonic() - begun:.0f} s", flush=True)
    written = report(asked)
    print(written.read_text() if written else "nothing is finished yet")
    return 0


def _work_together(given: list[str], asked: argparse.Namespace) -> int:
    """Workers side by side, each with its own share of the cores; how many runs failed."""
    threads = str(max(1, asked.cores // asked.jobs))
    command = [sys.executable, str(Path(__file__).resolve()), *given, "--worker"]
    workers = []
    for number in range(asked.jobs):
        with (asked.out / f"worker-{number}.log").open("a") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": threads}
            workers.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment))
    try:
        return sum(abs(worker.wait()) for worker in workers)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
                worker.wait()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = next((each for each in (ROOT / "shared", ROOT.parent / "shared") if each.is_dir()), ROOT / "shared")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--data", default="phantom-0.5", help=f"{', '.join([*PHANTOMS, *RENDERS, *FOLDERS])} or a folder"
    )
    parser.add_argument("--arms", default="control,section", help=f"all, or some of {', '.join(ARMS)}")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--reference", default="control")
    parser.add_argument("--split", choices=("train", "val", "test"), default="val")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--cores", type=int, default=cores)
    parser.add_argument("--minutes", type=float, default=0, help="begin no run that may not end within these")
    parser.add_argument("--sections", type=int, default=120, help="of a phantom")
    parser.add_argument("--train-sections", type=int, help="how many to learn from; all if not given")
    parser.add_argument("--real", type=Path, default=Path(os.environ.get("NTRM_REAL_DATA", shared / "data")))
    parser.add_argument("--weights", type=Path, default=shared / "weights")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], help="a change to the recipe of every arm, key=value")
    parser.add_argument("--option", action="append", default=[], help="an option of every architecture, key=value")
    parser.add_argument("--edges", default="section", help="arms whose edges are cut one by one, after scoring")
    parser.add_argument("--prepare-only", action="store_true", help="make the data, and nothing else")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    asked.data, asked.seeds = asked.data.split(","), [int(seed) for seed in asked.seeds.split(",")]
    asked.edges = asked.edges.split(",")
    asked.arms = list(ARMS) if asked.arms == "all" else asked.arms.split(",")
    unknown = [arm for arm in (*asked.arms, asked.reference) if arm not in ARMS]
    if unknown:
        parser.error(f"unknown arm {', '.join(unknown)}; there are {', '.join(ARMS)}")
    asked.out = asked.out.resolve()
    return asked


if __name__ == "__main__":
    sys.exit(main())
