"""What the runs of the relation study say: paired differences with intervals over patients and seeds, as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.files import whole_file, write_text
from ntrm.metrics.significance import Statistic, compare_confusions, macro_iou

Values = NDArray[np.float64]
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
    initial: tuple[float, ...] = ()
    """Mean IoU of the coarse head by seed."""

    @property
    def scores(self) -> list[float]:
        """Mean IoU by seed."""
        return [float(value) for value in macro_iou(self.confusions.sum(axis=1))]

    def only(self, seeds: Sequence[int]) -> Runs:
        """Some of the seeds."""
        places = [self.seeds.index(seed) for seed in seeds]
        initial = tuple(self.initial[place] for place in places) if self.initial else ()
        seconds = tuple(self.seconds[place] for place in places)
        return Runs(self.arm, tuple(seeds), self.confusions[places], self.patients, self.classes, seconds, initial)


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


def by_class_iou(confusions: Values) -> Values:
    """(…, K, K) → (…, K), NaN where a class is neither there nor predicted."""
    hits = np.diagonal(confusions, axis1=-2, axis2=-1)
    union = confusions.sum(axis=-1) + confusions.sum(axis=-2) - hits
    ious: Values = np.divide(hits, union, out=np.full(hits.shape, np.nan), where=union > 0)
    return ious


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
        classes = [np.nanmean(by_class_iou(each.confusions.sum(axis=1)), axis=0) for each in (one, two)]
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


def forest(found: Sequence[Difference], title: str, reference: str, path: Path) -> None:
    """Differences with their intervals, one line an arm."""
    figure = Figure(figsize=(8, 1.2 + 0.32 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, each in enumerate(reversed(found)):
        clear = each.low > 0 or each.high < 0
        colour = ("#1b7837" if each.mean > 0 else "#b2182b") if clear else "#666666"
        axes.plot([100 * each.low, 100 * each.high], [place, place], color=colour, lw=2)
        axes.plot(100 * each.mean, place, "o", color=colour, ms=6)
    axes.set_yticks(range(len(found)), [f"{each.arm} ({each.seeds})" for each in reversed(found)])
    axes.axvline(0, color="black", lw=0.8)
    axes.set_xlabel(f"mean IoU less {reference}, points; 95 % over patients and seeds (seeds in brackets)")
    axes.set_title(title)
    with whole_file(path) as partial:
        figure.savefig(partial, format="png", dpi=110)


def page(results: Mapping[str, Mapping[str, Runs]], reference: str, split: str, out: Path) -> Path:
    """Write ``report.md`` and its plots; datasets without the reference are named as such."""
    lines = ["# Relations: what was measured", "", f"Split `{split}`. Reference: `{reference}`.", ""]
    for data, runs in results.items():
        lines += [f"## {data}", ""]
        if reference not in runs:
            lines += [f"No run of `{reference}` yet.", ""]
            continue
        if data.startswith(("phantom", "renders")):
            lines += ["Synthetic texture: gains here are synthetic gains.", ""]
        found = differences(runs, reference)
        if found:
            forest(found, data, reference, out / f"{data}.png")
            lines += [f"![{data}]({data}.png)", ""]
        lines += [*_table(runs, found, reference), "", *_class_table(found, runs[reference].classes), ""]
    write_text(out / "report.md", "\n".join(lines))
    return out / "report.md"


def _table(runs: Mapping[str, Runs], found: Sequence[Difference], reference: str) -> list[str]:
    lines = [
        "| arm | seeds | mean IoU | sd over seeds | coarse head | difference, points | 95 % patients and seeds | "
        "95 % patients | training s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    against = {each.arm: each for each in found}
    for arm in [reference, *against]:
        own = runs[arm]
        spread = f"{stdev(own.scores):.4f}" if len(own.scores) > 1 else "–"
        coarse = f"{fmean(own.initial):.4f}" if own.initial else "–"
        cells = [f"`{arm}`", str(len(own.seeds)), f"{fmean(own.scores):.4f}", spread, coarse]
        each = against.get(arm)
        cells += ["", "", ""] if each is None else [
            f"{100 * each.mean:+.2f}", f"{100 * each.low:+.2f} to {100 * each.high:+.2f}",
            f"{100 * each.patients_low:+.2f} to {100 * each.patients_high:+.2f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join([*cells, f"{fmean(own.seconds):.0f}"]) + " |")
    return lines


def _class_table(found: Sequence[Difference], classes: Sequence[str]) -> list[str]:
    if not found:
        return []
    lines = ["Points of IoU by class:", "", "| arm | " + " | ".join(classes) + " |", "|---" * (len(classes) + 1) + "|"]
    for each in found:
        cells = ["–" if np.isnan(value) else f"{100 * value:+.1f}" for value in each.by_class]
        lines.append("| " + " | ".join([f"`{each.arm}`", *cells]) + " |")
    return lines
