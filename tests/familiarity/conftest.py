import numpy as np
import pytest
from tests.familiarity import small

from ntrm.data.split import open_splits
from ntrm.familiarity.build import build_reference
from ntrm.models.predictor import Predictor


@pytest.fixture(scope="session")
def skin(tmp_path_factory):
    """A dataset with enough sections for a reference; no test changes it."""
    return small.write_skin(tmp_path_factory.mktemp("skin") / "data", np.random.default_rng(1))


@pytest.fixture(scope="session")
def predictor(by_colour):
    return Predictor(small.make_network(), "cpu", batch=8)


@pytest.fixture(scope="session")
def reference(skin, predictor):
    """Made from all of it."""
    return build_reference(predictor, open_splits(skin))


@pytest.fixture(autouse=True, scope="session")
def by_colour():
    """The network ``by-colour`` can be created."""
    with pytest.MonkeyPatch.context() as patch:
        small.register(patch)
        yield
