"""What several tests of slides share."""

import os

import pytest
from tests.conftest import seed_of
from tests.slides.server import Bucket, environment, served


@pytest.fixture(scope="session")
def endpoint():
    with served() as (_, address):
        yield address


@pytest.fixture
def bucket(endpoint, monkeypatch, request, tmp_path):
    """A bucket of the test's own, whose storage the environment names."""
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ntrm.slides.object_store.ATTEMPTS", 1)
    return Bucket(endpoint, f"b{abs(hash(request.node.nodeid))}")


@pytest.fixture(scope="session")
def section_seed():
    return int(os.environ.get("NTRM_TEST_SEED") or seed_of("tests/slides"))
