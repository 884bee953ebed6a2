from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.data.layouts import SKIN_SECTIONS, cancer_of, patient_of, section_of

SECTIONS = [f"{cancer}_{number}" for cancer, count in SKIN_SECTIONS.items() for number in range(1, count + 1)]


def test_the_dataset_has_as_many_sections_and_patients_as_published():
    assert len(SECTIONS) == 290
    patients = Counter(cancer_of(patient.split("-")[0]) for patient in {patient_of(name) for name in SECTIONS})
    # 140 BCC sections in 14 pairs and a triple, 60 SCC in 6 pairs, 90 IEC in 13 pairs, all others alone.
    assert patients == {"BCC": 140 - 14 - 2, "SCC": 60 - 6, "IEC": 90 - 13}


@pytest.mark.parametrize(
    ("one", "other"),
    [("SCC_34", "SCC_35"), ("IEC_51", "IEC_52"), ("IEC_2", "IEC_3"), ("BCC_19", "BCC_21"), ("BCC_83", "BCC_84")],
)
def test_sections_of_one_patient_share_its_id(one, other):
    assert patient_of(one) == patient_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("SCC_2", "SCC_3"), ("IEC_3", "IEC_4"), ("BCC_18", "BCC_19"), ("BCC_1", "SCC_1"), ("IEC_1", "IEC_2")],
)
def test_sections_of_two_patients_do_not(one, other):
    assert patient_of(one) != patient_of(other)


@given(st.sampled_from(SECTIONS), st.integers(0, 9999))
def test_a_tile_belongs_to_its_section(section, number):
    tile = f"{section}_{number:04}"
    assert section_of(tile) == section
    assert patient_of(tile) == patient_of(section)
    assert cancer_of(tile) == section[:3]


@given(st.from_regex(r"(case|xBCC|bcc)[_-][0-9]{1,3}", fullmatch=True))
def test_unknown_names_stand_for_themselves(name):
    assert section_of(name) == patient_of(name) == name
    assert cancer_of(name) == ""
