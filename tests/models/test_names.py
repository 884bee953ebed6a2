"""Names of networks; models that were saved under that of the default, when that was the paper's network."""

import json

import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.models.folders import CONFIG
from ntrm.models.hub import load
from ntrm.models.names import DEFAULT, DEFAULT_NETWORK, MOVED, NETWORKS, network_named, network_saved_as
from ntrm.models.registry import ARCHITECTURES, create

OPTIONS = {"width": 0.125, "dim": 8, "layers": 2, "masks": "soft", "tau": 0.3}


@pytest.fixture
def before(tmp_path, seed):
    """The paper's network, and a folder as it was written when its name was ``ntrm``."""
    torch.manual_seed(seed)
    network = create("ntrm-paper", 4, **OPTIONS).describe(mpp=6.7, name="mine").eval()
    network.save_pretrained(tmp_path / "before")
    rename(tmp_path / "before")
    return network, tmp_path / "before"


def rename(folder, arch="ntrm"):
    document = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**document, "arch": arch}))


def test_known_names_are_the_registrys():
    assert set(ARCHITECTURES) == NETWORKS


def test_a_name_means_one_network_when_made_and_one_when_read():
    assert {network_named(DEFAULT), network_saved_as(DEFAULT)} <= ARCHITECTURES.keys()
    assert network_named(DEFAULT) == DEFAULT_NETWORK
    for name in (*ARCHITECTURES, "unknown"):
        assert network_named(name) == network_saved_as(name) == name


def test_the_very_network_comes_back(before):
    network, folder = before
    again = load(folder)
    assert again.config == network.config
    assert again.config.arch == "ntrm-paper"
    image = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(again(image).final, network(image).final)


def test_saved_again_it_carries_its_own_name(before, tmp_path):
    _, folder = before
    load(folder).save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / CONFIG).read_text())["arch"] == "ntrm-paper"
    assert load(tmp_path / "again").config == load(folder).config


def test_what_is_saved_now_never_carries_the_name_of_the_default(tmp_path):
    create("ntrm", 4, width=0.125).save_pretrained(tmp_path)
    assert json.loads((tmp_path / CONFIG).read_text())["arch"] == "ntrm-paper"
    assert load(tmp_path).config.arch == "ntrm-paper"


@pytest.mark.parametrize("name", MOVED)
def test_a_network_of_the_relation_study_says_where_it_went(before, name):
    rename(before[1], name)
    for ask in (lambda: create(name), lambda: create(name, 3, shift=True), lambda: load(before[1])):
        with pytest.raises(UsageError, match=rf"got: +{name}\n.*expected: one of .*ntrm-paper") as caught:
            ask()
        assert "research/README.md" in caught.value.hint
