import numpy as np
import pytest
import torch

from ntrm.core.labels import LabelSchema, Tissue
from ntrm.models.registry import ARCHITECTURES, create
from ntrm.training.transfer import class_axes, find_transfer

THIN = 0.125
NAMES = ("EPI", "GLD", "INF", "RET", "FOL", "PAP", "HYP", "KER")  # eight, as many as the thinnest layers have channels


def schema_of(names):
    return LabelSchema(tuple(Tissue(k, name, name, (k, k, 7)) for k, name in enumerate(names)))


def network_of(arch, names, seed, **options):
    if arch.startswith("mit"):
        pytest.importorskip("transformers", reason="the extra mit is not installed")
    torch.manual_seed(seed)
    network = create(arch, schema_of(names), width=THIN, **options).eval()
    for name, buffer in network.named_buffers():  # as if it had been trained
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return network


@pytest.mark.parametrize("arch", ["ntrm-paper", "unet-vgg16", "deeplabv3plus", "attention-unet", "mit-b0", "mit-trm"])
@torch.no_grad()
def test_in_another_order_of_the_classes_it_is_the_same_network(arch, seed, random):
    names = [NAMES[k] for k in random.permutation(len(NAMES))]
    model, network = network_of(arch, NAMES, seed), network_of(arch, names, seed + 1)
    transfer = find_transfer(network, model)
    assert (transfer.left, dict(transfer.partly), transfer.classes) == ((), {}, tuple(names))
    transfer.apply(network)
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    theirs, ours = model.double()(images), network.double()(images)
    order = [NAMES.index(name) for name in names]
    torch.testing.assert_close(ours.final, theirs.final[:, order])
    assert (theirs.initial is None) == (ours.initial is None)
    if theirs.initial is not None:
        torch.testing.assert_close(ours.initial, theirs.initial[:, order])


def test_classes_in_common_are_taken_and_the_others_stay_as_they_were(seed):
    names = ("KER", "new one", "EPI", "INF", "another")
    model, network = network_of("ntrm-paper", NAMES, seed), network_of("ntrm-paper", names, seed + 1)
    fresh = {key: value.clone() for key, value in network.state_dict().items()}
    transfer = find_transfer(network, model)
    assert all(torch.equal(value, fresh[key]) for key, value in network.state_dict().items())  # nothing done yet
    transfer.apply(network)
    assert transfer.classes == ("KER", "EPI", "INF")
    about_classes = {f"{part}.{kind}" for part in ("classify", "coarse.classify") for kind in ("weight", "bias")}
    assert set(transfer.partly) == {*about_classes, "relation.absent"}
    given = model.state_dict()
    for key, value in network.state_dict().items():
        if key in transfer.partly:
            for row, name in enumerate(names):
                known = given[key][NAMES.index(name)] if name in NAMES else fresh[key][row]
                assert torch.equal(value[row], known), f"{key} of {name}"
        else:
            assert torch.equal(value, given[key]), key


def test_without_a_class_in_common_everything_else_is_taken(seed):
    model, network = network_of("ntrm-paper", NAMES, seed), network_of("ntrm-paper", ("gland", "other"), seed + 1)
    fresh = network.classify.weight.clone()
    transfer = find_transfer(network, model)
    transfer.apply(network)
    assert transfer.classes == ()
    assert set(transfer.left) == {key for key, axes in class_axes(network).items() if axes}
    assert torch.equal(network.classify.weight, fresh)
    assert torch.equal(network.encoder.conv1.weight, model.encoder.conv1.weight)


def test_another_architecture_takes_what_fits(seed):
    model, network = network_of("ntrm-paper", NAMES, seed), network_of("unet-resnet18", NAMES, seed + 1)
    transfer = find_transfer(network, model)
    shared = set(network.state_dict()) & set(model.state_dict())
    assert set(transfer.copied) == shared
    assert {key.split(".")[0] for key in shared} == {"encoder", "classify"}
    assert set(transfer.left) == set(network.state_dict()) - shared
    assert not transfer.empty


def test_another_width_takes_no_counter_without_its_statistics(seed):
    model = network_of("unet-resnet18", NAMES, seed)
    torch.manual_seed(seed)
    network = create("unet-resnet18", schema_of(NAMES), width=0.5)
    transfer = find_transfer(network, model)
    assert [key for key in transfer.copied if key.startswith("encoder.")] == []
    assert not any(key.endswith("num_batches_tracked") for key in transfer.copied)
    assert transfer.empty  # the bias of the classifier alone is nothing to start from


def test_networks_of_different_make_have_nothing_in_common(seed):
    model, network = network_of("attention-unet", NAMES, seed), network_of("unet-resnet18", ("a", "b"), seed)
    assert find_transfer(network, model).empty


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_axes_of_the_classes_are_known_for_every_network(arch, seed):
    network = network_of(arch, NAMES, seed)
    before = torch.get_rng_state()
    axes = class_axes(network)
    assert torch.equal(torch.get_rng_state(), before)
    assert list(axes) == list(network.state_dict())
    found = {key for key, each in axes.items() if each}
    assert all(axes[key] == (0,) for key in found)
    assert found == {key for key in axes if "classif" in key or key.endswith((".absent", ".embedding"))}
    assert all(len(network.state_dict()[key]) == len(NAMES) for key in found)


def test_several_axes_of_classes_are_all_matched(random):
    from ntrm.training.transfer import _ClassMatch

    match = _ClassMatch(schema_of(("c", "x", "a")), schema_of(("a", "b", "c")))
    own, given = (torch.from_numpy(random.normal(size=(3, 2, 3))) for _ in range(2))
    expected = own.numpy().copy()
    expected[np.ix_([0, 2], [0, 1], [0, 2])] = given.numpy()[np.ix_([2, 0], [0, 1], [2, 0])]
    np.testing.assert_array_equal(match.merge(own, given, (0, 2)), expected)
