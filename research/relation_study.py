"""Do relations help? Arms × data × seeds, trained alike, scored section by section, compared with their control.

    python research/relation_study.py --out study --data phantom-0.5,glas --arms control,section --seeds 0,1 --jobs 6

One command, and the same command again goes on: data that are there are not made anew, and runs that are there are not
run anew. Section networks are trained by ``section_networks.training``, all others by the package itself. Jobs go seed
by seed, so that whenever it stops every arm has about as many. Writes ``results-SPLIT.csv`` (a row a run),
``report.md`` and its plots. Scores are of the split ``val`` unless ``--split test`` is given, which is to be done
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


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Seed by seed, so that all arms keep step."""
    return [Job(data, arm, seed) for seed, data, arm in product(options.seeds, options.data, options.arms)]


def prepare(name: str, options: argparse.Namespace) -> Any:
    """The dataset of that name, made where it is missing."""
    from research.relation_data import Prepared, make_phantom, make_renders

    folder = options.out / "data" / name
    if name in PHANTOMS:
        return make_phantom(folder, PHANTOMS[name], options.sections, options.cores)
    if name in RENDERS:
        return make_renders(folder, options.real / "skin-masks", RENDERS[name], options.cores)
    return Prepared(options.real / name if name in FOLDERS else Path(name))


def recipe_of(arm: Arm, options: argparse.Namespace, aligned: bool) -> Any:
    from ntrm.training.recipe import load_recipe, parse_overrides

    changes = {**COMMON, **arm.recipe, **({"overlap": 0} if aligned else {}), **parse_overrides(options.set)}
    return load_recipe("fast", changes)


def run(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """Train, or go on training, then score; the row is written last."""
    from research.relation_edges import EDGES, cut_edges
    from research.relation_scores import score
    from research.section_networks.networks import NETWORKS

    from ntrm.training.recipe import parse_overrides

    folder, arm, data = job.folder(options.out), ARMS[job.arm], prepare(job.data, options)
    train = train_section_network if arm.arch in NETWORKS else train_by_ntrm
    result = train(
        arm.arch, data.folder, folder / "run", recipe=recipe_of(arm, options, data.aligned), splits=data.split_file,
        options={**parse_overrides(options.option), **arm.options}, seed=job.seed, device=options.device, name=job.arm,
        sections=options.train_sections,
    )  # fmt: skip
    found = score(
        result.model, data.folder, folder / options.split, split=options.split, split_file=data.split_file,
        device=options.device, aligned=data.aligned,
    )  # fmt: skip
    if job.arm in options.edges and not (folder / options.split / EDGES).exists():
        cut_edges(
            result.model, data.folder, folder / options.split, split=options.split, split_file=data.split_file,
            device=options.device, aligned=data.aligned,
        )  # fmt: skip
    row = {"data": Path(job.data).name, "arm": job.arm, "seed": job.seed, "split": options.split, **found}
    return {**row, "steps": result.steps, "train_seconds": round(result.seconds, 2)}


def train_section_network(*what: Any, **how: Any) -> Any:
    """A section network, by the loop of this study; an interrupted run starts anew."""
    from research.section_networks.training import train

    return train(*what, **how)


def train_by_ntrm(arch: str, data: Path, out: Path, **how: Any) -> Any:
    """A network of the package, as ``ntrm train`` does it; an interrupted run goes on."""
    from ntrm.training.train import train

    return train(data, out, arch=arch, resume=True, pictures=False, reference=False, **how)


def work(options: argparse.Namespace) -> int:
    """A worker: whatever job nobody has begun, one after the other; how many failed."""
    from ntrm.core.errors import RefusedError
    from ntrm.core.io import write_json
    from ntrm.core.locks import holding

    failed, longest, begun = 0, 0.0, time.monotonic()
    for job in jobs_of(options):
        folder = job.folder(options.out)
        row = folder / options.split / ROW
        if options.minutes and time.monotonic() - begun + longest > 60 * options.minutes:
            break
        if row.exists():
            continue
        started = time.monotonic()
        try:
            with holding(folder / "lock"):
                if not row.exists():
                    print(f"{job.data} {job.arm} {job.seed}", flush=True)
                    write_json(row, run(job, options))
        except RefusedError as error:
            if "another process works" not in str(error):
                failed += _log_failure(folder)
        except Exception:  # noqa: BLE001 - one arm that cannot be trained must not end the others
            failed += _log_failure(folder)
        longest = max(longest, time.monotonic() - started)
    return failed


def _log_failure(folder: Path) -> int:
    text = traceback.format_exc()
    print(text, flush=True)
    (folder / LOG).write_text(text)
    return 1


def rows_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is finished of the study, whatever the options of this call."""
    for path in sorted(options.out.glob(f"runs/*/*/*/{options.split}/{ROW}")):
        yield json.loads(path.read_text())


def report(options: argparse.Namespace) -> Path | None:
    """``results.csv``, ``report.md`` and plots of all that is finished."""
    from research.relation_page import page
    from research.relation_report import read_runs

    from ntrm.core.io import write_text

    rows = list(rows_of(options))
    if not rows:
        return None
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(options.out / f"results-{options.split}.csv", stream.getvalue())
    folders = [Job(row["data"], row["arm"], row["seed"]).folder(options.out) / options.split for row in rows]
    return page(read_runs(rows, folders, list(ARMS)), options.reference, options.split, options.out)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(given)
    os.environ.setdefault("NTRM_CACHE", str(options.out / "cache"))
    if options.weights.is_dir():
        os.environ.setdefault("NTRM_WEIGHTS", str(options.weights))
    if options.worker:
        return work(options)
    if not options.report_only:
        options.out.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        for name in options.data:
            prepare(name, options)
        print(f"data ready after {time.monotonic() - begun:.0f} s", flush=True)
        if options.prepare_only:
            return 0
        failed = _work_together(given, options)
        print(f"{failed} runs failed; all done after {time.monotonic() - begun:.0f} s", flush=True)
    written = report(options)
    print(written.read_text() if written else "nothing is finished yet")
    return 0


def _work_together(given: list[str], options: argparse.Namespace) -> int:
    """Workers side by side, each with its own share of the cores; how many runs failed."""
    threads = str(max(1, options.cores // options.jobs))
    command = [sys.executable, str(Path(__file__).resolve()), *given, "--worker"]
    workers = []
    for number in range(options.jobs):
        with (options.out / f"worker-{number}.log").open("a") as log:
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
    options = parser.parse_args(arguments)
    options.data, options.seeds = options.data.split(","), [int(seed) for seed in options.seeds.split(",")]
    options.edges = options.edges.split(",")
    options.arms = list(ARMS) if options.arms == "all" else options.arms.split(",")
    unknown = [arm for arm in (*options.arms, options.reference) if arm not in ARMS]
    if unknown:
        parser.error(f"unknown arm {', '.join(unknown)}; there are {', '.join(ARMS)}")
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
