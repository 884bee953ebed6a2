"""The tour behind ``make demo`` and ``ntrm demo``: every step a newcomer would take, on embedded defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ntrm.data.check import check_dataset
from ntrm.data.layouts import open_dataset
from ntrm.data.stats import dataset_stats
from ntrm.files import write_json
from ntrm.phantom.dataset import PhantomOptions, write_phantom
from ntrm.progress import SILENT, Progress
from ntrm.report.dataset_page import dataset_page

SECTIONS, SEED = 24, 1


@dataclass(frozen=True)
class TourResult:
    """What the tour made."""

    page: Path
    dataset: Path
    sections: int
    faults: int

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "page": str(self.page),
            "dataset": str(self.dataset),
            "sections": self.sections,
            "faults": self.faults,
        }


def tour(
    out: Path, *, jobs: int = 1, progress: Progress = SILENT, note: Callable[[str], None] = lambda text: None
) -> TourResult:
    """Phantom → check → statistics → page. A tour that was interrupted goes on."""
    dataset_folder, page = out / "phantom", out / "index.html"
    note(f"1/3  drawing {SECTIONS} synthetic skin sections")
    write_phantom(dataset_folder, PhantomOptions(SECTIONS, SEED), jobs=jobs, progress=progress)
    note("2/3  checking the dataset")
    check = check_dataset(dataset_folder, jobs=jobs, progress=progress)
    note("3/3  statistics and pictures")
    dataset = open_dataset(dataset_folder)
    stats = dataset_stats(dataset, jobs=jobs, progress=progress)
    write_json(out / "stats.json", stats.as_dict())
    dataset_page(page, dataset, stats, check, progress=progress)
    return TourResult(page, dataset_folder, sections=len(dataset), faults=len(check.faults))
