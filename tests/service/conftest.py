import shutil

import numpy as np
import pytest
from tests.segment.small import InProcess
from tests.service.small import only_slide, segmented, serving, settings_of, write_model

from ntrm.service.core.settings import DATABASE
from ntrm.service.jobs.database import JobStore
from ntrm.service.tiles import readers
from ntrm.slides import isolated


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folder of a small network."""
    return write_model(tmp_path_factory.mktemp("service") / "model")


@pytest.fixture(scope="session")
def segmented_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segmented")
    return folder, *segmented(folder, np.random.default_rng(1), maps=True, tissue_mask=False)


@pytest.fixture
def results(tmp_path, segmented_once):
    """A slide in ``tmp_path / "in"`` and its results in ``tmp_path / "out" / "a"``; its path and its true mask."""
    folder, path, mask = segmented_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / path.relative_to(folder), mask


@pytest.fixture
def client(tmp_path, results, model):
    """A service with one segmented slide."""
    with serving(settings_of(tmp_path / "out", model, roots=(results[0].parent,))) as client:
        yield client


@pytest.fixture
def url(client):
    """Where that slide's corrections are."""
    return f"/v1/slides/{only_slide(client)['id']}/corrections"


@pytest.fixture
def store(tmp_path):
    store = JobStore(tmp_path / "out" / ".service" / DATABASE)
    yield store
    store.close()


@pytest.fixture
def quick_readers(monkeypatch):
    """Slides read in this process: for tests of everything around the reading, since a process each takes long."""
    for module in (isolated, readers):
        monkeypatch.setattr(module, "ReadingProcess", InProcess)
