"""``corrected/``: the files of a slide once more, made from the network's mask and the log of corrections alone.

No slide file and no model: the picture is ``slide.jpg``, pieces and confidences are those of the segmentation. What a
person named or accepted has no confidence of the network's, so each region says which fractions of it were named by
hand and followed, and its mean confidence is that of the rest. The same log gives the same bytes.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError
from ntrm.core.io import holding, writing
from ntrm.correct.log import Log
from ntrm.correct.mask import SlideMask, corrections_in
from ntrm.correct.pixels import union
from ntrm.correct.state import State
from ntrm.data.tiles import Window
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import Regions
from ntrm.regions.runs import Where
from ntrm.results import paths
from ntrm.results.documents import AGAIN, Correction, crumb_warnings, read_summary
from ntrm.results.folder import SlideFolder
from ntrm.results.manifest import Manifest
from ntrm.results.tables import write_tables
from ntrm.segment.measurements import measure_pieces, scan_slide
from ntrm.segment.pictures import tinted, write_overlays
from ntrm.segment.slide_files import SlideFiles
from ntrm.slides.pieces import PieceMap

ROWS = 256  # Of a mask that are looked at together


def write_corrected(mask: SlideMask) -> None:
    """Make ``corrected/`` from mask and log, whole or not at all; removes it where no correction counts."""
    SlideFolder(mask.folder).check()
    hidden, target = mask.folder / paths.HIDDEN, mask.folder / paths.CORRECTED
    with holding(hidden / paths.CORRECTED_LOCK, wait=True), writing(target):
        log, corrections = corrections_in(mask)
        new, old = hidden / paths.CORRECTED_NEW, hidden / paths.CORRECTED_OLD
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if corrections.steps:
            new.mkdir()
            _write(mask, log, corrections, new)
        if target.is_dir():
            target.rename(old)
        if corrections.steps:
            new.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def correction_in(folder: Path) -> Correction | None:
    """What a slide's ``corrected/`` was made from; None where there is none."""
    try:
        return read_summary(folder / paths.CORRECTED).corrected
    except DataError:
        return None


def is_current(folder: Path, log: Log) -> bool:
    """Whether ``corrected/`` is what ``write_corrected`` would make: nothing, where no correction counts."""
    found = correction_in(folder)
    return (None if found is None else found.log) == (log.fingerprint if log.active else None)


def _write(mask: SlideMask, log: Log, corrections: State, folder: Path) -> None:
    summary, kept, state = mask.summary, SlideFolder(mask.folder), mask.segmented[0]
    # The network's regions as the segmentation had them: the same engine, the same pieces, and its confidences.
    grid, before = PieceMap.read(mask.folder / paths.HIDDEN / paths.PIECES, hint=AGAIN), mask.labels()
    network, confidence = mask.network_regions
    labels, grid = corrections.paint(before), grid.with_tissue(_new_tissue(corrections, grid, mask))
    regions = scan_slide(labels, None, grid, schema=mask.schema, resolution=mask.resolution)
    regions = replace(regions, table=_with_origins(regions, network, confidence, corrections))
    pieces = measure_pieces(regions, grid, summary.familiarities, schema=mask.schema)
    about = {name: getattr(summary, name) for name in ("program", "model", "options", "purpose")}
    run = Manifest(**about, classes=mask.schema.names)
    correction = Correction(
        steps=len(corrections.steps),
        regions=corrections.regions,
        # A place that was named twice counts once.
        area_mm2=union([corrections.by_hand, corrections.followed]).pixels * mask.resolution.pixel_area_um2 / 1e6,
        log=log.fingerprint,
    )
    files = SlideFiles(folder, summary.slide_id, summary.grid, mask.schema, run, correction)
    familiarity = summary.familiarities
    found = files.summary(
        regions,
        pieces,
        familiarity,
        quality=summary.quality,
        # What crumbs hold may have been corrected, too.
        quality_warnings=[text for text in summary.quality_warnings if text not in crumb_warnings(summary.cancers)],
        small_regions=summary.small_regions,
        stain_norm=summary.stain_norm,
    )
    files.write_mask(labels)
    files.write_polygons(regions, familiarity)
    files.write_graph(regions, pieces)
    found.write(folder)
    tables = state.with_foot(files.run.cells(), files.tables(found, regions, pieces))
    write_tables(folder, [tables], [*state.covariates])
    for name in (paths.PICTURE, paths.FAMILIARITY_MAP):
        if kept.has(name):
            shutil.copyfile(mask.folder / name, folder / name)
    try:
        picture = np.asarray(kept.picture(paths.PICTURE)[1].convert("RGB"))
    except OSError as error:
        raise DataError(f"{mask.folder.name}: cannot read {paths.PICTURE}", got=error, hint=AGAIN) from error
    write_overlays(folder, tinted(picture, labels, mask.schema), labels.shape, mask.schema, mask.resolution, found)
    if (mask.folder / paths.REPORT).is_file():
        from ntrm.report.slide_report import write_slide_report

        write_slide_report(folder)


def _new_tissue(corrections: State, pieces: PieceMap, mask: SlideMask) -> Where:
    """(H, W) on the grid of the pieces: where a person says that there is tissue."""
    found = np.zeros(pieces.numbers.shape, dtype=bool)
    named = [pixels for index, pixels in corrections.tissue.items() if index != mask.schema.background_index]
    tissue, (height, width) = union(named), mask.shape
    rows, columns = pieces.cells(mask.resolution, Window(0, 0, height, width))
    for top in range(0, height, ROWS):
        row, column = np.nonzero(tissue.rows(top, min(ROWS, height - top), width))
        found[rows[row + top], columns[column]] = True
    return found


def _with_origins(regions: Regions, network: Regions, sure: Floats, corrections: State) -> RegionTable:
    """The table of corrected regions with their origins; how ``sure`` the network was, if not by hand and not followed.

    Exact, from the stretches between all borders: those of both masks' runs and of the corrections.
    """
    size = regions.runs.shape[0] * regions.runs.shape[1]
    bounds = [edge for each in (corrections.by_hand, corrections.followed) for edge in (each.start, each.stop)]
    cut = np.unique(np.concatenate([regions.runs.start, network.runs.start, *bounds]))
    cut = cut[cut < size]
    length = np.diff(cut, append=size).astype(np.float64)
    region, before = (each.region[each.runs.at(cut)] for each in (regions, network))
    own, count = region >= 0, len(regions.table)

    def summed(weight: NDArray[Any]) -> Floats:
        return np.bincount(region[own], (length * weight)[own], count).astype(np.float64)

    by_hand, followed = corrections.by_hand.holds(cut), corrections.followed.holds(cut)
    followed &= ~by_hand
    kept = ~(by_hand | followed) & (before >= 0) & ~np.isnan(sure[before])
    confidence = np.nan_to_num(sure[before])
    rest = summed(kept)
    mean = np.divide(summed(kept * confidence), rest, out=np.full(count, np.nan), where=rest > 0)
    person = np.stack([summed(by_hand), summed(followed)], axis=1) / regions.table.pixels[:, None]
    return replace(regions.table, confidence=mean, person=person)
