"""A phantom dataset on disk: its patients, laboratories and splits, in the skin dataset's layout.

Sections are drawn by independent processes. A section is done once its note lies in ``.progress``, which is written
after its pictures; the notes become ``truth.json`` at the end. A killed run therefore continues where it stopped, and
no reader ever meets half a file.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from ntrm.core.csv_text import rows_text
from ntrm.core.errors import RefusedError, UsageError, check_number, check_seed, plain_fields
from ntrm.core.io import check_folder, foreign_files, read_object, remove_partials, write_json, write_text
from ntrm.core.labels import CANCERS, SKIN
from ntrm.core.mpp import LEVELS, level_resolution
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import Case, Dataset
from ntrm.data.image_files import write_image, write_rgb_mask
from ntrm.data.layouts import SKIN_SECTIONS
from ntrm.data.split import make_split
from ntrm.phantom.anatomy.specimen import NORMAL
from ntrm.phantom.layout import lay_slide
from ntrm.phantom.noise import derive, generator
from ntrm.phantom.render import render
from ntrm.phantom.stain import Stain
from ntrm.phantom.versions import DEFAULT_VERSION, phantom_version
from ntrm.version import __version__

SECTIONS_PER_PATIENT = (0.65, 0.25, 0.10)  # Chances that a patient has one, two or three sections

LABORATORIES = 5  # Number of laboratories that the patients come from; each stains in its own way

TRUTH_FILE, NOTES = "truth.json", ".progress"


@dataclass(frozen=True)
class PlannedSection:
    """One section before it is drawn."""

    name: str
    patient: str
    laboratory: int
    cancer: str
    seed: int
    split: str = ""


def plan_sections(count: int, seed: int, normal: float = 0.0) -> tuple[PlannedSection, ...]:
    """Sections of a dataset, in the cancer ratio of the real one, with one to three per patient.

    ``normal`` is the share of sections without a cancer.

    >>> [section.name for section in plan_sections(5, seed=1, normal=0.4)]
    ['BCC_1', 'IEC_1', 'SCC_1', 'NORMAL_1', 'NORMAL_2']
    """
    without = round(normal * count)
    quotas = [*sorted(cancer_quotas(count - without).items()), (NORMAL, without)]
    planned = [section for cancer, quota in quotas for section in _plan(cancer, quota, seed)]
    if len({section.patient for section in planned}) < 3:  # They cannot be in three splits: the column stays empty.
        return tuple(planned)
    cases = tuple(Case(s.name, image=None, mask=None, group=s.patient, cancer=s.cancer) for s in planned)
    split = make_split(Dataset(Path(), "queensland", SKIN, cases), seed=seed).by_name
    return tuple(replace(section, split=split[section.name]) for section in planned)


def cancer_quotas(count: int) -> dict[str, int]:
    """Divide ``count`` in the ratio of the real dataset, by largest remainder.

    >>> cancer_quotas(29)
    {'BCC': 14, 'SCC': 6, 'IEC': 9}
    """
    total = sum(SKIN_SECTIONS.values())
    exact = {cancer: count * sections / total for cancer, sections in SKIN_SECTIONS.items()}
    quotas = {cancer: int(value) for cancer, value in exact.items()}
    by_remainder = sorted(exact, key=lambda cancer: quotas[cancer] - exact[cancer])
    for cancer in by_remainder[: count - sum(quotas.values())]:
        quotas[cancer] += 1
    return quotas


def _plan(cancer: str, count: int, seed: int) -> list[PlannedSection]:
    random, kind = generator(seed, "patients", cancer), "NORMAL" if cancer == NORMAL else cancer
    planned: list[PlannedSection] = []
    patients = 0
    while len(planned) < count:
        patients += 1
        patient, laboratory = f"patient-{kind}-{patients}", int(random.integers(LABORATORIES))
        sections = 1 + int(random.choice(len(SECTIONS_PER_PATIENT), p=SECTIONS_PER_PATIENT))
        names = [f"{kind}_{number}" for number in range(len(planned) + 1, min(len(planned) + sections, count) + 1)]
        planned += [PlannedSection(name, patient, laboratory, cancer, derive(seed, "section", name)) for name in names]
    return planned


@dataclass(frozen=True)
class PhantomOptions:
    """What a phantom dataset is made from; stored in ``phantom.json`` so that two datasets never mix in one folder."""

    sections: int
    seed: int = 0
    levels: tuple[str, ...] = ("10x",)
    ambiguity: float = 0.5
    pieces: int = 1
    normal: float = 0.0  # Share of the sections without a cancer
    version: str = DEFAULT_VERSION  # Of the phantom (``versions.VERSIONS``).

    def __post_init__(self) -> None:
        check_seed(self.seed)
        plain_fields(self)
        phantom_version(self.version)
        unknown = [level for level in self.levels if level not in LEVELS]
        if unknown or not self.levels:
            raise UsageError("unknown resolution", got=", ".join(unknown) or "none", expected=", ".join(LEVELS))
        check_number("ambiguity", self.ambiguity, 0, 1)
        check_number("share of normal sections", self.normal, 0, 1)
        check_number("number of sections", self.sections, 1, 1_000_000, whole=True)
        check_number("number of pieces", self.pieces, 1, 1000, whole=True)

    def as_dict(self) -> dict[str, Any]:
        """For ``phantom.json``."""
        return {"ntrm": __version__, **asdict(self), "levels": list(self.levels)}


@dataclass(frozen=True)
class PhantomReport:
    """What was written."""

    out: Path
    options: PhantomOptions
    drawn: int
    kept: int
    cancers: dict[str, int]
    normal: int = 0  # Sections without a cancer

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        counts = {"drawn": self.drawn, "kept": self.kept, "cancers": self.cancers, "normal_sections": self.normal}
        return {"out": str(self.out), **self.options.as_dict(), **counts}


def write_phantom(out: Path, options: PhantomOptions, *, jobs: int = 1, progress: Progress = SILENT) -> PhantomReport:
    """Draw the dataset, or what is missing of it, into ``out``."""
    _claim(out, options)
    plan = plan_sections(options.sections, options.seed, options.normal)
    drawn = _drawn(out)
    tasks = [
        (out, options, section)
        for section in plan
        if section.name not in drawn or not all(path.exists() for path in _paths(out, section, options.levels))
    ]
    for _ in progress.track(parallel_map(_draw, tasks, jobs), len(tasks), "drawing sections"):
        pass
    truth, columns = _drawn(out), ["name", "group", "split", "cancer", "laboratory"]
    rows = [[s.name, s.patient, s.split, s.cancer, s.laboratory] for s in plan]
    write_text(out / "cases.csv", rows_text([columns, *rows]))
    sections = {section.name: truth[section.name] for section in plan}
    write_json(out / TRUTH_FILE, {"options": options.as_dict(), "sections": sections})
    # What only a running command needs.
    shutil.rmtree(out / NOTES, ignore_errors=True)
    for level, folder in product(options.levels, ("Images", "Masks")):
        remove_partials(out / level / folder)
    count = Counter(section.cancer for section in plan)
    cancers = {cancer: count[cancer] for cancer in CANCERS}
    return PhantomReport(out, options, len(tasks), len(plan) - len(tasks), cancers, normal=count[NORMAL])


def _claim(out: Path, options: PhantomOptions) -> None:
    """Make sure that ``out`` is ours: empty, or begun with the very same options."""
    check_folder(out)
    path = out / "phantom.json"
    if path.exists():
        before = read_object(path)
        if before != options.as_dict():
            raise RefusedError(
                "the folder was begun with other options",
                got=options.as_dict(),
                expected=before,
                hint="give the same options to continue, or choose a new folder",
            )
    elif out.exists() and any(out.iterdir()):
        raise foreign_files(out, "phantom", (file.name for file in out.iterdir()))
    else:
        write_json(path, options.as_dict())


def _drawn(out: Path) -> dict[str, Any]:
    """The truth about every section that is drawn: from ``truth.json``, and from notes since. Damaged, it is none."""
    notes = {path.stem: read_object(path) for path in (out / NOTES).glob("*.json")}
    sections = read_object(out / TRUTH_FILE).get("sections")
    known = {**(sections if isinstance(sections, dict) else {}), **notes}
    return {name: truth for name, truth in known.items() if truth}


def _paths(out: Path, section: PlannedSection, levels: tuple[str, ...]) -> list[Path]:
    files = ("Images", f"{section.name}.tif"), ("Masks", f"{section.name}.png")
    return [out / level / folder / name for level in levels for folder, name in files]


def _draw(task: tuple[Path, PhantomOptions, PlannedSection]) -> None:
    """Draw one section at every resolution, then note it as done."""
    out, options, section = task
    laboratory = derive(options.seed, "laboratory", section.laboratory)
    stain = Stain.draw(derive(options.seed, "patient", section.patient), laboratory)
    for level in options.levels:
        resolution, version = level_resolution(level), options.version
        slide = lay_slide(section.seed, resolution.x, section.cancer, options.pieces, version)
        ambiguity = options.ambiguity
        image = render(slide.fine, resolution.x, section.seed, ambiguity=ambiguity, stain=stain, version=version)
        image_path, mask_path = _paths(out, section, (level,))
        write_image(image_path, image, resolution)
        write_rgb_mask(mask_path, slide.mask, SKIN)
    truth = {
        "patient": section.patient,
        "laboratory": section.laboratory,
        "filed_under": section.cancer,
        "cancers": sorted({cancer for piece in slide.pieces for cancer in piece.truth.cancers}),
        "pieces": [piece.as_dict() for piece in slide.pieces],
    }
    write_json(out / NOTES / f"{section.name}.json", truth)
