"""Model folders: what was saved comes back, and anything broken, swapped or hostile is refused without running it."""

import copy
import hashlib
import json
import pickle
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers import Convolution, Trap

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.core.labels import SKIN, LabelSchema
from ntrm.models import base, hub
from ntrm.models.config import ModelConfig
from ntrm.models.folders import CARD, CONFIG, MOST_CONFIG_BYTES, WEIGHTS
from ntrm.models.hub import load
from ntrm.models.registry import create
from ntrm.models.weights import weights_digest

OPTIONS = {"width": 0.125, "dim": 8, "layers": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small network in its folder; tests work on copies."""
    folder = tmp_path_factory.mktemp("model")
    create("ntrm-paper", 4, **OPTIONS).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    for name in (CONFIG, WEIGHTS, CARD):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def fingerprints(folder):
    return {path.name: sha256_of(path) for path in folder.iterdir()}


def change_config(folder, **changes):
    document = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**document, **changes}))


def change_weights(folder, change):
    """Rewrite the weights as ``change`` leaves them, with a config that names the new file."""
    state = load_file(folder / WEIGHTS)
    change(state)
    save_file(state, folder / WEIGHTS)
    change_config(folder, weights_sha256=sha256_of(folder / WEIGHTS))


def replace_weights(folder, content):
    (folder / WEIGHTS).write_bytes(content)
    change_config(folder, weights_sha256=sha256_of(folder / WEIGHTS))


# --- what was saved comes back ---


def test_everything_that_describes_the_network_comes_back(tmp_path):
    described = {"mpp": 3.35, "window": 512, "name": "skin", "version": "1.2", "licence": "MIT", "data": "abc"}
    network = create("ntrm-control", SKIN, width=0.125)
    network.describe(**described, temperature=1.5, mean=(0.1, 0.2, 0.3), trained_on=("0a", "1b"))
    network.save_pretrained(tmp_path)
    assert load(tmp_path).config == network.config


def test_a_model_that_does_not_say_what_it_was_trained_on_is_read(tmp_path):
    create("ntrm-control", width=0.125).save_pretrained(tmp_path)
    document = json.loads((tmp_path / CONFIG).read_text())
    assert document.pop("trained_on") == []
    (tmp_path / CONFIG).write_text(json.dumps(document))
    assert load(tmp_path).config.trained_on == ()


def test_the_card_names_the_classes_and_the_weights(tmp_path):
    digest = create("ntrm-control", width=0.125).describe(mpp=6.7).save_pretrained(tmp_path)
    card = (tmp_path / CARD).read_text()
    assert digest == sha256_of(tmp_path / WEIGHTS)
    assert digest in card
    assert "6.7 µm/px" in card
    assert "pipeline_tag: image-segmentation" in card
    assert all(f"| {tissue.name} | {tissue.title} |" in card for tissue in SKIN.tissues)
    assert "tags: [histopathology, skin, segmentation]" in card
    create("ntrm-control", 3, width=0.125).save_pretrained(tmp_path / "other")
    assert "tags: [histopathology, segmentation]" in (tmp_path / "other" / CARD).read_text()


def test_half_precision_saves_half_and_loads_in_single(folder, tmp_path):
    network = load(folder)
    network.save_pretrained(tmp_path / "half", dtype=torch.float16)
    half = load(tmp_path / "half")
    assert (tmp_path / "half" / WEIGHTS).stat().st_size < 0.7 * (folder / WEIGHTS).stat().st_size
    for key, value in network.state_dict().items():
        assert half.state_dict()[key].dtype == value.dtype
        torch.testing.assert_close(half.state_dict()[key], value, rtol=1e-3, atol=1e-6)


def test_the_bytes_do_not_tell_how_the_weights_lay_in_memory(tmp_path):
    network = create("ntrm-control", 4, width=0.125)
    digests = [
        network.to(memory_format=layout).save_pretrained(tmp_path / str(layout))
        for layout in (torch.contiguous_format, torch.channels_last)
    ]
    assert digests[0] == digests[1]


def test_broken_weights_are_not_saved(tmp_path):
    network = create("ntrm-control", 4, width=0.125)
    with torch.no_grad():
        network.classify.weight[0] = torch.nan
    with pytest.raises(RefusedError, match=r"classify\.weight"):
        network.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_network_that_could_not_be_loaded_is_not_saved(tmp_path):
    other, own = create("ntrm-control", 4, width=0.125), create("ntrm-control", 3, width=0.125)
    own.config, foreign = other.config, Convolution(3)
    foreign.config = ModelConfig("mine", other.config.schema)
    for network, words in ((own, r"other shape \['classify\.bias"), (foreign, "unknown architecture: mine")):
        with pytest.raises(RefusedError, match=rf"(?s)could not open it.*{words}"):
            network.save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="Convolution without a config"):
        Convolution(3).save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="Convolution without a config"):
        Convolution(3).describe(name="mine")
    assert not list(tmp_path.iterdir())


CONTRADICTIONS = [{"arch": "unet-vgg16"}, {"options": {"width": 0.5}}, {"schema": SKIN}]


@pytest.mark.parametrize("change", CONTRADICTIONS, ids=lambda change: next(iter(change)))
def test_a_description_of_another_network_is_refused(change):
    network = create("ntrm-control", 3, width=0.125)
    before = network.config
    with pytest.raises(UsageError, match="contradicts"):
        network.describe(**change)
    assert network.config is before
    named = LabelSchema(SKIN.tissues[:3])
    assert network.describe(arch=before.arch, schema=named, options={"width": 0.125}).config.schema is named


def test_an_unknown_field_of_a_description_is_named():
    with pytest.raises(UsageError, match=r"(?s)mmp.*mpp"):
        create("ntrm-control", 3, width=0.125).describe(mmp=6.7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.float8_e4m3fn, torch.complex64])
def test_weights_in_a_kind_of_number_that_cannot_be_loaded_are_not_saved(folder, dtype):
    before = fingerprints(folder)
    with pytest.raises(UsageError, match="kind of number"):
        load(folder).save_pretrained(folder, dtype=dtype)
    assert fingerprints(folder) == before


@pytest.mark.parametrize("part", ["model_card", "config"])
def test_a_model_that_cannot_be_described_leaves_the_one_in_the_folder(folder, part, monkeypatch):
    before, network = fingerprints(folder), load(folder)
    with torch.no_grad():
        network.classify.bias.add_(1)
    if part == "config":
        network.config.options["width"] = torch.nan  # past every check
    else:
        monkeypatch.setattr(base, part, lambda *_: 1 / 0)
    with pytest.raises((RefusedError, ZeroDivisionError)):
        network.save_pretrained(folder)
    assert fingerprints(folder) == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_network_has_the_digest_of_its_file_whatever_its_numbers(tmp_path, dtype):
    network = create("ntrm-control", 3, width=0.125).to(dtype)
    assert weights_digest(network) == network.save_pretrained(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_loaded_network_has_the_digest_of_its_file_until_its_weights_change(tmp_path, dtype):
    create("ntrm-control", 3, width=0.125).save_pretrained(tmp_path, dtype=dtype)
    network = load(tmp_path)
    file = hashlib.sha256((tmp_path / WEIGHTS).read_bytes()).hexdigest()
    assert weights_digest(network) == weights_digest(copy.deepcopy(network)) == file
    with torch.no_grad():
        next(network.parameters()).add_(1)
    assert weights_digest(network) == network.save_pretrained(tmp_path / "changed") != file


@pytest.mark.parametrize("arch", ["ntrm-paper", "mit-trm"])
def test_loading_draws_no_random_numbers(tmp_path, arch):
    create(arch, 3, width=0.125).save_pretrained(tmp_path)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    load(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


# --- weights ---

BROKEN_WEIGHTS = {
    "missing key": (lambda state: state.pop("classify.bias"), r"missing \['classify.bias'\]"),
    "extra key": (lambda state: state.update(trojan=torch.zeros(3)), r"unknown \['trojan'\]"),
    "other shape": (lambda state: state.update({"classify.bias": torch.zeros(5)}), r"classify.bias \(5,\)"),
    "not a number": (lambda state: state["classify.bias"].fill_(torch.nan), "no numbers"),
    "infinite": (lambda state: state["classify.bias"].fill_(torch.inf), "no numbers"),
}


@pytest.mark.parametrize("case", BROKEN_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(folder, case):
    change, words = BROKEN_WEIGHTS[case]
    change_weights(folder, change)
    with pytest.raises(DataError, match=words):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.bool])
def test_weights_of_another_kind_of_number_are_refused(folder, dtype):
    change_weights(folder, lambda state: state.update({"classify.bias": torch.ones(4).to(dtype)}))
    with pytest.raises(DataError, match=r"classify\.bias"):
        load(folder)


def test_many_weights_of_another_kind_of_number_make_a_short_message(folder):
    change_weights(folder, lambda state: state.update({key: value.double() for key, value in state.items()}))
    with pytest.raises(DataError, match="such tensors") as caught:
        load(folder)
    assert len(str(caught.value)) < 600


def test_a_config_that_asks_for_more_than_the_file_holds_gets_no_memory(folder, monkeypatch):
    devices = []

    def noted(*given, **options):
        devices.append(torch.get_default_device().type)
        return create(*given, **options)

    monkeypatch.setattr(hub, "create", noted)
    load(folder)
    assert devices == ["meta", "cpu"]
    change_config(folder, options={"width": 4, "dim": 4096, "layers": 64})
    with pytest.raises(DataError, match="does not fit"):
        load(folder)
    assert devices == ["meta", "cpu", "meta"]


def test_a_wrong_class_count_is_refused(folder):
    classes = json.loads((folder / CONFIG).read_text())["classes"]
    change_config(folder, classes=classes[:3])
    with pytest.raises(DataError, match="with 3 classes"):
        load(folder)


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_truncated_weights_are_refused(folder, length):
    replace_weights(folder, (folder / WEIGHTS).read_bytes()[:length])
    with pytest.raises(DataError, match="cannot read weights"):
        load(folder)


def test_weights_of_another_network_are_refused(folder, tmp_path):
    create("ntrm-paper", 4, **OPTIONS).save_pretrained(tmp_path / "other")
    (folder / WEIGHTS).write_bytes((tmp_path / "other" / WEIGHTS).read_bytes())
    with pytest.raises(RefusedError, match="sha256"):
        load(folder)


def test_a_pickle_in_disguise_is_not_run(folder, tmp_path):
    sprung = tmp_path / "sprung"
    replace_weights(folder, pickle.dumps(Trap(sprung)))
    with pytest.raises(DataError, match="cannot read weights"):
        load(folder)
    assert not sprung.exists()


@pytest.mark.parametrize(("name", "words"), [(WEIGHTS, "no weights"), (CONFIG, "no config.json")])
def test_a_missing_file_is_named(folder, name, words):
    (folder / name).unlink()
    with pytest.raises(DataError, match=words):
        load(folder)


def test_the_card_is_for_people_only(folder):
    (folder / CARD).unlink()
    assert load(folder).config.arch == "ntrm-paper"


# --- config ---

NO_CONFIG = {
    "not JSON": "arch = ntrm",
    "empty": "",
    "no object": "[]",
    "nested without end": "[" * 100_000,
    "an endless number": "9" * 10_000,
    "too large": json.dumps({"format": "ntrm-model/1", "name": "x" * MOST_CONFIG_BYTES}),
    "another format": json.dumps({"format": "other/7"}),
    "no format": "{}",
    "missing fields": json.dumps({"format": "ntrm-model/1"}),
}


@pytest.mark.parametrize("case", NO_CONFIG)
def test_a_foreign_config_is_refused(folder, case):
    (folder / CONFIG).write_text(NO_CONFIG[case])
    with pytest.raises(DataError, match=CONFIG):
        load(folder)


FOREIGN_FIELDS = {
    "unknown field": {"hook": "run.py"},
    "unknown architecture": {"arch": "os.system"},
    "no classes": {"classes": []},
    "classes as text": {"classes": "abcd"},
    "two classes of one name": {"classes": [{"name": "a", "title": "", "rgb": [k, 0, 0]} for k in range(4)]},
    "infinite colour": {"classes": [{"name": "a", "title": "", "rgb": [float("inf"), 0, 0]}]},
    "unknown background": {"background": "sky"},
    "no resolution": {"mpp": -1},
    "infinite resolution": {"mpp": float("inf")},
    "resolution beyond any number": {"mpp": 10**400},
    "odd window": {"window": 100},
    "infinite window": {"window": float("inf")},
    "two channels": {"mean": [0.5, 0.5]},
    "two channels and four": {"mean": [0.5, 0.5], "std": [1, 1, 1, 1]},
    "no spread": {"std": [0, 1, 1]},
    "no temperature": {"temperature": float("nan")},
    "options as text": {"options": "width"},
}


@pytest.mark.parametrize("case", FOREIGN_FIELDS)
def test_impossible_fields_are_refused(folder, case):
    change_config(folder, **FOREIGN_FIELDS[case])
    with pytest.raises(NtrmError):
        load(folder)


HOSTILE_OPTIONS = {
    "unknown option": {"callback": "print"},
    "nested option": {"encoder": {"name": "resnet18"}},
    "an encoder from elsewhere": {"encoder": "timm:hf-hub:evil/x", "width": 1.0},
    "an encoder by path": {"encoder": "timm:../../evil", "width": 1.0},
    "encoder as a number": {"encoder": 18},
    "width as text": {"width": "0.125"},
    "width without a value": {"width": None},
    "width without end": {"width": float("inf")},
    "half a dimension": {"dim": 8.5},
    "layers as text": {"layers": "1"},
    "a switch as text": {"boundary": "on"},
    "another switch as text": {"relate": "yes"},
    "the call's own argument": {"classes": 4},
    "the call's other argument": {"name": "ntrm"},
    "weights to fetch": {"weights": "evil/x"},
    "more memory than there is": {"dim": 10**9},
}


@pytest.mark.parametrize("case", HOSTILE_OPTIONS)
def test_hostile_options_are_refused(folder, case):
    change_config(folder, options=OPTIONS | HOSTILE_OPTIONS[case])
    with pytest.raises(NtrmError):
        load(folder)


# --- hub ids ---


def test_a_mistake_in_a_path_is_not_asked_of_the_hub(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "run" / "model")
    with pytest.raises(UsageError, match=r"no such model\n.*run/modle\n(.|\n)*look into run"):
        load("run/modle")
    assert load("run/model").config.classes == 4


def test_a_run_is_not_its_model(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run" / "model")
    with pytest.raises(DataError, match=rf"holds no model\n(.|\n)*give {tmp_path / 'run' / 'model'}"):
        load(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no model\n(.|\n)*finished run"):
        load(tmp_path / "empty")


def test_a_hub_id_fetches_the_files_of_a_model_at_the_revision(folder, monkeypatch):
    hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    asked = {}

    def download(name, **options):
        asked.update(name=name, **options)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.setattr("ntrm.models.folders._is_silent", lambda *_: False)
    assert load("owner/name", revision="v1").config.classes == 4
    wanted = [CONFIG, WEIGHTS, CARD, "reference.json", "reference.safetensors"]
    assert asked == {"name": "owner/name", "revision": "v1", "allow_patterns": wanted}
