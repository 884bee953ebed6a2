"""Names of networks."""

from ntrm.models.names import NETWORKS
from ntrm.models.registry import ARCHITECTURES


def test_known_names_are_the_registrys():
    assert set(ARCHITECTURES) == NETWORKS
