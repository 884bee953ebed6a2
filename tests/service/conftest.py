import pytest
from tests.service.small import InProcess, write_model

from ntrm.service.tiles import slide_tiles


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folder of a small network."""
    return write_model(tmp_path_factory.mktemp("service") / "model")


@pytest.fixture
def quick_readers(monkeypatch):
    """Slides read in this process: for tests of everything around the reading, since a process each takes long."""
    monkeypatch.setattr(slide_tiles, "ReadingProcess", InProcess)
