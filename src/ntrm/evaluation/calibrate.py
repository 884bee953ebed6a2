"""Make a network as sure as it is right: a temperature from the validation part, written into its folder.

The temperature is fitted on single windows, as the network sees them, from a sample of their pixels; always from the
logits as they come (temperature 1), so that calibrating again finds the same. Before and after are then counted on
whole stitched sections, as ``ntrm evaluate`` counts them. The weights are not touched, and as a window's most probable
class does not depend on the temperature, only where windows overlap can a class change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import write_json, write_text
from ntrm.core.labels import IGNORE
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import TileCache
from ntrm.data.dataset import Dataset
from ntrm.data.split import DatasetSplits, few_sections, open_splits
from ntrm.data.tensors import TileDataset
from ntrm.evaluation.loaded_model import class_table, open_subject
from ntrm.evaluation.sections import BINS, SectionAccumulator
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.metrics.calibration import TEMPERATURES, CalibrationCounts, fit_temperature
from ntrm.models.base import SegmentationModel
from ntrm.models.folders import BUNDLED, CARD, CONFIG, model_card
from ntrm.version import __version__

PIXELS_PER_WINDOW = 2_000
MOST_PIXELS = 1_000_000
"""Pixels the temperature is fitted on: of each window, and of all together."""

SHOWN = 3
"""Sections whose confidence and entropy are drawn."""

DOCUMENT, RELIABILITY = "calibration.json", "reliability.png"
CARD_ROW = "| temperature |"
LEAST = float(np.finfo(np.float32).tiny)

Floats = NDArray[np.float32]
Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Calibrated:
    """The temperature that was found, and what it does on the part it was found on."""

    model: Path
    temperature: float
    previous: float
    """What the model had before."""
    before: CalibrationCounts
    """At temperature 1, stitched."""
    after: CalibrationCounts
    data: dict[str, Any]
    pixels: int
    """Pixels the temperature was fitted on."""
    windows: int
    """Windows they are from."""
    out: Path

    @property
    def at_limit(self) -> bool:
        """Whether the search ended at the end of its range: then the probabilities are of little use."""
        return any(abs(self.temperature / limit - 1) < 1e-3 for limit in TEMPERATURES)

    def as_dict(self) -> dict[str, Any]:
        """``calibration.json``."""
        return {
            "program": __version__,
            "model": str(self.model),
            "temperature": self.temperature,
            "previous_temperature": self.previous,
            "at_limit": self.at_limit,
            "data": self.data,
            "fitted_on": {"windows": self.windows, "pixels": self.pixels},
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
        }


def calibrate(
    model_folder: str | Path,
    data: Path,
    *,
    resolution: str | None = None,
    split: str = "val",
    splits: Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    batch: int = 16,
    seed: int = 0,
    out: Path | None = None,
    pictures: bool = True,
    progress: Progress = SILENT,
) -> Calibrated:
    """Fit a temperature and store it in the ``config.json`` of a model folder; the weights stay as they are.

    Args:
        model_folder: a folder of one's own; a hub id or ``bundled`` is refused.
        data: dataset folder; its µm/px must be the network's, its classes are matched by name.
        resolution: resolution level, where the dataset has several.
        split: part to fit on; never the one that is to be evaluated.
        splits: what ``ntrm data split`` wrote, to be used in place of the dataset's own splits.
        device: where the network runs.
        precision: of the network.
        batch: windows predicted at a time.
        seed: of the choice of pixels.
        out: folder for ``calibration.json`` and the pictures; ``calibration`` beside a folder called ``model``.
        pictures: also draw.
        progress: told about windows and sections.

    """
    folder = _own_folder(model_folder)
    out = _claim(default_out(folder) if out is None else Path(out))
    subject, parts = open_subject(folder), open_splits(Path(data), resolution=resolution, splits=splits)
    network = subject.network
    previous, part = network.config.temperature, parts[split]
    table = class_table(network.config, parts)
    plain = Predictor(network.describe(temperature=1.0), device, precision=precision, batch=batch)
    scores, labels, windows = sample_pixels(plain, part, seed=seed, progress=progress)
    temperature = float(f"{fit_temperature(scores, labels, axis=0):.6g}")
    tempered = Predictor(network.describe(temperature=temperature), device, precision=precision, batch=batch)
    found = Calibrated(
        model=folder,
        temperature=temperature,
        previous=previous,
        before=count_calibration(plain, parts, part, table, progress),
        after=count_calibration(tempered, parts, part, table, progress),
        data=_describe(parts, part, split),
        pixels=labels.size,
        windows=windows,
        out=out,
    )
    _write_findings(found, tempered, parts, part, pictures=pictures)
    # Last: until everything else has worked, the model is as it was.
    store_temperature(folder, network)
    return found


def default_out(folder: Path) -> Path:
    """Where the findings go if nothing is said.

    >>> default_out(Path("run/model")).as_posix(), default_out(Path("skin-v2")).as_posix()
    ('run/calibration', 'skin-v2-calibration')
    """
    return folder.parent / ("calibration" if folder.name == "model" else f"{folder.name}-calibration")


def sample_pixels(
    predictor: Predictor, part: Dataset, *, seed: int = 0, progress: Progress = SILENT
) -> tuple[Floats, Labels, int]:
    """Log-probabilities (K, N) and true classes (N,) of pixels drawn from the windows of a part; number of windows."""
    config = predictor.config
    tiles = TileDataset(part, size=config.window, schema=config.schema)
    share = max(1, min(PIXELS_PER_WINDOW, MOST_PIXELS // len(tiles)))
    scores: list[Floats] = []
    labels: list[Labels] = []
    batches = [range(len(tiles))[start : start + predictor.batch] for start in range(0, len(tiles), predictor.batch)]
    for some in progress.track(batches, total=len(batches), label="batches of windows"):
        loaded = [tiles[number] for number in some]
        pixels = torch.stack([tile.image for tile in loaded]).permute(0, 2, 3, 1)  # (B, S, S, 3)
        maps = predictor.probabilities(pixels).final.flatten(2)  # (B, K, S·S)
        for number, tile, map_ in zip(some, loaded, maps, strict=True):
            truth = tile.mask.numpy().ravel()
            chosen = _draw(truth, share, [seed, number])
            picked = map_[:, torch.from_numpy(chosen).to(map_.device)]
            scores.append(picked.clamp(min=LEAST).log().cpu().numpy())
            labels.append(truth[chosen])
    return np.concatenate(scores, axis=1), np.concatenate(labels), len(tiles)


def _draw(truth: Labels, most: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """Places of at most ``most`` known pixels, in order; of one window the same whatever the batch."""
    known = np.flatnonzero(truth != IGNORE)
    if len(known) <= most:
        return known
    return np.sort(np.random.default_rng(seed).choice(known, most, replace=False))


def count_calibration(
    predictor: Predictor, parts: DatasetSplits, part: Dataset, table: Labels, progress: Progress = SILENT
) -> CalibrationCounts:
    """Confidence against accuracy over the stitched sections of a part."""
    stitching, cache = Stitching(predictor.config.window), TileCache()
    total = CalibrationCounts.none(BINS)
    label = f"sections at temperature {predictor.config.temperature:.3g}"
    for case in progress.track(part, total=len(part), label=label):
        section = cache.open(case, parts.schema)
        tally = SectionAccumulator(table[section.mask], predictor.config.classes)
        stitch(predictor, section.image, stitching=stitching, watch=tally)
        total += tally.calibration
    return total


def store_temperature(folder: Path, network: SegmentationModel) -> None:
    """Write the network's temperature into the card and the config of its folder; the weights are not touched."""
    path = folder / CONFIG
    document = json.loads(path.read_text(encoding="utf-8"))
    card = folder / CARD
    if card.is_file():
        text = card.read_text(encoding="utf-8")
    else:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        text = model_card(network.config, parameters, document["weights_sha256"])
    write_text(card, card_with_temperature(text, network.config.temperature))
    write_json(path, {**document, "temperature": network.config.temperature})


