"""Names of networks."""

import json

from ntrm.models.folders import CONFIG
from ntrm.models.hub import load
from ntrm.models.names import DEFAULT, DEFAULT_NETWORK, NETWORKS, network_named
from ntrm.models.registry import ARCHITECTURES, create


def test_known_names_are_the_registrys():
    assert set(ARCHITECTURES) == NETWORKS


def test_the_default_is_one_of_them_and_every_other_name_means_itself():
    assert network_named(DEFAULT) == DEFAULT_NETWORK
    assert DEFAULT_NETWORK in ARCHITECTURES
    for name in (*ARCHITECTURES, "unknown"):
        assert network_named(name) == name


def test_what_is_saved_never_carries_the_name_of_the_default(tmp_path):
    create("ntrm", 4, width=0.125).save_pretrained(tmp_path)
    assert json.loads((tmp_path / CONFIG).read_text())["arch"] == "ntrm-paper"
    assert load(tmp_path).config.arch == "ntrm-paper"
