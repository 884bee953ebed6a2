"""A small dataset and a quick way to train on it."""

import pytest
from tests.training.small_data import Tiny, small_recipe, write_small

from ntrm.models.registry import ARCHITECTURES
from ntrm.training.train import train as train_network


@pytest.fixture
def data(tmp_path, random, monkeypatch):
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    return write_small(tmp_path / "data", random)


@pytest.fixture
def train(data, tmp_path, monkeypatch):
    """``train(out, …)`` is the real one with a tiny network and a recipe of seconds, changed by ``changes``."""
    monkeypatch.setitem(ARCHITECTURES, "tiny", Tiny)

    def run(out="run", arch="tiny", data=data, changes=None, **settings):
        settings = {"device": "cpu", "pictures": False, **settings}
        return train_network(data, tmp_path / out, arch=arch, recipe=small_recipe(**(changes or {})), **settings)

    return run
