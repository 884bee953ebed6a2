import pytest
from tests.pipeline.small import InProcess

from ntrm.wsi import isolated


@pytest.fixture
def quick_readers(monkeypatch):
    """Slides read in this process: for tests of everything around the reading, since a process each takes long."""
    monkeypatch.setattr(isolated, "ReadingProcess", InProcess)
