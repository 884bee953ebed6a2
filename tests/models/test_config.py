"""The description of a network: what it refuses, and what it writes."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ntrm
from ntrm.core.errors import NtrmError, UsageError
from ntrm.core.labels import SKIN, LabelSchema
from ntrm.models.config import IMAGENET_MEAN, IMAGENET_STD, ModelConfig, schema_for


def test_defaults_are_an_untrained_network_of_imagenet_colours():
    config = ModelConfig("ntrm-paper", SKIN)
    assert (config.mpp, config.window, config.temperature, config.classes) == (None, 256, 1.0, 12)
    assert (config.mean, config.std) == (IMAGENET_MEAN, IMAGENET_STD)


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


def test_the_written_form_is_plain_json_and_names_the_classes():
    config = ModelConfig("ntrm-paper", SKIN, options={"width": 0.5}, mpp=6.7, name="n", data="d")
    document = json.loads(json.dumps(config.as_dict(), allow_nan=False))
    assert [entry["name"] for entry in document["classes"]] == list(SKIN.names)
    assert document["classes"][9] == {"name": "BCC", "title": "basal cell carcinoma", "rgb": [127, 255, 255]}
    assert document["background"] == "BKG"
    assert (document["mpp"], document["options"], document["data"]) == (6.7, {"width": 0.5}, "d")


def test_two_configs_do_not_share_their_options():
    first, second = ModelConfig("a", SKIN), ModelConfig("b", SKIN)
    assert first.options == second.options == {}
    assert first.options is not second.options


@given(st.integers(2, 254))
def test_any_number_of_classes_has_a_schema(classes):
    schema = schema_for(classes)
    assert schema == schema_for(np.int64(classes))
    assert len(schema) == classes
    assert len(set(schema.names)) == classes


def test_numbers_of_other_libraries_are_written_as_plain_ones():
    config = ModelConfig("a", SKIN, mpp=np.float32(6.5), window=np.int64(64), mean=[np.float64(0.5)] * 3, temperature=2)
    assert config == ModelConfig("a", SKIN, mpp=6.5, window=64, mean=(0.5, 0.5, 0.5), temperature=2.0)
    document = json.loads(json.dumps(config.as_dict()))
    assert (document["mpp"], document["window"], document["mean"]) == (6.5, 64, [0.5, 0.5, 0.5])


@pytest.mark.parametrize("classes", [-1, 0, 1, 255, 1000, 3.0, "3", None, True])
def test_impossible_numbers_of_classes_are_refused(classes):
    with pytest.raises(UsageError, match="2 to 254"):
        schema_for(classes)


def test_class_names_are_the_classes():
    network = ntrm.create("ntrm", classes=["stroma", "tumour"], width=0.05)
    assert network.config.schema.names == ("stroma", "tumour")
    assert network(torch.zeros(1, 3, 64, 64)).final.shape[1] == 2


def test_a_schema_is_taken_as_it_is():
    schema = LabelSchema(SKIN.tissues[:3])
    assert schema_for(schema) is schema
