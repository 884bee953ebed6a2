"""What corrected slides are worth to a network: it learns from 1, 2 and 4 of them and is asked about others.

    ntrm phantom known --sections 24 --seed 1
    python research/correction_training.py draw --out learning/phantom
    python research/correction_training.py cut --skin-pas skin-pas --out learning/skin-pas
    python research/correction_training.py click --out learning/phantom
    python research/correction_training.py train --out learning/phantom --known known --plan 'hand:1,2,4:0 drawn+:1,2:0'
    python research/correction_training.py table --out learning/phantom

``draw`` draws phantom sections and makes their colours those of a laboratory that the bundled model does not know:
half of them are for correction, the others for scoring. ``cut`` does the same with real skin: A1-1 is cut into four
stretches, which are corrected, and scored is what ``--test`` names. ``click`` has the bundled model segment the slides
and corrects each by simulated clicks, through the engine and the log that a person would use: the middle of the largest
error is named after the truth. What follows is accepted if it makes more pixels right than wrong; else the part alone
is named, as a person does who has looked at the preview. Beside it, ``drawn`` has all of the truth drawn by hand.

``train`` is ``ntrm train --init bundled --corrections``, for arm, number of slides and seed. An arm is what counts:
``hand``, ``followed`` and ``all`` as in ``--trust``, of the clicked slides, and ``drawn``, of those annotated in full.
``own`` is the control without a person: the network learns from its own masks (one pixel of each is confirmed, so that
there is a log). With ``+`` the sections of ``--known`` are learned from as well (``--data``): such as the model has
learned from before. Every model is scored on slides that nobody corrected, and on the test part of ``--known``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from numpy.typing import NDArray
from research.skin_pas import LENIENT, TISSUES, Laid, lay

from ntrm.core.io import read_arrays, write_arrays
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.data.image_files import read_image, read_mask, write_image
from ntrm.results.paths import CORRECTIONS

SLIDES, CLICKS = 4, 15
SEED = 1910
MOST_PIXELS = 450_000  # Larger phantom sections are left out, for time
NAMES = {"dermis": "RET", "epidermis": "EPI", "keratin": "KER", "background": "BKG"}
"""What a person calls the tissues of ``skin-pas``."""
LABORATORY = ((0.0, 0.5, 0.0), (0.6, 0.0, 0.0), (0.0, 0.0, 0.4))
"""Optical densities of red, green and blue there, each a mixture of ours: paler dyes of other colours."""
SOFTNESS = 2.0  # σ of the scanner's blur, in pixels. The bundled model hardly minds the dyes alone.
ARMS = ("own", "hand", "followed", "all", "drawn", "hand+", "followed+", "all+", "drawn+")
TRUST = {"own": "all", "drawn": "hand"}

Mask = NDArray[np.uint8]
Image = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Truth:
    """Which predicted classes are right for which true tissue, and what a person calls it."""

    right: NDArray[np.bool_]  # (T, K)
    name: tuple[str, ...]  # (T,)

    def mean_iou(self, pixels: NDArray[np.int64]) -> float:
        """Mean over the true tissues that occur, from pixels (T, K) by true tissue and predicted class."""
        right = (pixels * self.right).sum(axis=1)
        called = self.right.astype(np.int64) @ pixels.sum(axis=0)
        union, occurs = pixels.sum(axis=1) + called - right, pixels.sum(axis=1) > 0
        return float((right[occurs] / union[occurs]).mean())

    def confusion(self, truth: Mask, predicted: Mask) -> NDArray[np.int64]:
        """(T, K) pixels."""
        known = (truth != IGNORE) & (predicted != IGNORE)
        cells = truth[known].astype(np.int64) * len(SKIN) + predicted[known]
        return np.bincount(cells, minlength=len(self.name) * len(SKIN)).reshape(len(self.name), len(SKIN))


PHANTOM = Truth(np.eye(len(SKIN), dtype=bool), SKIN.names)
REAL = Truth(
    np.array([[name in LENIENT[tissue] for name in SKIN.names] for tissue in TISSUES]),
    tuple(NAMES[tissue] for tissue in TISSUES),
)


def truth_of(out: Path) -> Truth:
    """How a set is judged."""
    return REAL if out.name.startswith("skin-pas") else PHANTOM


# --- slides ---


def draw(out: Path) -> None:
    """Phantom sections of the foreign laboratory."""
    from ntrm.phantom.generate import plan_sections
    from ntrm.phantom.layout import lay_slide
    from ntrm.phantom.render import render

    mpp, kept = level_resolution("10x"), 0
    # One cancer after the other, so that both halves have all of them.
    for planned in sorted(plan_sections(60, SEED), key=lambda planned: int(planned.name.split("_")[1])):
        slide = lay_slide(planned.seed, mpp.x, planned.cancer, 1)
        if slide.mask.size <= MOST_PIXELS:
            image = foreign(render(slide.fine, mpp.x, planned.seed, stain=planned.stain(SEED)))
            name = f"foreign-{planned.name}"
            write_slide(out / ("slides" if kept % 2 == 0 else "test"), name, image, slide.mask, mpp)
            kept += 1
        if kept == 2 * SLIDES:
            return


def foreign(image: Image) -> Image:
    """The section in the colours of the foreign laboratory."""
    from ntrm.data.transforms import from_optical_density, gaussian_blur, optical_density

    x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    mixed = torch.einsum("oc,bchw->bohw", torch.tensor(LABORATORY), optical_density(x))
    soft = gaussian_blur(from_optical_density(mixed), torch.tensor([SOFTNESS]))
    pixels: Image = (soft[0].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return pixels


def cut(out: Path, folder: Path, test: str) -> None:
    """Section A1-1 in four stretches, and the section that is scored."""
    section = lay(folder, "A1-1", 6.7)
    for number, columns in enumerate(stretches(section)):
        part = np.s_[:, columns]
        write_slide(out / "slides", f"A1-1-{number}", section.image[part], section.truth[part], Resolution.square(6.7))
    scored = lay(folder, test, 6.7)
    write_slide(out / "test", test, scored.image, scored.truth, Resolution.square(6.7))


def stretches(section: Laid) -> Iterator[slice]:
    """Columns of four parts of a section with as much tissue each."""
    tissue = np.cumsum(section.there.sum(axis=0))
    cuts = np.searchsorted(tissue, tissue[-1] * np.arange(1, SLIDES) / SLIDES)
    for first, last in zip((0, *cuts), (*cuts, len(tissue)), strict=True):
        yield slice(int(first), int(last))


def write_slide(folder: Path, name: str, image: Image, truth: Mask, mpp: Resolution) -> None:
    """An image as a slide, and its truth beside the folder of slides."""
    write_image(folder / f"{name}.tif", image, mpp)
    write_arrays(folder.with_name("truth") / f"{name}.npz", {"truth": truth})


def read_truth(out: Path, name: str) -> Mask:
    return read_arrays(out / "truth" / f"{name}.npz", hint="draw or cut the slides first")["truth"]


# --- corrections ---


def click(out: Path, device: str) -> None:
    """Segment the slides and correct them, once by clicks and once by drawing everything."""
    from ntrm.correct.mask import open_mask
    from ntrm.correct.slide import SlideCorrections
    from ntrm.segment.batch import segment_slides
    from ntrm.slides.inputs import SlideInput

    clicked, drawn = out / "clicked", out / "drawn"
    segment_slides([out / "slides"], out=clicked, device=device)
    if not drawn.exists():
        shutil.copytree(clicked, drawn)
    for path in sorted((out / "slides").iterdir()):
        truth, slide = read_truth(out, path.stem), SlideCorrections(clicked / path.stem)
        slide.engine.prepare(slide.mask, SlideInput(path, path.name), device)
        scores = click_through(slide, truth, truth_of(out))
        if not (drawn / path.stem / CORRECTIONS).exists():
            draw_all(open_mask(drawn / path.stem), truth, truth_of(out))
        print(path.stem, " ".join(f"{score:.3f}" for score in scores), flush=True)


def click_through(slide: Any, truth: Mask, judged: Truth) -> list[float]:
    """Correct a slide by clicks; mean IoU before and after."""
    from ntrm.correct.ask import Name

    labels, scores = slide.mask.labels(), []
    for number in range(CLICKS + 1):
        corrections = slide.state()
        now = corrections.paint(labels)
        scores.append(judged.mean_iou(judged.confusion(truth, now)))
        seen = np.where((truth != IGNORE) & (labels != IGNORE), truth, 0)
        wrong = (truth != IGNORE) & (labels != IGNORE) & ~judged.right[seen, np.where(now == IGNORE, 0, now)]
        wrong &= ~corrections.by_hand.rows(0, *labels.shape)
        if number == CLICKS or not wrong.any():
            break
        place = middle_of_largest(np.where(wrong, truth, IGNORE))
        asked = Name(version=slide.log.version, points=[slide.point(place)], tissue=judged.name[truth[place]])
        step = slide.propose(asked).step(slide.mask.schema, slide.pixel_mm2)
        after = judged.confusion(truth, corrections.with_step(step).paint(labels))
        spread = ((after - judged.confusion(truth, now)) * judged.right).sum() > 0
        slide.take(asked.model_copy(update={"spread": spread}), origin="simulated")
    return [scores[0], scores[-1]]


def middle_of_largest(wrong: Mask) -> tuple[int, int]:
    """Of the largest connected region of one tissue the pixel that is farthest from its border."""
    from scipy import ndimage

    largest, found = 0, np.zeros(wrong.shape, dtype=bool)
    for tissue in np.unique(wrong[wrong != IGNORE]):
        numbers, count = ndimage.label(wrong == tissue)
        sizes = np.bincount(numbers.ravel(), minlength=count + 1)[1:]
        if sizes.max() > largest:
            largest, found = int(sizes.max()), numbers == sizes.argmax() + 1
    depth = ndimage.distance_transform_edt(np.pad(found, 1))[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row), int(column)


def draw_all(mask: Any, truth: Mask, judged: Truth) -> None:
    """A person draws every tissue of the truth."""
    from ntrm.correct.log import Step, append
    from ntrm.correct.pixels import PixelSet

    for index in np.unique(truth[truth != IGNORE]):
        pixels = PixelSet.of_window(truth == index, 0, 0, truth.shape[1])
        step = Step(action="draw", tissue=judged.name[index], named=pixels.text, origin="simulated")
        append(mask.folder, mask.record, step)


# --- training ---


def train(out: Path, known: Path, plan: str, changes: Sequence[str], device: str) -> None:
    """Train what the plan names, score each model, and keep one row a run."""
    from ntrm.training.recipe import load_recipe, parse_overrides
    from ntrm.training.train import train as train_network

    recipe = load_recipe("finetune", parse_overrides(list(changes)))
    keep_row(out, "bundled", lambda: {"arm": "bundled", "slides": 0, "seed": 0, **score(out, known, "bundled", device)})
    for arm, slides, seed in runs_of(plan):
        name = f"{arm}-{slides}-{seed}"

        def run(arm: str = arm, slides: int = slides, seed: int = seed, name: str = name) -> dict[str, Any]:
            started = time.perf_counter()
            result = train_network(
                known if arm.endswith("+") else None,
                out / "runs" / name,
                recipe=recipe,
                init="bundled",
                corrections=some_of(out, arm.rstrip("+"), slides),
                slides=out / "slides",
                trust=TRUST.get(arm.rstrip("+"), arm.rstrip("+")),
                seed=seed,
                device=device,
                resume=True,
                pictures=False,
            )
            seconds = time.perf_counter() - started
            pixels = sum(sum(slide["pixels"].values()) for slide in result.provenance["corrections"]["slides"])
            found = score(out, known, str(result.model), device)
            shutil.rmtree(result.folder / "checkpoints", ignore_errors=True)
            return {"arm": arm, "slides": slides, "seed": seed, "pixels": pixels, "seconds": seconds, **found}

        keep_row(out, name, run)


def runs_of(plan: str) -> Iterator[tuple[str, int, int]]:
    """``hand:1,2,4:0,1 …``: arm, numbers of slides, seeds."""
    for part in plan.split():
        arm, slides, seeds = part.split(":")
        if arm not in ARMS:
            raise SystemExit(f"unknown arm {arm}: one of {', '.join(ARMS)}")
        for seed in seeds.split(","):
            yield from ((arm, int(count), int(seed)) for count in slides.split(","))


def some_of(out: Path, arm: str, slides: int) -> Path:
    """Results in which only the first slides are corrected."""
    source = out / ("drawn" if arm == "drawn" else "clicked")
    folder = out / "some" / f"{'own' if arm == 'own' else source.name}-{slides}"
    if not folder.exists():
        shutil.copytree(source, folder)
        for number, log in enumerate(sorted(folder.glob(f"*/{CORRECTIONS}"))):
            if number >= slides or arm == "own":
                log.unlink()
            if number < slides and arm == "own":
                confirm_a_pixel(log.parent)
    return folder


def confirm_a_pixel(slide: Path) -> None:
    """A person says that the first pixel is right, and nothing else."""
    from ntrm.correct.log import Step, append
    from ntrm.correct.mask import open_mask

    mask = open_mask(slide)
    labels = mask.labels().ravel()
    first = int(np.flatnonzero(labels != IGNORE)[0])
    step = Step(action="draw", tissue=SKIN.names[labels[first]], named=f"{first}+1", origin="simulated")
    append(slide, mask.record, step)


def keep_row(out: Path, name: str, run: Callable[[], dict[str, Any]]) -> None:
    """Run what was not run yet."""
    path = out / "rows" / f"{name}.json"
    if not path.exists():
        row = run()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row))
        print({key: value for key, value in row.items() if key != "tissues"}, flush=True)


def score(out: Path, known: Path, model: str, device: str) -> dict[str, Any]:
    """Mean IoU over the pixels of all slides that nobody corrected, of each slide, and of what was known before.

    Of the latter, the two smallest sections of the test part. Windows have 256 pixels, whatever the training's.
    """
    from ntrm.data.split import open_splits
    from ntrm.models.predictor import Predictor
    from ntrm.models.registry import load
    from ntrm.models.windows import stitch

    network, judged = load(model), truth_of(out)
    network.describe(window=256)
    predictor, tables = Predictor(network, device, batch=4), {}
    for path in sorted((out / "test").glob("*.tif")):
        tables[path.stem] = judged.confusion(read_truth(out, path.stem), stitch(predictor, read_image(path)).mask)
    before = [
        PHANTOM.confusion(read_mask(case.mask, SKIN).mask, stitch(predictor, read_image(case.image)).mask)
        for case in sorted(open_splits(known)["test"], key=lambda case: case.image.stat().st_size)[:2]
    ]
    return {
        "iou": judged.mean_iou(np.sum([*tables.values()], axis=0)),
        "known": PHANTOM.mean_iou(np.sum(before, axis=0)),
        "by_slide": {name: judged.mean_iou(table) for name, table in tables.items()},
    }


def table(out: Path) -> None:
    """By arm and number of slides, each seed's: mean IoU on slides that nobody corrected, and on what was known."""
    rows = [json.loads(path.read_text()) for path in sorted((out / "rows").glob("*.json"))]
    counts = sorted({row["slides"] for row in rows})
    print("| arm |", " | ".join(str(count) for count in counts), "|")
    for arm in ("bundled", *ARMS):
        cells = []
        for count in counts:
            own = [row for row in rows if (row["arm"], row["slides"]) == (arm, count)]
            own.sort(key=lambda row: row["seed"])
            cells.append(", ".join(f"{row['iou']:.3f} ({row['known']:.3f})" for row in own))
        if any(cells):
            print(f"| {arm} |", " | ".join(cells), "|")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "cut", "click", "train", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--skin-pas", type=Path)
    parser.add_argument("--known", type=Path, help="sections such as the model has learned from before")
    parser.add_argument("--test", default="A1-2", help="section of skin-pas to score")
    parser.add_argument("--plan", default="hand:1,2,4:0 followed:1,2,4:0 drawn:1,2,4:0")
    parser.add_argument("--set", action="append", default=[], help="change a field of the recipe")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(arguments)
    steps: dict[str, Callable[[], None]] = {
        "draw": lambda: draw(asked.out),
        "cut": lambda: cut(asked.out, asked.skin_pas, asked.test),
        "click": lambda: click(asked.out, asked.device),
        "train": lambda: train(asked.out, asked.known, asked.plan, asked.set, asked.device),
        "table": lambda: table(asked.out),
    }
    steps[asked.what]()


if __name__ == "__main__":
    main()
