"""How the score grows with the sections that a network learned from: a table and a plot of relation studies.

python research/relation_study.py --out few-16 --train-sections 16 --arms control --seeds 0,1
python research/learning_curve.py --data phantom-0.5 --studies 16=few-16 119=study --out curve
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ntrm.core.io import whole_file, write_text

Curve = dict[str, dict[int, list[float]]]
"""Mean IoU by arm, number of training sections and seed."""


def read(studies: Mapping[int, Path], data: str, split: str) -> Curve:
    """What is finished of these studies."""
    found: Curve = {}
    for sections, folder in sorted(studies.items()):
        for path in sorted(folder.glob(f"runs/{data}/*/*/{split}/row.json")):
            row = json.loads(path.read_text())
            found.setdefault(row["arm"], {}).setdefault(sections, []).append(row["iou"])
    return found


def table(curve: Curve) -> str:
    sizes = sorted({size for scores in curve.values() for size in scores})
    lines = ["| training sections | " + " | ".join(map(str, sizes)) + " |", "|---" * (len(sizes) + 1) + "|"]
    for arm, scores in curve.items():
        cells = [f"{fmean(scores[size]):.3f} ({len(scores[size])})" if size in scores else "–" for size in sizes]
        lines.append(f"| `{arm}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "Mean IoU, number of seeds in brackets."]) + "\n"


def draw(curve: Curve, title: str, path: Path) -> None:
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (arm, scores) in enumerate(curve.items()):
        sizes = sorted(scores)
        axes.plot(sizes, [fmean(scores[size]) for size in sizes], "-", color=f"C{number}", label=arm)
        every = [(size, score) for size in sizes for score in scores[size]]
        axes.plot(*zip(*every, strict=True), "o", color=f"C{number}", ms=4)
    axes.set_xscale("log", base=2)
    sizes = sorted({size for scores in curve.values() for size in scores})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("training sections")
    axes.set_ylabel("mean IoU, each dot a seed")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    with whole_file(path) as partial:
        figure.savefig(partial, format="png", dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", nargs="+", required=True, metavar="SECTIONS=FOLDER")
    parser.add_argument("--data", default="phantom-0.5")
    parser.add_argument("--split", choices=("val", "test"), default="val")
    parser.add_argument("--arms", help="only these")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    studies = {int(size): Path(folder) for size, folder in (each.split("=", 1) for each in options.studies)}
    curve = read(studies, options.data, options.split)
    if options.arms:
        curve = {arm: curve[arm] for arm in options.arms.split(",") if arm in curve}
    if not curve:
        parser.error(f"no finished run of {options.data} ({options.split}) in these folders")
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "curve.md", table(curve))
    draw(curve, f"{options.data}, {options.split} part", options.out / "curve.png")
    print(table(curve), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
