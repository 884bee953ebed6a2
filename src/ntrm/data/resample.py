"""Exact shrinking of images and masks by any factor, and the coarser resolutions of a dataset made with it.

Output pixel ``i`` of an axis covers the input interval ``[i·f, (i+1)·f)``, cut off at the input's end; an input
pixel counts by the length of it that lies inside. The factor is never bent to fit the size, so that µm/px are
exactly the input's times ``f``. An axis of ``n`` pixels becomes ``n / f`` pixels, rounded half up and at least 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ntrm.core.csv_text import read_columns, rows_text
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import remove_partials, write_bytes
from ntrm.core.labels import IGNORE, LabelSchema, Mask, pixel_counts
from ntrm.core.mpp import Resolution, level_factor, parse_levels
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.area_mean import Boxes, Factor, Pixels, area_boxes, bands, box_means, exact, weighted_sums
from ntrm.data.csv_tables import one_spelling
from ntrm.data.dataset import Case, Dataset, check_outside
from ntrm.data.image_files import image_size, read_image, read_mask, write_image, write_indexed_mask, write_rgb_mask
from ntrm.data.layouts import CASES, CLASSES, open_dataset


def shrunk_length(length: int, factor: Factor) -> int:
    """Pixels that are left of an axis: rounded half up, at least 1.

    >>> shrunk_length(25, 10), shrunk_length(24, 10), shrunk_length(3, 10), shrunk_length(5, 2.5)
    (3, 2, 1, 2)
    """
    step = exact(factor)
    return max(1, (2 * length * step.denominator + step.numerator) // (2 * step.numerator))


def area_average(image: Pixels, factor_y: Factor, factor_x: Factor) -> Pixels:
    """Shrink (H, W) or (H, W, C) pixels by averaging over areas, rounded half up; by 1 and 1, it is the image itself.

    >>> area_average(np.array([[0, 10, 20, 30, 40]], dtype=np.uint8), 1, 2.5).tolist()
    [[8, 32]]
    """
    down, across = _boxes(image.shape[0], factor_y), _boxes(image.shape[1], factor_x)
    planes = image.reshape(*image.shape[:2], -1)[: down.length, : across.length]
    means = box_means(planes, down, across)
    return means.reshape(*means.shape[:2], *image.shape[2:])


def majority_vote(mask: Mask, factor_y: Factor, factor_x: Factor, classes: int) -> Mask:
    """Shrink a mask: each label votes with its area, and ignore votes like a label.

    The largest area wins, and of equal areas the lowest index, so that ignore never wins a tie.

    >>> majority_vote(np.array([[0, 1, 1, 2, 255, 255, 3, 1]], dtype=np.uint8), 1, 2, classes=4).tolist()
    [[0, 1, 255, 1]]
    """
    down, across = _boxes(mask.shape[0], factor_y), _boxes(mask.shape[1], factor_x)
    out = np.empty((down.weights.shape[0], across.weights.shape[0]), dtype=np.uint8)
    for inside, outside, weights in bands(down, across.length):
        band, winner = mask[inside, : across.length], out[outside]
        most = np.zeros(winner.shape)
        present = np.flatnonzero(pixel_counts(band, classes))
        for label in np.where(present == classes, IGNORE, present).tolist():
            votes = weighted_sums((band == label)[..., None], weights, across)[..., 0].T
            winner[votes > most] = label
            np.maximum(most, votes, out=most)
    return out


def _boxes(length: int, factor: Factor) -> Boxes:
    """What each pixel covers that is left of an axis."""
    if exact(factor) < 1:
        raise RefusedError("pixels can only be shrunk", got=f"factor {float(factor):g}", expected="1 or more")
    return area_boxes(range(shrunk_length(length, factor)), factor, length)


SIDECARS = (CLASSES, CASES, "truth.json")  # Files that hold at every resolution (lengths in them are µm) and are copied


@dataclass(frozen=True)
class ResampleResult:
    """What was done."""

    out: Path
    levels: tuple[str | float, ...]  # Or the µm/px
    sections: int
    written: int  # Files written now
    skipped: int  # Files that were complete already, from an earlier run

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "out": str(self.out)}


class _Target(NamedTuple):
    """A resolution to derive a section at."""

    folder: Path
    factors: tuple[Fraction, Fraction]  # Along y and x
    resolution: Resolution


def parse_targets(text: str) -> tuple[str | float, ...]:
    """Levels, or µm/px.

    >>> parse_targets("2x,10x"), parse_targets("0.77")
    (('10x', '2x'), (0.77,))
    """
    if re.fullmatch(r"[0-9]*\.?[0-9]+", text):
        return (float(text),)
    if re.fullmatch(r"([ ,]*[0-9]+x)*[ ,]*", text):
        return parse_levels(text)
    expected = "whole downsample factors such as 2x,5x, or µm/px such as 0.77"
    raise UsageError("unknown resolution", got=repr(text), expected=expected)


def resample_dataset(
    dataset: Dataset | Path, levels: Sequence[str | float], out: Path, *, jobs: int = 1, progress: Progress = SILENT
) -> ResampleResult:
    """Write the sections of ``dataset`` at coarser ``levels`` to ``out``, in the same layout.

    In the layout queensland a level is a downsample factor of the originals, and each section is derived from
    its finest level present. In the layout plain a level is a factor of the images as they are, and there can
    be only one. A number in place of levels is the µm/px of square pixels, in the layout plain. Files that are
    there already are left alone, so that an interrupted run goes on, but for those whose source is newer.
    """
    if not isinstance(dataset, Dataset):
        dataset = open_dataset(dataset)
    if dataset.layout == "masks":
        raise RefusedError(f"{dataset.root} has only masks", expected="a dataset with images")
    plain = dataset.layout == "plain" or not all(isinstance(level, str) for level in levels)
    if not levels or (plain and len(levels) > 1):
        expected = "one number of µm/px, one level for layout plain, or one or more for layout queensland"
        raise UsageError("wrong number of resolutions", got=", ".join(map(str, levels)) or "none", expected=expected)
    check_outside(out, dataset.root)
    cases = list({case.name: case for case in dataset}.values())  # Datasets begin with their coarsest level
    targets = [tuple(_target(case, level, out / ("" if plain else str(level))) for level in levels) for case in cases]
    for folder in {each.folder / name for section in targets for each in section for name in ("Images", "Masks")}:
        remove_partials(folder)
    resolutions = {case.name: one.resolution for case, (one, *_) in zip(cases, targets, strict=True) if plain}
    _copy_sidecars(replace(dataset, cases=tuple(cases)), resolutions, out)
    work = partial(_derive, schema=dataset.schema, plain=plain)
    sections = parallel_map(work, list(zip(cases, targets, strict=True)), jobs)
    written = sum(progress.track(sections, len(cases), "resampling"))
    wanted = len(levels) * sum((case.image is not None) + (case.mask is not None) for case in cases)
    return ResampleResult(out, tuple(levels), len(cases), written, skipped=wanted - written)


def _target(case: Case, level: str | float, folder: Path) -> _Target:
    own = case.resolution
    if own is None:
        raise RefusedError(f"no µm per pixel for {case.name}", hint="add it to cases.csv, column mpp")
    if isinstance(level, str):
        present = level_factor(case.level) if case.level else 1
        down = across = Fraction(level_factor(level), present)
    else:
        wanted = Resolution.square(level)
        down, across = (Fraction(str(wanted.x)) / Fraction(str(axis)) for axis in (own.y, own.x))
        if min(down, across) < 1 and own.same_as(wanted):
            down, across, wanted = Fraction(1), Fraction(1), own
    if min(down, across) < 1:
        expected = f"{case.level or own} or coarser"
        raise RefusedError(f"{case.name} cannot be made finer than it is", got=f"{level} wanted", expected=expected)
    return _Target(folder, (down, across), own.downsampled(float(down)) if isinstance(level, str) else wanted)


def _derive(section: tuple[Case, tuple[_Target, ...]], *, schema: LabelSchema, plain: bool) -> int:
    """Write what is missing of a section; returns how many files that were."""
    (case, targets), written = section, 0
    for source, file in ((case.image, f"Images/{case.name}.tif"), (case.mask, f"Masks/{case.name}.png")):
        missing = [each for each in targets if source and not _is_done(each.folder / file, source, each.factors)]
        if source is None or not missing:
            continue
        pixels = read_image(source) if source == case.image else read_mask(source, schema).mask
        for folder, factors, resolution in missing:
            if source == case.image:
                write_image(folder / file, area_average(pixels, *factors), resolution)
                continue
            votes = majority_vote(pixels, *factors, len(schema))
            # In RGB ignore is white: much of it is a fault, and it may be the colour of a class.
            write_mask = write_indexed_mask if plain or IGNORE in votes else write_rgb_mask
            write_mask(folder / file, votes, schema)
        written += len(missing)
    return written


def _is_done(path: Path, source: Path, factors: tuple[Fraction, Fraction]) -> bool:
    """Whether the file is there and newer than its source; one of another size is none of ours."""
    if not path.exists():
        return False
    (height, width), size = map(shrunk_length, image_size(source), factors), image_size(path)
    if size != (height, width):
        raise _occupied(path, got=f"{size[1]} × {size[0]} pixels", expected=f"{width} × {height} pixels")
    return path.stat().st_mtime_ns > source.stat().st_mtime_ns


def _occupied(path: Path, **details: str) -> RefusedError:
    hint = "choose an empty --out, or remove what is there"
    return RefusedError(f"{path} already exists and is something else", hint=hint, **details)


def _copy_sidecars(dataset: Dataset, resolutions: Mapping[str, Resolution], out: Path) -> None:
    """``resolutions`` by section for the layout plain; empty where folders tell them."""
    for name in SIDECARS:
        source = next((base / name for base in (dataset.root, dataset.root / "data") if (base / name).is_file()), None)
        if name == CASES and (source or resolutions):
            content = _cases_table(dataset, source, resolutions)
        elif source is not None:
            content = source.read_bytes()
        else:
            continue
        path = out / name
        if path.exists() and path.read_bytes() != content:
            raise _occupied(path)
        write_bytes(path, content)
    if resolutions and not (out / CLASSES).exists():
        dataset.schema.write_csv(out / CLASSES)


def _cases_table(dataset: Dataset, path: Path | None, resolutions: Mapping[str, Resolution]) -> bytes:
    """``cases.csv`` with new µm per pixel, or without where folders tell it; all other columns unchanged."""
    if path is not None:
        columns, rows = read_columns(path, ("name",))
    else:
        columns = ("name", "group", "split", "cancer")
        rows = [{name: getattr(case, name) or "" for name in columns} for case in dataset]
    columns = (*columns, *(["mpp"] if resolutions and "mpp" not in columns else []))
    for row in rows:
        new = resolutions.get(one_spelling(row["name"]))
        if "mpp" in columns:
            row["mpp"] = f"{new.x:.10g}" if new else ""
        if row.get("mpp_y"):
            row["mpp_y"] = f"{new.y:.10g}" if new else ""
    return rows_text([columns, *(row.values() for row in rows)]).encode()
