import pytest
import torch
from safetensors.torch import save_file

from ntrm.core.errors import UsageError
from ntrm.models.registry import ARCHITECTURES, create, option_names
from ntrm.models.trm import TissueRelation


def test_the_default_is_built_and_named_as_the_network_that_it_is(seed):
    def built(name):
        torch.manual_seed(seed)
        return create(name, 3, width=0.125, coarse="d2", masks="soft")

    default, paper = built("ntrm"), built("ntrm-paper")
    assert default.config == paper.config
    assert default.config.arch == "ntrm-paper"
    assert isinstance(default.relation, TissueRelation)
    assert all(torch.equal(value, paper.state_dict()[key]) for key, value in default.state_dict().items())
    assert default.state_dict().keys() == paper.state_dict().keys()
    assert option_names("ntrm") == option_names("ntrm-paper") > option_names("ntrm-control")
    assert "ntrm" not in ARCHITECTURES
    with pytest.raises(UsageError, match="one of ntrm, ntrm-paper") as caught:
        create("ntmr")
    assert all(name in str(caught.value) for name in ARCHITECTURES)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_architecture_takes_the_options_it_says_it_takes(arch):
    known = {"width": 0.125, "dim": 8, "heads": 2, "tau": 0.4, "floor": 0.002, "coarse": "d2", "size": "b0"}
    taken = {name: value for name, value in known.items() if name in option_names(arch)}
    assert create(arch, 3, **taken).config.options == taken
    for name in known.keys() - taken.keys():
        with pytest.raises(UsageError, match="does not take"):
            create(arch, 3, **{name: known[name]})


@pytest.mark.parametrize("arch", ["ntrm-paper", "unet-vgg16", "deeplabv3plus"])
def test_encoder_weights_come_from_a_file(arch, tmp_path):
    donor = create(arch, 3, width=0.125).encoder.state_dict()
    save_file(donor, tmp_path / "encoder.safetensors")
    network = create(arch, 3, width=0.125, weights=tmp_path / "encoder.safetensors")
    assert all(torch.equal(value, network.encoder.state_dict()[key]) for key, value in donor.items())
    assert "weights" not in network.config.options


def test_the_coarse_head_looks_at_e5_or_d2():
    network = create("ntrm-control", 5, width=0.125, coarse="d2")
    assert network(torch.randn(2, 3, 64, 96)).coarse.shape == (2, 5, 64, 96)
    with pytest.raises(UsageError, match=r"coarse head\n.*e4"):
        create("ntrm-control", 5, width=0.125, coarse="e4")


def test_the_relation_is_initialised_after_the_first_half(seed):
    def weights(name):
        torch.manual_seed(seed)
        return create(name, 5, width=0.125).state_dict()

    control, paper = weights("ntrm-control"), weights("ntrm-paper")
    first = {key for key in control if key.startswith(("encoder.", "upper.", "coarse."))}
    assert all(torch.equal(paper[key], control[key]) for key in first)
    assert not torch.equal(paper["classify.weight"], control["classify.weight"])
