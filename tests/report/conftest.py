"""What tests of reports share."""

import shutil
from pathlib import Path

import pytest
from tests.report.segmented import made


@pytest.fixture
def results(tmp_path):
    """A folder of real results that may be changed."""
    return Path(shutil.copytree(made(), tmp_path / "results"))
