"""What it costs to compare a slide with a model's training sections: the whole with a reference over that without.

    python bench/familiarity_cost.py [--slide FILE] [--model bundled] [--repeats 5] [--threads 1] [--out FILE]

Each repeat segments the same slide twice in turn, with the network loaded: without a reference, and with one. The
ratio of the two is noisy on a busy machine, so the calls that do the comparison are also timed within the second, as a
share of it. Seconds are those of processors. A model without a reference gets one with made-up numbers: they cost the
same, whatever they say. Without ``--slide`` a section is drawn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench import segment_speed
from ntrm.core.io import sha256_of
from ntrm.evaluation.loaded_model import open_subject
from ntrm.familiarity.recorder import BlockRecorder
from ntrm.familiarity.reference import LEVELS, STATISTICS, Reference, ReferenceNumbers
from ntrm.models.folders import REFERENCE, REFERENCE_NUMBERS, WEIGHTS, locate
from ntrm.pipeline import outputs
from ntrm.pipeline import slide as slide_module
from ntrm.pipeline.segmenter import Segmenter
from ntrm.slides.inputs import SlideInput
from ntrm.wsi.isolated import ReaderPool

CALLS = {
    "cells": (BlockRecorder, "__call__"),
    "verdict": (slide_module, "judge_slide"),
    "map": (outputs, "write_familiarity_map"),
}
"""What does the comparison."""


def made_up(classes: tuple[str, ...], mpp: float) -> Reference:
    """A reference to which everything is familiar."""
    count, anatomy = len(classes), len(classes) * (len(classes) + 1) // 2
    numbers = ReferenceNumbers(
        class_means=np.zeros((count, STATISTICS)),
        class_whitening=np.tile(np.eye(STATISTICS), (count, 1, 1)),
        unit_mean=np.zeros(STATISTICS),
        unit_covariance=1e3 * np.eye(STATISTICS),
        anatomy_mean=np.zeros(anatomy),
        anatomy_covariance=1e3 * np.eye(anatomy),
        anatomy_most=np.ones(anatomy),
        smallest_mm2=np.full(1, 0.1),
        log_areas=np.linspace(-2.0, 3.0, 12),
        quantiles=np.tile(np.linspace(0.0, 4.0, len(LEVELS)), (3, 12, 1)),
        tails=np.ones((3, 12)),
    )
    return Reference(numbers, classes, mpp, {})


def two_models(model: str, folder: Path) -> tuple[Path, Path]:
    """Copies of a model without and with a reference."""
    plain, judging = folder / "plain", folder / "judging"
    for copy in (plain, judging):
        shutil.copytree(locate(model), copy)
    for name in (REFERENCE, REFERENCE_NUMBERS):
        (plain / name).unlink(missing_ok=True)
    subject = open_subject(judging)
    if subject.reference is None:
        reference = made_up(subject.config.schema.names, float(subject.config.mpp or 0.0))
        reference.write(judging, sha256_of(judging / WEIGHTS))
    return plain, judging


@contextmanager
def timed_calls() -> Iterator[dict[str, float]]:
    """Seconds of the calling thread by the names of ``CALLS``."""
    seconds = dict.fromkeys(CALLS, 0.0)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*arguments, **more)
            finally:
                seconds[name] += time.thread_time() - begun

        return call

    with ExitStack() as stack:
        for name, (owner, attribute) in CALLS.items():
            stack.enter_context(mock.patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        yield seconds


def segmented(model: Path, slide: Path, out: Path, device: str, batch: int) -> float:
    """Seconds of processors for one slide with the network loaded."""
    with closing(ReaderPool(1)) as readers:
        segmenter = Segmenter(model, out, device=device, batch=batch, open_slide=readers.open)
        segmenter.claim()
        begun = segment_speed.with_children()
        found = segmenter.segment(SlideInput(slide, "slide"), "slide")
        took = segment_speed.with_children() - begun
    if found.status != "done":
        raise SystemExit(f"the slide was not segmented: {found.status} {found.reason}")
    return took


def study(slide: Path, model: str, folder: Path, *, repeats: int, device: str, batch: int) -> list[dict[str, float]]:
    """Seconds of each repeat; a first one, in which memory is claimed, is not counted."""
    plain, judging = two_models(model, folder)
    rounds = []
    for number in range(repeats + 1):
        without = segmented(plain, slide, folder / f"plain-{number}", device, batch)
        with timed_calls() as calls:
            judged = segmented(judging, slide, folder / f"judging-{number}", device, batch)
        rounds.append({"without": without, "with": judged, **calls})
    return rounds[1:]


def table(rounds: list[dict[str, float]]) -> str:
    """Medians in Markdown; shares are those within a repeat."""
    lines = ["| | processor s | share |", "|---|---|---|"]
    for name, whole in {"without": "without", "with": "without", **dict.fromkeys(CALLS, "with")}.items():
        seconds = statistics.median(each[name] for each in rounds)
        lines.append(
            f"| {name} | {seconds:.3f} | {statistics.median(each[name] / each[whole] for each in rounds):.4f} |"
        )
    together = statistics.median(sum(each[name] for name in CALLS) / each["with"] for each in rounds)
    return "\n".join([*lines, f"| comparison | | {together:.4f} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slide", type=Path, default=None)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--sections", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    with tempfile.TemporaryDirectory() as place:
        slide = asked.slide or segment_speed.drawn(Path(place) / "skin", asked.sections, asked.seed)
        settings = {"repeats": asked.repeats, "device": asked.device, "batch": asked.batch}
        rounds = study(slide, asked.model, Path(place), **settings)
    print(table(rounds))
    if asked.out is not None:
        asked.out.write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