def card_with_temperature(card: str, temperature: float) -> str:
    r"""A model card with a row for the temperature, and otherwise as it was: people may have written in it.

    >>> card_with_temperature("| | |\n|---|---|\n| window | 256 |\n", 1.5)
    '| | |\n|---|---|\n| temperature | 1.5 |\n| window | 256 |\n'
    """
    row = f"{CARD_ROW} {temperature:g} |"
    lines = card.splitlines()
    old = [number for number, line in enumerate(lines) if line.startswith(CARD_ROW)]
    rulers = [number for number, line in enumerate(lines) if line == "|---|---|"]
    if old:
        lines[old[0]] = row
    elif rulers:
        lines.insert(rulers[0] + 1, row)
    else:
        lines += ["", "| | |", "|---|---|", row]
    return "\n".join(lines) + "\n"


def _write_findings(
    found: Calibrated, predictor: Predictor, parts: DatasetSplits, part: Dataset, *, pictures: bool
) -> None:
    found.out.mkdir(parents=True, exist_ok=True)
    for path in (found.out / RELIABILITY, *_map_paths(found.out)):
        path.unlink(missing_ok=True)  # of an earlier calibration
    if pictures:
        from ntrm.report.charts import reliability_figure
        from ntrm.report.drawing import write_figure
        from ntrm.report.picture_grids import uncertainty_figure

        write_figure(found.out / RELIABILITY, reliability_figure, found.before, found.after)
        stitching, schema = Stitching(predictor.config.window), predictor.config.schema
        shown = few_sections(part, min(SHOWN, len(part)))
        for case, path in zip(shown, _map_paths(found.out), strict=False):
            image = TileCache().open(case, parts.schema).image
            seen = stitch(predictor, image, stitching=stitching)
            maps = (seen.mask, seen.confidence, seen.entropy)
            write_figure(path, uncertainty_figure, case.name, image, *maps, schema)
    write_json(found.out / DOCUMENT, found.as_dict())


def _map_paths(out: Path) -> Iterator[Path]:
    return (out / f"confidence-{number}.png" for number in range(1, SHOWN + 1))


def _own_folder(model: str | Path) -> Path:
    """The model's folder, if it is one that may be written to."""
    folder, text = Path(model), str(model)
    # The name comes before a folder of that name, as it does in loading.
    if text == BUNDLED or not folder.is_dir():
        if text == BUNDLED or (text.count("/") == 1 and not text.startswith((".", "/", "~"))):
            raise RefusedError(
                "only a model folder of your own can be calibrated",
                got=text,
                expected=f"a folder with {CONFIG}",
                hint=f'copy it first: ntrm.load("{text}").save_pretrained("my-model")',
            )
        raise DataError("no such model", got=text, expected=f"a folder with {CONFIG}")
    if not os.access(folder, os.W_OK):
        raise RefusedError("the model folder cannot be written to", got=folder, hint="copy it first")
    return folder


def _claim(out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise UsageError("the output is not a folder", got=out, hint="choose another --out")
    return out


def _describe(parts: DatasetSplits, part: Dataset, split: str) -> dict[str, Any]:
    return {
        "fingerprint": parts.fingerprint(split),
        "split": split,
        "level": part.cases[0].level,
        "mpp": parts.resolution.mean,
        "sections": len(part),
        "patients": len({case.group for case in part}),
    }
