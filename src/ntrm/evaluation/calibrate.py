"""Calibrate a model: fit its temperature and build its familiarity reference; both are stored in its folder.

The temperature is fitted on a sample of pixels of single windows, always from the logits at temperature 1, so that
calibrating again finds the same. Calibration before and after is then counted on whole stitched sections, as
``ntrm evaluate`` counts it. The weights are not touched. A window's most probable class does not depend on the
temperature: a class can change only where windows overlap.

The reference (``ntrm.familiarity``) is what slides are compared with, so that the program can say when one is unlike
the sections that the network was trained on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ntrm.core.arrays import Singles
from ntrm.core.errors import RefusedError, check_seed, plain_number
from ntrm.core.io import check_folder, check_writable, sha256_of, write_json, write_text
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.progress import SILENT, Progress, as_progress
from ntrm.core.wording import short_repr
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Dataset, check_outside
from ntrm.data.split import open_splits, trained_on
from ntrm.data.tensors import TileDataset
from ntrm.evaluation.evaluate import class_table, describe_data
from ntrm.evaluation.sections import BINS, SectionAccumulator
from ntrm.familiarity.build import build_reference
from ntrm.metrics.calibration import TEMPERATURES, CalibrationCounts, fit_temperature
from ntrm.models.base import SegmentationModel
from ntrm.models.folders import BUNDLED, CARD, CONFIG, WEIGHTS
from ntrm.models.predictor import Predictor
from ntrm.models.registry import load
from ntrm.models.windows import Stitching, stitch
from ntrm.version import __version__

PIXELS_PER_WINDOW = 2_000
MOST_PIXELS = 1_000_000  # Pixels the temperature is fitted on: of each window, and of all together

DOCUMENT, RELIABILITY = "calibration.json", "reliability.png"
LEAST = float(np.finfo(np.float32).tiny)

Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Calibrated:
    """The fitted temperature, and its effect on the split that it was fitted on."""

    model: Path
    temperature: float
    previous: float  # What the model had before
    before: CalibrationCounts  # At temperature 1, stitched
    after: CalibrationCounts
    data: dict[str, Any]
    pixels: int  # Pixels the temperature was fitted on
    windows: int  # Windows they are from
    out: Path
    reference: dict[str, Any] | None = None  # What the reference was made from; None where none was made
    no_reference: str = ""  # Why none was made although it was asked for
    doubts: tuple[str, ...] = ()  # What makes the temperature doubtful

    __repr__ = short_repr

    @property
    def at_limit(self) -> bool:
        """Whether the temperature is at an end of its range: then the probabilities are of little use."""
        return any(abs(self.temperature / limit - 1) < 1e-3 for limit in TEMPERATURES)

    def as_dict(self) -> dict[str, Any]:
        """``calibration.json``."""
        return {
            "program": __version__,
            "model": str(self.model),
            "previous_temperature": self.previous,
            "fitted_on": {"windows": self.windows, "pixels": self.pixels},
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "notes": list(self.doubts),
            **{name: getattr(self, name) for name in ("temperature", "at_limit", "data", "reference", "no_reference")},
        }


def calibrate(
    model_folder: str | Path,
    data: str | Path,
    *,
    resolution: str | None = None,
    split: str = "val",
    splits: str | Path | None = None,
    device: str | torch.device = "auto",
    precision: str = "auto",
    batch: int = 16,
    seed: int = 0,
    out: str | Path | None = None,
    pictures: bool = True,
    reference: bool = True,
    progress: Progress | bool = True,
) -> Calibrated:
    """Fit a temperature and make a reference, both stored in the model folder; the weights stay as they are.

    Args:
        model_folder: a folder of one's own; a hub id or ``bundled`` is refused.
        data: dataset folder; its µm/px must be the network's, its classes are matched by name.
        resolution: resolution level, where the dataset has several.
        split: what to fit on; never the split that is to be evaluated.
        splits: what ``ntrm data split`` wrote, to be used in place of the dataset's own splits.
        device: where the network runs.
        precision: of the network.
        batch: windows predicted at a time.
        seed: of the choice of pixels.
        out: folder for ``calibration.json`` and the pictures; by default next to the model folder.
        pictures: also draw.
        reference: also make the reference, from the splits ``train`` and ``split``.
        progress: whether to show windows and sections, in a terminal or a notebook; or what shows them.

    """
    check_seed(seed)
    seed, progress = plain_number(seed), as_progress(progress)
    folder = Path(model_folder)
    # The bundled model takes precedence over a folder of that name, as it does in loading.
    if str(model_folder) == BUNDLED or not folder.is_dir():
        hint = f'copy another model first: ntrm.load("{model_folder}").save_pretrained("my-model")'
        what, expected = "only a local model folder can be calibrated", f"a folder with {CONFIG}"
        raise RefusedError(what, got=model_folder, expected=expected, hint=hint)
    check_writable(folder)
    out = default_out(folder) if out is None else Path(out)
    check_outside(out, Path(data))
    check_folder(out)
    # Not with its reference: a damaged one is to be made anew here.
    network, data_splits = load(folder), open_splits(Path(data), resolution=resolution, splits=splits)
    previous, sections = network.config.temperature, data_splits[split]
    table = class_table(network.config, data_splits)
    predictor = Predictor(network.describe(temperature=1.0), device, precision=precision, batch=batch)
    scores, labels, windows = sample_pixels(predictor, sections, seed=seed, progress=progress)
    before = count_calibration(predictor, data_splits.schema, sections, table, progress)
    seen = trained_on(network.config.trained_on, sections)
    too_sure = "it is surer there than elsewhere; calibrate with a part that it has not seen (--split, --splits)"
    temperature = float(f"{fit_temperature(scores, labels):.6g}")
    network.describe(temperature=temperature)  # from here on the predictor has it
    calibrated = Calibrated(
        model=folder,
        temperature=temperature,
        previous=previous,
        before=before,
        after=count_calibration(predictor, data_splits.schema, sections, table, progress),
        data=describe_data(data_splits, split),
        pixels=labels.size,
        windows=windows,
        out=out,
        doubts=(f"{seen}: {too_sure}",) if seen else (),
    )
    made = None
    try:
        if reference:
            made = build_reference(predictor, data_splits, held_out=split, seed=seed, progress=progress)
            calibrated = replace(calibrated, reference=dict(made.about))
    except RefusedError as error:  # a dataset of few sections is good enough for a temperature
        calibrated = replace(calibrated, no_reference=f"{error.what}: {error.got}, expected {error.expected}")
    out.mkdir(parents=True, exist_ok=True)
    (out / RELIABILITY).unlink(missing_ok=True)  # of an earlier calibration
    if pictures:
        from ntrm.report.charts import reliability_figure
        from ntrm.report.drawing import write_figure

        write_figure(out / RELIABILITY, reliability_figure, calibrated.before, calibrated.after)
    write_json(out / DOCUMENT, calibrated.as_dict())
    # Last: until everything else has worked, the model is as it was.
    store_temperature(folder, network)
    if made is not None:
        made.write(folder, sha256_of(folder / WEIGHTS))
    return calibrated


def default_out(folder: Path) -> Path:
    """Where the results go by default.

    >>> default_out(Path("run/model")).as_posix(), default_out(Path("skin-v2")).as_posix()
    ('run/calibration', 'skin-v2-calibration')
    """
    return folder.parent / ("calibration" if folder.name == "model" else f"{folder.name}-calibration")


def sample_pixels(
    predictor: Predictor, sections: Dataset, *, seed: int = 0, progress: Progress = SILENT
) -> tuple[Singles, Labels, int]:
    """Log-probabilities (K, N) and true classes (N,) of pixels sampled from all windows; number of windows."""
    config, size = predictor.config, predictor.batch
    tiles = TileDataset(sections, size=config.window, schema=config.schema)
    per_window = max(1, min(PIXELS_PER_WINDOW, MOST_PIXELS // len(tiles)))
    scores: list[Singles] = []
    labels: list[Labels] = []
    batches = [range(len(tiles))[start : start + size] for start in range(0, len(tiles), size)]
    for batch in progress.track(batches, total=len(batches), label="batches of windows"):
        loaded = [tiles[number] for number in batch]
        pixels = torch.stack([tile.image for tile in loaded]).permute(0, 2, 3, 1)  # (B, S, S, 3)
        maps = predictor.probabilities(pixels).final.flatten(2)  # (B, K, S·S)
        for number, tile, probabilities in zip(batch, loaded, maps, strict=True):
            truth = tile.mask.numpy().ravel()
            # The same pixels, in order, whatever batch the window is in.
            chosen = np.flatnonzero(truth != IGNORE)
            if len(chosen) > per_window:
                chosen = np.sort(np.random.default_rng([seed, number]).choice(chosen, per_window, replace=False))
            picked = probabilities[:, torch.from_numpy(chosen).to(probabilities.device)]
            scores.append(picked.clamp(min=LEAST).log().cpu().numpy())
            labels.append(truth[chosen])
    return np.concatenate(scores, axis=1), np.concatenate(labels), len(tiles)


def count_calibration(
    predictor: Predictor, schema: LabelSchema, sections: Dataset, table: Labels, progress: Progress
) -> CalibrationCounts:
    """Confidence against accuracy over stitched sections; ``schema`` is the dataset's."""
    stitching, cache = Stitching(predictor.config.window), SectionCache()
    total = CalibrationCounts.none(BINS)
    label = f"sections at temperature {predictor.config.temperature:.3g}"
    for case in progress.track(sections, total=len(sections), label=label):
        section = cache.open(case, schema)
        counted = SectionAccumulator(table[section.mask], predictor.config.classes)
        stitch(predictor, section.image, stitching=stitching, watch=counted)
        total += counted.calibration
    return total


def store_temperature(folder: Path, network: SegmentationModel) -> None:
    """Write the network's temperature into the card and the config of its folder; the weights are not touched."""
    temperature, card, config = network.config.temperature, folder / CARD, folder / CONFIG
    if card.is_file():
        row = f"| temperature | {temperature:g} |"
        write_text(card, re.sub(r"(?m)^\| temperature \|.*$", row, card.read_text(encoding="utf-8"), count=1))
    write_json(config, {**json.loads(config.read_text(encoding="utf-8")), "temperature": temperature})
