"""A page about a dataset: contact sheet, shares of tissues, who borders on whom, faults."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ntrm.core.progress import SILENT, Progress
from ntrm.data.check import CheckReport
from ntrm.data.dataset import Dataset
from ntrm.data.stats import DatasetStats
from ntrm.report.contact_sheet import contact_sheet
from ntrm.report.data_figures import stats_figure
from ntrm.report.page import Markup, paragraph, picture, section, swatch, table, write_page


def dataset_page(
    path: Path,
    dataset: Dataset,
    stats: DatasetStats,
    check: CheckReport,
    *,
    more: Sequence[Markup] = (),
    progress: Progress = SILENT,
) -> None:
    """Write one self-contained HTML page about the dataset; ``more`` comes after the pictures of it."""
    with tempfile.TemporaryDirectory() as folder:
        sheet, figure = Path(folder, "sheet.png"), Path(folder, "stats.png")
        shown = contact_sheet(dataset, sheet, columns=3, progress=progress)
        stats_figure(stats, figure)
        document = stats.as_dict()
        parts = [
            section("Sections", picture(sheet, f"{shown} of {len(dataset)} sections: image and mask.")),
            section("Tissues", picture(figure, "Share of the pixels, and of each tissue's boundary."), _tissues(stats)),
            *more,
            section("Numbers", _numbers(document)),
            section("Check", _faults(check)),
        ]
        sections, patients = document["sections"], document["patients"]
        lead = (
            f"{sections} sections of {patients} patients, {document['tissues_per_tile']['mean']:.1f} tissues per tile."
        )
        write_page(path, f"Dataset {dataset.root.name}", lead, parts)


def _tissues(stats: DatasetStats) -> Markup:
    rows = []
    for tissue, share, boundary in zip(stats.schema.tissues, stats.pixel_share, stats.boundary_share, strict=True):
        nearest = sorted(range(len(stats.schema)), key=lambda k: -boundary[k])[:3]
        neighbours = ", ".join(f"{stats.schema.names[k]} {boundary[k]:.0%}" for k in nearest if boundary[k] >= 0.05)
        rows.append([swatch(tissue.rgb, tissue.name), tissue.explanation, f"{share:.1%}", neighbours or "–"])
    return table(["tissue", "", "share of pixels", "borders most on"], rows)


def _numbers(document: dict[str, object]) -> Markup:
    plain = {key: document[key] for key in ("sections", "patients", "masks", "level", "ignored_pixels")}
    rows = [[key.replace("_", " "), "–" if value is None else value] for key, value in plain.items()]
    for key in ("splits", "cancers"):
        counts = document[key]
        if isinstance(counts, dict):
            rows.append([key, ", ".join(f"{name or 'none'} {number}" for name, number in counts.items())])
    return table(["", ""], rows)


def _faults(check: CheckReport) -> Markup:
    if not check.faults:
        return paragraph("No fault was found.")
    return table(["fault", "file", "found", "to mend"], [[f.code, f.file, f.found, f.mend] for f in check.faults])
