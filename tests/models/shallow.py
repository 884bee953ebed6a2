"""Encoders with one block a stage: tracing a network takes as long as it has layers, and blocks of a kind are alike."""

import pytest

from ntrm.models.encoders import RESNETS
from ntrm.models.segformer import MIT

ONE_EACH = (1, 1, 1, 1)


@pytest.fixture
def shallow(monkeypatch):
    """Networks that a test makes have such encoders."""
    for name in RESNETS:
        monkeypatch.setitem(RESNETS, name, ONE_EACH)
    for size, shape in MIT.items():
        monkeypatch.setitem(MIT, size, shape._replace(depths=ONE_EACH))
