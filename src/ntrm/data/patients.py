"""Which sections of the skin dataset come from one patient: known from its authors, not visible in the files."""

from __future__ import annotations

import re
from functools import cache

SKIN_GROUPS = {
    "BCC": "1-2 5-6 7-8 11-12 19-20-21 23-24 25-26 27-28 33-34 37-38 40-41 46-47 55-56 60-61 83-84",
    "SCC": "1-2 5-6 10-11 15-16 17-18 34-35",
    "IEC": "2-3 4-5 6-7 8-9 10-11 13-14 19-20 22-23 27-28 29-30 34-35 43-44 51-52",
}
"""Section numbers per cancer type; numbers joined by a hyphen are one patient, every other section is its own."""

SKIN_SECTIONS = {"BCC": 140, "SCC": 60, "IEC": 90}
"""How many sections the released dataset has per cancer type, numbered from 1."""

_SECTION = re.compile(r"((BCC|SCC|IEC)_[0-9]+)(_[0-9]+)?")


def section_of(name: str) -> str:
    """Section that a file's stem belongs to: tiles cut from a skin section carry a number behind its name.

    >>> section_of("BCC_11_0007"), section_of("BCC_11"), section_of("slide_11_0007")
    ('BCC_11', 'BCC_11', 'slide_11_0007')
    """
    match = _SECTION.fullmatch(name)
    return match.group(1) if match else name


def patient_of(name: str) -> str:
    """Stable patient id of a section (or of a tile cut from it); a name in no known group is its own patient.

    >>> patient_of("BCC_20"), patient_of("BCC_3"), patient_of("BCC_11_0007"), patient_of("core7")
    ('BCC_19-20-21', 'BCC_3', 'BCC_11-12', 'core7')
    """
    section = section_of(name)
    return _patient_by_section().get(section, section)


def cancer_of(name: str) -> str:
    """Cancer type that a skin section is filed under, or the empty string.

    >>> cancer_of("IEC_4"), cancer_of("IEC_4_0001"), cancer_of("testA_1")
    ('IEC', 'IEC', '')
    """
    match = _SECTION.fullmatch(name)
    return match.group(2) if match else ""


@cache
def _patient_by_section() -> dict[str, str]:
    return {
        f"{cancer}_{number}": f"{cancer}_{group}"
        for cancer, groups in SKIN_GROUPS.items()
        for group in groups.split()
        for number in group.split("-")
    }
