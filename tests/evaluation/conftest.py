import pytest
from tests.evaluation.small import draw_sections, write_dataset


@pytest.fixture
def sections(random):
    """Three test sections: larger than a window, flatter than one, and exactly one."""
    return draw_sections(random, (70, 90), (30, 140), (64, 64))


@pytest.fixture
def data(tmp_path, sections):
    """Those sections as a dataset."""
    return write_dataset(tmp_path / "data", sections)
