"""The page of the relation study: every question of the study with its answer, or with what is missing for one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from research.relation_report import Difference, Runs, difference, differences, seed_interval, without_absent
from research.relation_scores import SPECKS, graph_scores

from ntrm.core.io import whole_file, write_text
from ntrm.metrics.significance import macro_iou

Results = Mapping[str, Mapping[str, Runs]]
"""By dataset and arm."""

CONTEXT = (
    *("vector", "tokens", "tokens-graph", "shift-vector", "shift-tokens"),
    *("control-512", "control-1024", "unet-512", "unet-1024"),
)
"""What sees beyond the window and knows no relations; the 512 and 1024 of networks that know none."""
RELATIONS = ("paper", "trm-soft", "section", "complete", "position", "both", "d2", "shift", "shift-position")
RELATIONS += ("amounts", "dropout", "alone", "ask-amounts", "ask-dropout")
SWEEPS = {
    "τ of the masks (temperature)": {"0.5": "sharp", "1": "section", "2": "blunt"},
    "width of a node, d": {"64": "dim-64", "128": "section", "256": "dim-256"},
    "layers, L": {"0": "nodes-alone", "1": "layers-1", "2": "section", "4": "layers-4"},
    "window": {"256": "section", "512": "section-512"},
    "τ of the paper's module": {"0.3": "paper-tau-0.3", "0.5": "paper", "0.7": "paper-tau-0.7"},
    "d of the paper's module": {"64": "paper-dim-64", "128": "paper", "256": "paper-dim-256"},
    "L of the paper's module": {"1": "paper-layers-1", "3": "paper", "5": "paper-layers-5"},
    "window of the paper's module": {"256": "paper", "512": "paper-512"},
}
BOUNDS = ("true-masks", "section", "random-masks")
SYNTHETIC = ("phantom", "renders")


def page(results: Results, reference: str, split: str, out: Path) -> Path:
    """Write ``report.md`` and its plots."""
    lines = [
        "# Relations: what was measured",
        "",
        f"Split `{split}`. Reference: `{reference}`. Differences are in points of mean IoU (1 point = 0.01), with 95 %",
        "intervals over patients and seeds.",
        "",
    ]
    for data, runs in results.items():
        lines += [f"## {data}", ""]
        if data.startswith(SYNTHETIC):
            lines += ["Synthetic texture: gains here are synthetic gains.", ""]
        if reference not in runs:
            lines += [f"Missing: a run of `{reference}`.", ""]
            continue
        lines += [*_dataset(data, runs, reference, out)]
    if overview(results, reference, out / "overview.png"):
        lines[5:5] = ["![Every arm on every dataset](overview.png)", ""]
    lines += ["## Does the gain grow as texture tells less?", "", *_by_ambiguity(results, reference, out), ""]
    write_text(out / "report.md", "\n".join(lines).rstrip() + "\n")
    return out / "report.md"


def _dataset(data: str, runs: Mapping[str, Runs], reference: str, out: Path) -> Iterator[str]:
    found = differences(runs, reference)
    if found:
        forest(found, data, reference, out / f"{data}.png")
        yield from (f"![{data}]({data}.png)", "")
    yield from (*_table(runs, found, reference), "", *_class_table(found, runs[reference].classes))
    sections = {
        "Over the best that sees as far without relations": _over_context(runs),
        "At borders and inside": _parts(runs, reference),
        "Agreement of the graph": _graphs(runs, reference),
        "The same without specks": _without_specks(runs),
        "What knowing the section could be worth": _knowable(runs[reference]),
        "How far the coarse head's errors reach": _bounds(runs),
        "How much depends on numbers": _sweeps(runs, reference),
        "Does the attention mean anything?": _edges(runs),
    }
    for title, text in sections.items():
        yield from (f"### {title}", "", *text, "")


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}"


def _with_interval(each: Difference | None) -> str:
    return "–" if each is None else f"{_signed(each.mean)} ({_signed(each.low)} to {_signed(each.high)})"


def _missing(names: Sequence[str]) -> str:
    return "Missing: " + ", ".join(f"`{name}`" for name in names) + "."


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows)]


def _table(runs: Mapping[str, Runs], found: Sequence[Difference], reference: str) -> list[str]:
    head = ["arm", "seeds", "mean IoU", "sd over seeds", "coarse head", "difference", "95 % patients and seeds"]
    head += ["95 % patients", "training s", "predicting ×"]
    against, rows = {each.arm: each for each in found}, []
    base = fmean(runs[reference].predicting) if runs[reference].predicting else None
    for arm in [reference, *against]:
        own, each = runs[arm], against.get(arm)
        cells = [f"`{arm}`", str(len(own.seeds)), f"{fmean(own.scores):.4f}"]
        cells += [f"{stdev(own.scores):.4f}" if len(own.scores) > 1 else "–"]
        cells += [f"{fmean(own.coarse):.4f}" if own.coarse else "–"]
        cells += ["", "", ""] if each is None else [
            _signed(each.mean), f"{_signed(each.low)} to {_signed(each.high)}",
            f"{_signed(each.patients_low)} to {_signed(each.patients_high)}",
        ]  # fmt: skip
        cells += [f"{fmean(own.seconds):.0f}"]
        cells += [f"{fmean(own.predicting) / base:.2f}" if own.predicting and base else "–"]
        rows.append(cells)
    return _rows(head, rows)


def _class_table(found: Sequence[Difference], classes: Sequence[str]) -> list[str]:
    if not found:
        return []
    rows = [
        [f"`{each.arm}`", *("–" if np.isnan(value) else f"{100 * value:+.1f}" for value in each.by_class)]
        for each in found
    ]
    return ["Points of IoU by tissue:", "", *_rows(["arm", *classes], rows), ""]


def _over_context(runs: Mapping[str, Runs]) -> list[str]:
    context = [name for name in CONTEXT if name in runs]
    missing = [name for name in CONTEXT if name not in runs]
    relations = [name for name in RELATIONS if name in runs]
    lines = [_missing(missing)] if missing else []
    if not context or not relations:
        return [*lines, "Nothing to compare yet."]
    best = max(context, key=lambda name: fmean(runs[name].scores))
    rows = [[f"`{name}`", _with_interval(difference(runs[name], runs[best]))] for name in relations]
    first = f"The best of them on this very split: `{best}`."
    return [" ".join([first, *lines]), "", *_rows(["arm", f"less `{best}`"], rows)]


def _parts(runs: Mapping[str, Runs], reference: str) -> list[str]:
    rows = []
    for name, own in runs.items():
        cells = [f"`{name}`"]
        for part in ("boundary", "inside"):
            one, two = own.part(part), runs[reference].part(part)
            if one is None or two is None:
                break
            cells += [f"{fmean(one.scores):.4f}", "" if name == reference else _with_interval(difference(one, two))]
        else:
            rows.append(cells)
    if not rows:
        return ["Missing: counts at borders."]
    return _rows(["arm", "mean IoU within 8 px of a border", "difference", "elsewhere", "difference"], rows)


def _graphs(runs: Mapping[str, Runs], reference: str) -> list[str]:
    known = {name: own for name, own in runs.items() if own.graph is not None}
    if reference not in known:
        return ["Missing: graphs."]
    rows = []
    for name, own in known.items():
        (f1s, errors), base = _graph_by_seed(own), _graph_by_seed(known[reference])[0]
        paired = [f1s[seed] - base[seed] for seed in f1s if seed in base]
        interval = seed_interval(paired)
        told = "" if name == reference or not paired else _signed(fmean(paired))
        told += f" ({_signed(interval[0])} to {_signed(interval[1])})" if interval and told else ""
        means = [f"{fmean(each.values()):.3f}" if each else "–" for each in (f1s, errors)]
        rows.append([f"`{name}`", means[0], told, means[1]])
    head = ["arm", "F1 of edges", "difference, points (95 % over seeds)", "relative error of border lengths"]
    return _rows(head, rows)


def _graph_by_seed(own: Runs) -> tuple[dict[int, float], dict[int, float]]:
    scores = {} if own.graph is None else {s: graph_scores(c) for s, c in zip(own.seeds, own.graph, strict=True)}
    f1s = {seed: f1 for seed, (f1, _) in scores.items() if f1 is not None}
    return f1s, {seed: error for seed, (_, error) in scores.items() if error is not None}


def _without_specks(runs: Mapping[str, Runs]) -> list[str]:
    """A truer graph that comes from leaving out specks needs no relations: anybody can take them away."""
    rows = []
    for name, own in runs.items():
        if own.graph is None or own.cleaned is None or own.cleaned_graph is None:
            continue
        graphs = [own.graph, *np.moveaxis(own.cleaned_graph, 2, 0)]
        tables = [own.confusions, *np.moveaxis(own.cleaned, 2, 0)]
        cells = []
        for graph, counts in zip(graphs, tables, strict=True):
            f1s = [f1 for f1, _ in map(graph_scores, graph) if f1 is not None]
            iou = float(np.mean(macro_iou(counts.sum(axis=1))))
            cells.append(f"{fmean(f1s) if f1s else math.nan:.3f}, {iou:.4f}")
        rows.append([f"`{name}`", *cells])
    if not rows:
        return ["Missing: counts without specks."]
    head = ["F1 of edges, mean IoU", "as it is", *(f"pieces under {size} px taken away" for size in SPECKS)]
    return _rows(head, rows)


def _knowable(own: Runs) -> list[str]:
    """A bound for everything that sees the section: which tissues it holds, and no more."""
    best = float(np.mean(macro_iou(without_absent(own.confusions).sum(axis=1))))
    return [
        f"If no pixel of `{own.arm}` were called a tissue that its section does not hold, and all of these were right",
        f"instead, its mean IoU would be {best:.4f}: {_signed(best - fmean(own.scores))}. More cannot come from",
        "knowing which tissues are there at all.",
    ]


def _bounds(runs: Mapping[str, Runs]) -> list[str]:
    missing = [name for name in BOUNDS if name not in runs]
    if missing:
        return [_missing(missing)]
    right, own, nothing = (runs[name] for name in BOUNDS)
    bound, gain = _with_interval(difference(right, own)), _with_interval(difference(own, nothing))
    return [
        f"Told the true masks, the module gains {bound} over its own masks: what a perfect",
        f"coarse head would be worth. Its own gain {gain} over masks that know nothing:",
        "what it is worth that nodes are tissues.",
    ]


def _sweeps(runs: Mapping[str, Runs], reference: str) -> list[str]:
    rows, missing = [], []
    for what, arms in SWEEPS.items():
        cells = []
        for value, arm in arms.items():
            if arm not in runs:
                missing.append(arm)
                continue
            against = "" if arm == reference else f" {_with_interval(difference(runs[arm], runs[reference]))}"
            cells.append(f"{value}: {fmean(runs[arm].scores):.4f}{against}")
        if len(cells) > 1:
            rows.append([what, " · ".join(cells)])
    lines = _rows(["what", f"value: mean IoU, less `{reference}`"], rows) if rows else []
    said = [_missing(list(dict.fromkeys(missing)))] if missing else []
    return [*lines, *([""] if lines and said else []), *said]


def _edges(runs: Mapping[str, Runs]) -> list[str]:
    lines = []
    head = ["sender → receiver", "attention", "pixels moved, %", "of them the receiver's, %", "mean IoU, points"]
    for name, own in runs.items():
        if own.edges:
            lines += [
                *_without_edges(name, own.edges),
                "",
                *_rows(head, [_edge(cut) for cut in own.edges[0]["cuts"]]),
                "",
            ]
    return lines[:-1] or ["Missing: no edge was cut yet (`--edges`)."]


def _without_edges(name: str, edges: Sequence[Mapping[str, Any]]) -> list[str]:
    ranks = [each["rank_correlation"] for each in edges if each["rank_correlation"] is not None]
    moved, change = (fmean(each["all"][key] for each in edges) for key in ("moved", "iou_change"))
    rank = f"{fmean(ranks):+.2f}" if ranks else "not known"
    return [
        f"`{name}`, {len(edges)} seed(s): without any edge {100 * moved:.2f} % of pixels change their tissue, and mean",
        f"IoU changes by {_signed(change)} points. Rank correlation of an edge's attention with the pixels that it",
        f"moves: {rank}.",
        "Edges of the first seed, cut one at a time:",
    ]


def _edge(cut: Mapping[str, Any]) -> list[str]:
    part = cut["receivers_part"]
    moved, attention = f"{100 * cut['moved']:.3f}", f"{cut['attention']:.3f}"
    share = "–" if part is None else f"{100 * part:.0f}"
    return [f"{cut['sender']} → {cut['receiver']}", attention, moved, share, _signed(cut["iou_change"])]


def _by_ambiguity(results: Results, reference: str, out: Path) -> list[str]:
    levels = {float(match[1]): data for data in results if (match := re.fullmatch(r"phantom-([\d.]+)", data))}
    usable = {level: results[data] for level, data in sorted(levels.items()) if reference in results[data]}
    if len(usable) < 2:
        return ["Missing: phantoms of at least two ambiguities with the reference."]
    arms = [
        arm for arm in next(iter(usable.values())) if arm != reference and all(arm in runs for runs in usable.values())
    ]
    found = {arm: [difference(runs[arm], runs[reference]) for runs in usable.values()] for arm in arms}
    if not arms:
        return ["Missing: an arm at all of these ambiguities."]
    _draw_ambiguity(found, list(usable), reference, out / "ambiguity.png")
    rows = [[f"`{arm}`", *(_with_interval(each) for each in several)] for arm, several in found.items()]
    head = ["arm", *(f"ambiguity {level:g}" for level in usable)]
    return [
        "Synthetic: ambiguity is built so that surroundings decide.",
        "",
        "![ambiguity](ambiguity.png)",
        "",
        *_rows(head, rows),
    ]


def _draw_ambiguity(
    found: Mapping[str, Sequence[Difference | None]], levels: Sequence[float], reference: str, path: Path
) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, (arm, several) in enumerate(found.items()):
        shift = (place - (len(found) - 1) / 2) * 0.01
        known = [(level + shift, each) for level, each in zip(levels, several, strict=True) if each is not None]
        middle = [100 * each.mean for _, each in known]
        bars = [
            [100 * (each.mean - each.low) for _, each in known],
            [100 * (each.high - each.mean) for _, each in known],
        ]
        axes.errorbar([level for level, _ in known], middle, yerr=bars, marker="o", capsize=3, label=arm)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set_xlabel("ambiguity of the texture (synthetic)")
    axes.set_ylabel(f"mean IoU less {reference}, points")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, path)


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
    _save(figure, path)


def overview(results: Results, reference: str, path: Path) -> bool:
    """All datasets below each other, with every seed, so that an arm's gains and losses meet the eye together."""
    known = {data: runs for data, runs in results.items() if reference in runs}
    rows = [(data, each) for data, runs in known.items() for each in differences(runs, reference)]
    if not rows:
        return False
    arms = list(dict.fromkeys(each.arm for _, each in rows))
    figure = Figure(figsize=(8, 1.2 + 0.28 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    furthest = 1.0
    for place, (data, each) in enumerate(reversed(rows)):
        base = known[data][reference]
        scores = dict(zip(base.seeds, base.scores, strict=True))
        pairs = zip(known[data][each.arm].seeds, known[data][each.arm].scores, strict=True)
        seeds = [100 * (score - scores[seed]) for seed, score in pairs if seed in scores]
        furthest = max(furthest, *map(abs, seeds))
        colour = f"C{arms.index(each.arm) % 10}"
        axes.plot([100 * each.low, 100 * each.high], [place, place], color=colour, lw=2, alpha=0.5)
        axes.plot(seeds, [place] * len(seeds), "|", color=colour, ms=9, mew=1.5)
        axes.plot(100 * each.mean, place, "o", color=colour, ms=6)
    axes.set_yticks(range(len(rows)), [f"{data}: {each.arm}" for data, each in reversed(rows)])
    axes.set_xlim(-1.5 * furthest, 1.5 * furthest)  # an interval over two patients would make all others points
    axes.axvline(0, color="black", lw=0.8)
    axes.set_xlabel(f"mean IoU less {reference}, points: mean, every seed, 95 % over patients and seeds")
    _save(figure, path)
    return True


def _save(figure: Figure, path: Path) -> None:
    with whole_file(path) as partial:
        figure.savefig(partial, format="png", dpi=110)
