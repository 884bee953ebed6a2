"""A small dataset, a quick way to train on it, and one finished training that tests share."""

import numpy as np
import pytest
from tests.training.small_data import CLASSES, Tiny, train_small, write_small

from ntrm.models.registry import ARCHITECTURES


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Sections that no test changes: those that would take a copy."""
    return write_small(tmp_path_factory.mktemp("small") / "data", np.random.default_rng(1))


@pytest.fixture(scope="session")
def data_with_background(tmp_path_factory):
    """The same sections, in which glass is the background class: it can be filled with other windows."""
    folder, classes = tmp_path_factory.mktemp("glass") / "data", CLASSES.replace("glass", "background")
    return write_small(folder, np.random.default_rng(1), classes=classes)


@pytest.fixture(autouse=True, scope="module")
def tiny_network():
    """The network ``tiny`` can be created."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ARCHITECTURES, "tiny", Tiny)
        yield


@pytest.fixture
def train(data, tmp_path):
    """``train(out, …)`` is the real one with a tiny network and a recipe of seconds, changed by ``changes``."""

    def run(out="run", *, data=data, **settings):
        return train_small(data, tmp_path / out, **settings)

    return run


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory, tiny_network):
    """The result of a whole training with the recipe as it is; nothing may write into its folder."""
    return train_small(data, tmp_path_factory.mktemp("finished") / "run")
