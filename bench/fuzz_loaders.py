"""Thousands of damaged documents: only our own errors may come out of what loads them, within memory and time.

    python bench/fuzz_loaders.py --files 5000 --seed 0

Datasets, annotations, model folders, recipes, splits, lists of slides and results are made, damaged one file at a time
and loaded in a child process. Prints one JSON document: what became of the files, by what they are and by damage. An
error that is not ours, a crash, a hang and too much memory are failures.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.damage import OF_KIND
from bench.fuzzing import FAILED, Tally, finish, options
from bench.loadable import TARGETS
from bench.loadable_files import make_all

from ntrm.core.errors import NtrmError

MEMORY_MB, SECONDS = 1500, 30
"""What loading one document may take, on top of Python and its libraries."""


def one(number: int, seed: int, folder: Path) -> dict[str, Any]:
    """Damage one file, load what it belongs to, and put it back."""
    random = np.random.default_rng([seed, number])
    target = TARGETS[number % len(TARGETS)]
    damages = OF_KIND[target.kind]
    damage = list(damages)[int(random.integers(0, len(damages)))]
    path = folder / target.file
    sound = path.read_bytes()
    try:
        damaged = bytes(damages[damage](bytearray(sound), random))
        path.write_bytes(damaged)
        if target.seal:
            target.seal(folder)
        found = outcome(target.load, folder)
    finally:
        path.write_bytes(sound)
        if target.seal:
            target.seal(folder)
    return {"number": number, "file": target.name, "damage": damage, "found": found}


def outcome(load: Any, folder: Path) -> str:
    """What becomes of one document."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(folder)
    except NtrmError as error:
        # Whoever prints it must be able to.
        str(error).encode("utf-8", "backslashreplace")
        return "refused"
    except Exception as error:  # noqa: BLE001 - every other error is what this looks for
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ntrm/" in frame.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "elsewhere"
        return f"{FAILED}: {type(error).__name__} at {where}: {str(error)[:120]}"
    return "read"


def work(folder: Path, seed: int, numbers: Sequence[int], memory_mb: int) -> None:
    """In the child: one line before and one after every document."""
    _warm_up(folder)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    for number in numbers:
        answers.write(json.dumps({"begun": number}) + "\n")
        signal.alarm(SECONDS)
        answer = one(number, seed, folder)
        signal.alarm(0)
        answers.write(json.dumps(answer) + "\n")


def _warm_up(folder: Path) -> None:
    """Everything sound can be loaded; and libraries are no part of what a document costs."""
    for target in TARGETS:
        target.load(folder)


def answers(folder: Path, seed: int, count: int, memory_mb: int) -> Iterator[dict[str, Any]]:
    """Outcomes of all documents; a child that dies is one failure, and another goes on."""
    number = 0
    while number < count:
        arguments = ["--child", str(folder), "--seed", str(seed), "--files", str(count)]
        command = [sys.executable, __file__, *arguments, "--first", str(number), "--memory-mb", str(memory_mb)]
        begun = None
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            for line in child.stdout or ():
                answer = json.loads(line)
                if "begun" in answer:
                    begun = answer["begun"]
                else:
                    begun, number = None, answer["number"] + 1
                    yield answer
            complaint = child.stderr.read() if child.stderr else ""
        if begun is not None:
            number = begun + 1
            target = TARGETS[begun % len(TARGETS)]
            cause = "no end" if child.returncode == -signal.SIGALRM else f"the child ended with {child.returncode}"
            yield {"number": begun, "file": target.name, "damage": "?", "found": f"{FAILED}: {cause}"}
            make_all(folder, np.random.default_rng(seed))
        elif child.returncode or number < count:
            raise SystemExit(f"the child could not begin ({child.returncode}): {complaint[-2000:]}")


def fuzz(folder: Path, seed: int, count: int, memory_mb: int = MEMORY_MB) -> dict[str, Any]:
    """Damage ``count`` documents and count what becomes of them."""
    tally = Tally("file")
    make_all(folder, np.random.default_rng(seed))
    for answer in answers(folder, seed, count, memory_mb):
        tally.add(answer["file"], answer["damage"], answer["found"].split(":")[0], answer)
    return tally.document(memory_mb, SECONDS)


def main() -> None:
    parser = options(__doc__, MEMORY_MB)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        work(args.child, args.seed, range(args.first, args.files), args.memory_mb)
        return
    with tempfile.TemporaryDirectory() as scratch:
        result = fuzz(Path(scratch), args.seed, args.files, args.memory_mb)
    finish(result)


if __name__ == "__main__":
    main()
