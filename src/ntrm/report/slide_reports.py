"""The pages of a whole folder of results, made again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.errors import NtrmError
from ntrm.core.parallel import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.report.cohort import read_cohort
from ntrm.report.slide_overview import write_overview
from ntrm.report.slide_report import write_slide_report

WORTH_A_PROCESS = 8
"""Reports for which another process pays: it needs a second to start."""


@dataclass(frozen=True)
class Remade:
    """What became of the pages."""

    out: Path
    overview: Path
    reported: tuple[str, ...]
    """Slides with a new report."""
    failures: tuple[tuple[str, str], ...]
    """Slides that could not be reported, and why."""
    without: tuple[str, ...]
    """Slides that have no results, since they failed."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "out": str(self.out),
            "overview": str(self.overview),
            "reported": list(self.reported),
            "failures": [{"slide_id": slide_id, "reason": reason} for slide_id, reason in self.failures],
            "without_results": list(self.without),
        }


def remake_reports(out: str | Path, *, jobs: int = 1, progress: Progress = SILENT) -> Remade:
    """Write the report of every slide that ``slides.csv`` calls done, then the overview."""
    folder = Path(out)
    cohort = read_cohort(folder)
    folders = [folder / slide.slide_id for slide in cohort.done]
    workers = min(jobs, max(1, len(folders) // WORTH_A_PROCESS)) if jobs > 1 else jobs
    found = parallel_map(_attempt, folders, workers)
    reasons = list(progress.track(found, len(folders), "reports"))
    outcomes = [(slide.slide_id, reason) for slide, reason in zip(cohort.done, reasons, strict=True)]
    return Remade(
        folder,
        write_overview(folder),
        tuple(slide_id for slide_id, reason in outcomes if not reason),
        tuple((slide_id, reason) for slide_id, reason in outcomes if reason),
        tuple(slide.slide_id for slide in cohort.failed),
    )


def _attempt(folder: Path) -> str:
    """Empty, or why there is no report; one slide's error does not stop the others."""
    try:
        write_slide_report(folder)
    except NtrmError as error:
        parts = [error.what, *([f"got {error.got}"] if error.got is not None else []), error.mend]
        return "; ".join(" ".join(str(part).split()) for part in parts if part)
    return ""
