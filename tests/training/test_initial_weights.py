import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from tests.helpers import imagenet_weights

from ntrm.core.errors import NtrmError, RefusedError
from ntrm.core.labels import SKIN, LabelSchema, Tissue
from ntrm.models.encoders import ResNetEncoder
from ntrm.models.registry import ARCHITECTURES, create
from ntrm.training.initial_weights import build_network, class_axes, find_transfer
from ntrm.training.recipe import load_recipe

THIN = {"width": 0.125}
NAMES = ("EPI", "GLD", "INF", "RET", "FOL", "PAP", "HYP", "KER")  # eight, as many as the thinnest layers have channels


def schema_of(names):
    return LabelSchema(tuple(Tissue(k, name, name, (k, k, 7)) for k, name in enumerate(names)))


def network_of(arch, names, seed, **options):
    if arch.startswith("mit"):
        pytest.importorskip("transformers", reason="the extra mit is not installed")
    torch.manual_seed(seed)
    network = create(arch, schema_of(names), **THIN, **options).eval()
    for name, buffer in network.named_buffers():  # as if it had been trained
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return network


@pytest.mark.parametrize("arch", ["ntrm-paper", "unet-vgg16", "deeplabv3plus", "attention-unet", "mit-b0", "mit-trm"])
@torch.no_grad()
def test_in_another_order_of_the_classes_it_is_the_same_network(arch, seed, random):
    names = [NAMES[k] for k in random.permutation(len(NAMES))]
    more = {"layers": 1, "dim": 8} if arch in ("ntrm-paper", "mit-trm") else {}
    model, network = network_of(arch, NAMES, seed, **more), network_of(arch, names, seed + 1, **more)
    transfer = find_transfer(network, model)
    assert (transfer.left, dict(transfer.partly), transfer.classes) == ((), {}, tuple(names))
    network.load_state_dict(transfer.tensors, strict=False)
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    theirs, ours = model.double()(images), network.double()(images)
    order = [NAMES.index(name) for name in names]
    torch.testing.assert_close(ours.final, theirs.final[:, order])
    assert (theirs.coarse is None) == (ours.coarse is None)
    if theirs.coarse is not None:
        torch.testing.assert_close(ours.coarse, theirs.coarse[:, order])


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


PAPER = load_recipe("paper", {"encoder_weights": "none"})


def with_weights(source):
    return replace(PAPER, encoder_weights=str(source))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A weights folder with nothing in it."""
    monkeypatch.setenv("NTRM_WEIGHTS", str(tmp_path / "weights"))
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights"


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory):
    """A file like that of the public ResNet-18, and its tensors: many, so made once."""
    path, state = tmp_path_factory.mktemp("resnet18") / "file", ResNetEncoder("resnet18").state_dict()
    save_file(state, path)
    return path, state


@pytest.fixture
def imagenet(folder, resnet18):
    """That file in its place."""
    path, state = resnet18
    shutil.copy(path, folder / "resnet18-imagenet1k-v1.safetensors")
    return state


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A trained model with its own normalisation, saved."""
    folder, network = tmp_path_factory.mktemp("known") / "model", create("ntrm-paper", schema_of("abc"), **THIN)
    network.describe(mpp=6.7, name="known", data="0123", mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), temperature=2.0)
    network.save_pretrained(folder)
    return network, folder


def fresh(arch, schema, seed, **options):
    torch.manual_seed(seed)
    return create(arch, schema, **options).state_dict()


def built(*arguments, seed, **options):
    torch.manual_seed(seed)
    return build_network(*arguments, **options)


def same(state, other, prefix=""):
    return all(torch.equal(value, other[prefix + key]) for key, value in state.items())


def test_imagenet_fills_the_encoder_and_nothing_else(imagenet, seed):
    network, report = built("unet-resnet18", SKIN, options=None, recipe=with_weights("auto"), seed=seed)
    assert report.encoder == "imagenet"
    assert "resnet18-imagenet1k-v1.safetensors (sha256 " in report.notes[0]
    assert same(imagenet, network.encoder.state_dict())
    state, drawn = network.state_dict(), fresh("unet-resnet18", SKIN, seed)
    assert all(torch.equal(state[key], drawn[key]) for key in state if not key.startswith("encoder."))


