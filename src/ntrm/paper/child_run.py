"""One job in a process of its own: train, or go on training, then evaluate.

    python -m ntrm.paper.child_run JOB.json

The process that starts it holds the other end of its standard input. When that end closes, whatever the reason, the
worker and all its children end at once: a killed reproduction leaves nothing running in its folders.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.errors import NtrmError
from ntrm.core.io import holding, whole_file
from ntrm.core.processes import end_with_parent
from ntrm.evaluation.interfaces import InterfaceCounts
from ntrm.paper.outcomes import EVALUATION, INTERFACES

GUARD = "--end-with-parent"
INTERRUPTED = 130
MAKING = "evaluating"
"""Folder of an evaluation that is not whole yet."""


def work(document: dict[str, Any]) -> None:
    """Do the job that a document describes; what is already there is not done again."""
    from ntrm.evaluation.evaluate import evaluate
    from ntrm.training.log import CHECKPOINTS
    from ntrm.training.train import train

    run, data = Path(document["run"]), Path(document["data"])
    split_file = Path(document["split_file"]) if document["split_file"] else None
    result = train(
        data,
        run,
        arch=document["arch"],
        recipe=document["recipe"],
        resolution=document["level"] or None,
        splits=split_file,
        options=document["options"],
        seed=document["seed"],
        device=document["device"],
        resume=True,
        name=document["name"],
        command=document["command"],
        pictures=document["pictures"],
        say=_say,
    )
    if not result.finished:
        raise KeyboardInterrupt
    _say(f"trained in {result.seconds:.1f} s; evaluating")
    # Renamed when whole: the folder is there with everything in it, or not at all.
    making, made = run / MAKING, run / EVALUATION
    for leftover in (making, made):
        shutil.rmtree(leftover, ignore_errors=True)
    evaluation = evaluate(
        result.model,
        data,
        making,
        resolution=document["level"] or None,
        splits=split_file,
        device=document["device"],
        boundaries=document["boundaries"],
        pictures=document["pictures"],
        jobs=document["jobs"],
        command=document["evaluate_command"],
    )
    write_interfaces(making / INTERFACES, [section.interfaces for section in evaluation.sections])
    making.rename(made)
    # Only a training that goes on needs them, and those of a hundred runs would fill a disk.
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    _say("done")


def write_interfaces(path: Path, sections: Sequence[InterfaceCounts]) -> None:
    """Write what happened beside interfaces, section by section: ``pixels``, ``wrong`` … as (S, K, K)."""
    arrays: dict[str, Any] = {}
    for name in ("pixels", "wrong", "corrected", "broken"):
        tables = [getattr(section, name) for section in sections]
        if all(table is not None for table in tables):
            arrays[name] = np.stack(tables)
    with whole_file(path) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def main(arguments: list[str]) -> int:
    """Exit code of the worker."""
    if GUARD in arguments:
        end_with_parent()
    path = Path(arguments[0])
    document = json.loads(path.read_text(encoding="utf-8"))
    try:
        with holding(path.with_suffix(".lock"), wait=True):
            work(document)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except NtrmError as error:
        _say(str(error))
        return error.exit_code
    except Exception:  # noqa: BLE001 - the log must say what ended the process, whatever it was
        traceback.print_exc()
        return 1
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
