from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import UsageError
from ntrm.phantom.generate import CANCER_RATIO, cancer_quotas, plan_sections


@given(st.integers(1, 1000))
def test_quotas_share_everything_out_in_the_real_ratio(count):
    quotas = cancer_quotas(count)
    assert sum(quotas.values()) == count
    for cancer, share in CANCER_RATIO.items():
        assert abs(quotas[cancer] - count * share / 290) < 1


@given(st.integers(1, 80), st.integers(0, 2**32))
def test_patients_have_one_to_three_sections_of_one_cancer_and_one_split(count, seed):
    plan = plan_sections(count, seed)
    by_patient = defaultdict(list)
    for section in plan:
        by_patient[section.patient].append(section)
    assert len({section.name for section in plan}) == count
    assert len({section.seed for section in plan}) == count
    for sections in by_patient.values():
        assert 1 <= len(sections) <= 3
        assert len({(s.cancer, s.split, s.laboratory) for s in sections}) == 1


def test_the_real_number_of_sections_gives_the_real_numbers(seed):
    plan = plan_sections(290, seed)
    assert Counter(s.cancer for s in plan) == CANCER_RATIO
    splits = Counter(s.split for s in plan)
    assert abs(splits["train"] - 203) <= 9
    assert min(splits["val"], splits["test"]) >= 35
    assert len({s.laboratory for s in plan}) == 5


def test_the_seed_decides_everything(seed):
    assert plan_sections(30, seed) == plan_sections(30, seed)
    assert plan_sections(30, seed) != plan_sections(30, seed + 1)


def test_no_section_is_refused():
    with pytest.raises(UsageError):
        plan_sections(0, 1)
