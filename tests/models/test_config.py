"""The description of a network: what it refuses, and what it writes."""

import pytest

from ntrm.core.errors import NtrmError, UsageError
from ntrm.core.labels import SKIN
from ntrm.models.config import NETWORKS, ModelConfig, schema_for
from ntrm.models.registry import ARCHITECTURES


@pytest.mark.parametrize(
    ("field", "value"),
    [("mpp", 0.0), ("mpp", float("nan")), ("window", 0), ("window", 250), ("window", -32), ("std", (1.0, 0.0, 1.0)),
     ("temperature", 0.0), ("temperature", -1.0), ("temperature", float("nan")), ("temperature", float("inf")),
     ("temperature", "1"), ("mpp", "6.7"), ("mpp", True), ("window", 256.0), ("window", True), ("mean", (1.0, 2.0)),
     ("mean", (0.5, 0.5, float("nan"))), ("std", 1.0), ("std", (1.0, 1.0, float("inf"))), ("name", None),
     ("arch", None), ("options", {"width": [1]}), ("schema", 12), ("name", "a\x1b]0;b\x07"), ("version", "1\u202e"),
     ("licence", "a\nb"), ("data", "\ud800"), ("options", {"backbone": "a\x9bm"}), ("trained_on", ("\x1b[2J",))],
)  # fmt: skip
def test_impossible_values_are_refused(field, value):
    with pytest.raises(NtrmError):
        ModelConfig(**{"arch": "ntrm-paper", "schema": SKIN, field: value})


@pytest.mark.parametrize("classes", [-1, 0, 1, 255, 1000, 3.0, "3", None, True])
def test_impossible_numbers_of_classes_are_refused(classes):
    with pytest.raises(UsageError, match="2 to 254"):
        schema_for(classes)


def test_known_names_are_the_registrys():
    assert set(ARCHITECTURES) == NETWORKS
