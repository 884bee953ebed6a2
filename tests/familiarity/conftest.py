import pytest
from tests.familiarity import small

from ntrm.models.predictor import Predictor


@pytest.fixture(scope="session")
def skin():
    return small.skin()


@pytest.fixture(scope="session")
def predictor():
    with pytest.MonkeyPatch.context() as patch:
        small.register(patch)
        return Predictor(small.make_network(), "cpu", batch=8)


@pytest.fixture(scope="session")
def reference():
    return small.skin_reference()


@pytest.fixture(autouse=True, scope="module")
def by_colour():
    """The network ``by-colour`` can be created."""
    with pytest.MonkeyPatch.context() as patch:
        small.register(patch)
        yield
