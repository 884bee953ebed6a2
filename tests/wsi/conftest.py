"""Sections and a slide that several tests share: drawing them takes longer than the tests."""

import os

import pytest
from tests.conftest import seed_of
from tests.wsi.pictures import MPP

from ntrm.phantom.layout import lay_slide


@pytest.fixture(scope="session")
def section_seed():
    return int(os.environ.get("NTRM_TEST_SEED") or seed_of("tests/wsi"))


@pytest.fixture(scope="session")
def phantom_slide(section_seed):
    return lay_slide(section_seed, MPP, "SCC", pieces=2)
