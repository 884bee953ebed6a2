"""Who is in a phantom dataset: patients, their sections, laboratories and splits, all fixed by the seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.data.dataset import Case, Dataset
from ntrm.data.split import make_split
from ntrm.phantom.noise import derive, generator

CANCER_RATIO = {"BCC": 140, "SCC": 60, "IEC": 90}
"""Sections per cancer type in the real dataset."""

SECTIONS_PER_PATIENT = (0.65, 0.25, 0.10)
"""Chances that a patient has one, two or three sections."""

LABORATORIES = 5
"""Laboratories among which the patients are shared out; each stains in its own way."""

PATIENTS_FOR_A_SPLIT = 3
"""Fewer patients cannot be in three splits, so the column stays empty."""


@dataclass(frozen=True)
class PlannedSection:
    """One section before it is drawn."""

    name: str
    patient: str
    laboratory: int
    cancer: str
    seed: int
    split: str = ""


def plan_sections(count: int, seed: int) -> tuple[PlannedSection, ...]:
    """Sections of a dataset, in the cancer ratio of the real one, with one to three per patient.

    >>> [section.name for section in plan_sections(5, seed=1)]
    ['BCC_1', 'BCC_2', 'IEC_1', 'IEC_2', 'SCC_1']
    """
    if count < 1:
        raise UsageError("a dataset needs sections", got=count, expected="--sections 1 or more")
    quotas = cancer_quotas(count)
    planned = [section for cancer in sorted(quotas) for section in _plan_cancer(cancer, quotas[cancer], seed)]
    return _with_splits(planned, seed)


def cancer_quotas(count: int) -> dict[str, int]:
    """Share ``count`` out in the ratio of the real dataset, by largest remainder.

    >>> cancer_quotas(29)
    {'BCC': 14, 'SCC': 6, 'IEC': 9}
    """
    total = sum(CANCER_RATIO.values())
    exact = {cancer: count * share / total for cancer, share in CANCER_RATIO.items()}
    quotas = {cancer: int(value) for cancer, value in exact.items()}
    by_remainder = sorted(exact, key=lambda cancer: quotas[cancer] - exact[cancer])
    for cancer in by_remainder[: count - sum(quotas.values())]:
        quotas[cancer] += 1
    return quotas


def _plan_cancer(cancer: str, count: int, seed: int) -> list[PlannedSection]:
    random = generator(seed, "patients", cancer)
    planned: list[PlannedSection] = []
    patient = 0
    while len(planned) < count:
        patient += 1
        laboratory = int(random.integers(LABORATORIES))
        sections = 1 + int(random.choice(len(SECTIONS_PER_PATIENT), p=SECTIONS_PER_PATIENT))
        for _ in range(min(sections, count - len(planned))):
            name = f"{cancer}_{len(planned) + 1}"
            planned.append(
                PlannedSection(name, f"patient-{cancer}-{patient}", laboratory, cancer, derive(seed, "section", name))
            )
    return planned


def _with_splits(planned: list[PlannedSection], seed: int) -> tuple[PlannedSection, ...]:
    if len({section.patient for section in planned}) < PATIENTS_FOR_A_SPLIT:
        return tuple(planned)
    cases = tuple(Case(s.name, image=None, mask=None, group=s.patient, cancer=s.cancer) for s in planned)
    split = make_split(Dataset(Path(), "queensland", SKIN, cases), seed=seed).by_name
    return tuple(replace(section, split=split[section.name]) for section in planned)


def patient_seed(seed: int, section: PlannedSection) -> int:
    """Seed of what a patient's sections share (their stain)."""
    return derive(seed, "patient", section.patient)


def laboratory_seed(seed: int, section: PlannedSection) -> int:
    """Seed of what a laboratory's sections share (their stain)."""
    return derive(seed, "laboratory", section.laboratory)