@pytest.mark.parametrize(
    ("source", "arch", "words"),
    [
        ("auto", "attention-unet", "attention-unet has none"),
        ("imagenet", "attention-unet", "attention-unet has none"),
        ("auto", "ntrm-paper", "only fit width 1, not 0.125"),
    ],
)
def test_where_no_such_weights_fit_it_starts_from_scratch_and_says_so(source, arch, words, imagenet, seed):
    network, report = built(arch, SKIN, options=THIN, recipe=with_weights(source), seed=seed)
    assert report.encoder == "scratch"
    assert words in report.notes[0]
    assert same(fresh(arch, SKIN, seed, **THIN), network.state_dict())


def test_weights_can_be_given_as_a_file(tmp_path, seed):
    state = ResNetEncoder("resnet18", width=0.125).state_dict()
    save_file(state, tmp_path / "pathology.safetensors")
    recipe = with_weights(tmp_path / "pathology.safetensors")
    network, report = built("ntrm-paper", SKIN, options=THIN, recipe=recipe, seed=seed)
    assert report.encoder == "file"
    assert same(state, network.encoder.state_dict())
    assert str(tmp_path) not in json.dumps(report.as_dict())
    with pytest.raises(RefusedError, match="no encoder that a file could fill"):
        build_network("attention-unet", SKIN, options=THIN, recipe=recipe)
    with pytest.raises(NtrmError, match="no such weights file"):
        build_network("ntrm-paper", SKIN, options=THIN, recipe=with_weights(tmp_path / "none.safetensors"))


def test_the_public_weights_fill_the_paper_s_encoder(monkeypatch, seed):
    monkeypatch.setenv("NTRM_WEIGHTS", str(imagenet_weights().parent))
    network, report = built("ntrm-paper", SKIN, options={}, recipe=load_recipe("paper"), seed=seed)
    assert report.encoder == "imagenet"
    assert not torch.equal(network.encoder.conv1.weight, fresh("ntrm-paper", SKIN, seed)["encoder.conv1.weight"])


def test_a_trained_model_is_taken_over_whole(model, seed):
    trained, folder = model
    network, report = built(
        "ntrm-paper", schema_of(("a", "b", "c")), options=THIN, recipe=PAPER, init=folder, seed=seed + 1
    )
    assert same(trained.state_dict(), network.state_dict())
    assert (report.encoder, report.transfer.left, report.transfer.partly, report.notes) == ("model", (), {}, ())
    assert report.transfer.classes == ("a", "b", "c")
    assert set(report.transfer.copied) == set(network.state_dict())
    assert report.source["name"] == "known"
    # It is a new model in all but what its features need.
    assert (network.config.mean, network.config.std) == ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    assert (network.config.mpp, network.config.name, network.config.temperature) == (None, "", 1.0)


def test_classes_are_matched_by_name_and_reported(model, seed):
    trained, folder = model
    schema = schema_of(("c", "d", "a"))
    network, report = built("ntrm-paper", schema, options=THIN, recipe=PAPER, init=str(folder), seed=seed + 1)
    drawn = fresh("ntrm-paper", schema, seed + 1, **THIN)
    for key in report.transfer.partly:
        value, known = network.state_dict()[key], trained.state_dict()[key]
        assert torch.equal(value[[0, 2]], known[[2, 0]]), key
        assert torch.equal(value[1], drawn[key][1]), key
    assert len(report.transfer.partly) == 5
    assert (report.transfer.classes, report.transfer.new_classes) == (("c", "a"), ("d",))
    assert "2 classes matched by name; new: d; dropped: b" in report.notes[0]
    document = report.as_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["copied"] == len(report.transfer.copied) > 100


def test_another_architecture_takes_the_encoder_and_says_what_is_new(model, seed, imagenet):
    trained, folder = model
    recipe = with_weights("auto")
    network, report = built("deeplabv3plus", schema_of(("a", "b")), options=THIN, recipe=recipe, init=folder, seed=seed)
    assert report.encoder == "model"
    assert same(trained.encoder.state_dict(), network.encoder.state_dict())
    assert "are new: aspp." in report.notes[0]
    assert all(key in report.transfer.left for key in network.state_dict() if key.startswith(("aspp.", "merge.")))


def test_a_model_with_nothing_in_common_is_refused(model):
    _, folder = model
    with pytest.raises(RefusedError, match="nothing that this network could start from"):
        build_network("attention-unet", schema_of(("x", "y")), options=THIN, recipe=PAPER, init=folder)
