"""What the runs of the relation study say: paired differences with intervals over patients and seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.metrics.overlap import class_scores, mean_defined
from ntrm.metrics.significance import Statistic, compare_confusions, macro_iou

CONFUSIONS, EDGES = "confusions.npz", "edges.json"
Values = NDArray[np.float64]
ARRAYS = ("boundary", "graph", "cleaned", "cleaned_graph")
"""Of ``confusions.npz``, besides the counts themselves."""
DRAWS = 4000
CHUNK = 200


@dataclass(frozen=True, eq=False)
class Runs:
    """All seeds of one arm on one dataset."""

    arm: str
    seeds: tuple[int, ...]
    confusions: Values
    """(seeds, S, K, K)."""
    patients: tuple[str, ...]
    classes: tuple[str, ...]
    seconds: tuple[float, ...]
    """Training."""
    coarse: tuple[float, ...] = ()
    """Mean IoU of the coarse head by seed."""
    boundary: Values | None = None
    """(seeds, S, K, K) of the pixels at borders alone."""
    graph: Values | None = None
    """(seeds, S, 5) of edges and lengths, as ``relation_scores.GRAPH`` names them."""
    cleaned: Values | None = None
    """(seeds, S, sizes, K, K) after specks smaller than each of ``relation_scores.SPECKS`` were taken away."""
    cleaned_graph: Values | None = None
    """(seeds, S, sizes, 5)."""
    predicting: tuple[float, ...] = ()
    """Seconds, all passes."""
    edges: tuple[Mapping[str, Any], ...] = ()
    """What cutting edges did, of the seeds where that was tried."""

    @property
    def scores(self) -> list[float]:
        """Mean IoU by seed."""
        return [float(value) for value in macro_iou(self.confusions.sum(axis=1))]

    def only(self, seeds: Sequence[int]) -> Runs:
        """Some of the seeds."""
        places = [self.seeds.index(seed) for seed in seeds]
        taken: dict[str, Any] = {"seeds": tuple(seeds), "confusions": self.confusions[places]}
        for name in ARRAYS:
            values = getattr(self, name)
            taken[name] = None if values is None else values[places]
        for name in ("seconds", "coarse", "predicting"):
            values = getattr(self, name)
            taken[name] = tuple(values[place] for place in places) if len(values) == len(self.seeds) else ()
        return replace(self, **taken)

    def part(self, name: str) -> Runs | None:
        """The same of the pixels at borders (``boundary``) or of all others (``inside``)."""
        if self.boundary is None:
            return None
        return replace(self, confusions=self.boundary if name == "boundary" else self.confusions - self.boundary)


def read_runs(
    rows: Sequence[Mapping[str, Any]], folders: Sequence[Path], order: Sequence[str]
) -> dict[str, dict[str, Runs]]:
    """Finished runs by dataset and arm, arms in their ``order``; ``folders`` hold the arrays of the rows."""
    found: dict[str, dict[str, Runs]] = {data: {} for data in dict.fromkeys(row["data"] for row in rows)}
    places = list(zip(rows, folders, strict=True))
    for data, arm in product(found, order):
        own = sorted((each for each in places if (each[0]["data"], each[0]["arm"]) == (data, arm)), key=_seed)
        if own:
            found[data][arm] = _runs(arm, [row for row, _ in own], [folder for _, folder in own])
    return found


def _seed(place: tuple[Mapping[str, Any], Path]) -> int:
    return int(place[0]["seed"])


def _runs(arm: str, rows: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> Runs:
    arrays = [dict(np.load(folder / CONFUSIONS)) for folder in folders]
    more = {
        name: np.stack([each[name] for each in arrays]).astype(np.float64)
        for name in ARRAYS
        if all(name in each for each in arrays)
    }
    edges = [json.loads((folder / EDGES).read_text()) for folder in folders if (folder / EDGES).exists()]
    return Runs(
        arm,
        tuple(int(row["seed"]) for row in rows),
        np.stack([each["final"] for each in arrays]).astype(np.float64),
        tuple(arrays[0]["patients"].tolist()),
        tuple(arrays[0]["classes"].tolist()),
        tuple(row["train_seconds"] for row in rows),
        tuple(row["coarse_iou"] for row in rows if row["coarse_iou"] is not None),
        predicting=tuple(row["predict_seconds"] for row in rows if "predict_seconds" in row),
        edges=tuple(edges),
        **more,
    )


@dataclass(frozen=True)
class Difference:
    """An arm less the reference, over the seeds both have."""

    arm: str
    seeds: int
    mean: float
    low: float
    """Of 95 % over patients and seeds; over patients alone where there is one seed."""
    high: float
    patients_low: float
    """Of 95 % over patients, for these very seeds."""
    patients_high: float
    by_class: tuple[float, ...]
    """Points of IoU by class, over all sections and seeds; NaN where neither has the class."""


def without_absent(confusions: Values) -> Values:
    """Counts (…, K, K) of sections as if every pixel called a tissue that its section does not hold were right."""
    there = confusions.sum(axis=-1) > 0  # (…, K)
    strangers = np.where(there[..., None, :], 0.0, confusions)
    moved = confusions - strangers
    places = np.arange(confusions.shape[-1])
    moved[..., places, places] += strangers.sum(axis=-1)
    return moved


def two_way(
    first: Values, second: Values, patients: Sequence[str], *, draws: int = DRAWS, seed: int = 0,
    statistic: Statistic = macro_iou,
) -> tuple[float, float]:  # fmt: skip
    """95 % interval of ``first − second``, (R, S, K, K) each, patients and seeds both drawn with replacement.

    The runs of one seed stay together: they share their start and their batches. The interval is the difference ± t·s,
    s being the deviation over draws, widened for drawing from few, and t Student's for whichever is fewer, patients or
    seeds. (With three to five seeds, percentiles so far out would be the very last draws.)
    """
    from scipy import special

    names = list(dict.fromkeys(patients))
    member = np.array([[name == patient for name in names] for patient in patients], dtype=np.float64)
    sums = [np.einsum("rskl,sp->rpkl", each, member) for each in (first, second)]
    rng, runs = np.random.default_rng(seed), len(first)
    found = []
    for start in range(0, draws, CHUNK):
        size = min(CHUNK, draws - start)
        times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=size).astype(np.float64)
        chosen = rng.multinomial(runs, np.full(runs, 1 / runs), size=size) / runs  # (draws, R)
        values = [statistic(np.einsum("dp,rpkl->drkl", times, each)) for each in sums]
        found.append(((values[0] - values[1]) * chosen).sum(axis=1))
    fewest = min([len(names)] + ([runs] if runs > 1 else []))
    freedom = max(1, fewest - 1)
    width = float(special.stdtrit(freedom, 0.975) * np.nanstd(np.concatenate(found)) * np.sqrt((freedom + 1) / freedom))
    middle = float(np.mean(statistic(first.sum(axis=1)) - statistic(second.sum(axis=1))))
    return middle - width, middle + width


def differences(runs: Mapping[str, Runs], reference: str) -> list[Difference]:
    """Every arm against the reference, best first."""
    found = []
    for arm, own in runs.items():
        seeds = [seed for seed in own.seeds if seed in runs[reference].seeds]
        if arm == reference or not seeds:
            continue
        one, two = own.only(seeds), runs[reference].only(seeds)
        stacks = {"arm": one.confusions, "reference": two.confusions}
        alone = compare_confusions(stacks, one.patients, reference="reference")[0]
        low, high = two_way(one.confusions, two.confusions, one.patients)
        classes = [mean_defined(class_scores(each.confusions.sum(axis=1), "iou")) for each in (one, two)]
        found.append(
            Difference(
                arm,
                len(seeds),
                fmean(one.scores) - fmean(two.scores),
                low,
                high,
                alone.low,
                alone.high,
                tuple((classes[0] - classes[1]).tolist()),
            )
        )
    return sorted(found, key=lambda each: -each.mean)


def difference(one: Runs, two: Runs) -> Difference | None:
    """One arm less another, over the seeds both have; None without any."""
    found = differences({one.arm: one, two.arm: two}, two.arm)
    return found[0] if found else None


def seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the mean of paired differences, over seeds alone (Student's t); None of fewer than two."""
    from scipy import special

    if len(values) < 2:
        return None
    width = float(special.stdtrit(len(values) - 1, 0.975)) * stdev(values) / len(values) ** 0.5
    return fmean(values) - width, fmean(values) + width
