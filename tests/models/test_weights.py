"""Encoder weights: files that fit are read, nothing in a file is run, and the public ones give the known features."""

import pickle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests.helpers import Trap, imagenet_weights

from ntrm.core.errors import DataError, NtrmError
from ntrm.models.encoders import ResNetEncoder
from ntrm.models.weights import load_encoder_weights, read_tensors

THIN = 0.125


def thin_state(seed=0):
    torch.manual_seed(seed)
    return ResNetEncoder(width=THIN).state_dict()


def write(path, state):
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


def same_state(encoder, state):
    return all(torch.equal(value, state[key]) for key, value in encoder.state_dict().items())


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_both_kinds_of_file_load(suffix, tmp_path, seed):
    state = thin_state(seed)
    path = write(tmp_path / f"weights.{suffix}", state)
    encoder = ResNetEncoder(width=THIN)
    assert load_encoder_weights(encoder, path) == path
    assert same_state(encoder, state)


def test_weights_that_do_not_fit_are_refused_and_change_nothing(tmp_path):
    state, encoder = thin_state(1), ResNetEncoder(width=THIN)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    del state["conv1.weight"]
    with pytest.raises(DataError, match=r"missing \['conv1.weight'\]"):
        load_encoder_weights(encoder, write(tmp_path / "w.pth", state))
    assert same_state(encoder, before)


@pytest.mark.parametrize("name", ["w.pth", "w.pt", "w.bin", "w.safetensors"])
@pytest.mark.parametrize("zipped", [True, False], ids=["torch's archive", "bare pickle"])
def test_a_file_that_wants_to_run_code_is_refused(name, zipped, tmp_path):
    path, sprung = tmp_path / name, tmp_path / "sprung"
    content = {"conv1.weight": Trap(sprung)}
    if zipped:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match="cannot read weights"):
        load_encoder_weights(ResNetEncoder(width=THIN), path)
    assert not sprung.exists()


@pytest.mark.filterwarnings("ignore")  # torch has many things to say about a damaged pickle
@pytest.mark.parametrize("kind", ["w.safetensors", "w.pth", "old.pth"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_are_refused_or_read_but_never_crash(kind, data, tmp_path):
    path = tmp_path / kind
    if kind == "old.pth":
        torch.save({"a": torch.zeros(3)}, path, _use_new_zipfile_serialization=False)
    else:
        write(path, {"a": torch.zeros(3)})
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=4))
    path.write_bytes(content)
    try:
        assert isinstance(read_tensors(path), dict)
    except NtrmError as error:
        assert kind in str(error)  # noqa: PT017 - a damaged file may still be a whole one


FINGERPRINT = {
    "mean": (0.24656, 0.52589, 0.21579, 0.13483, 0.55862),
    "std": (0.22960, 0.45758, 0.29559, 0.21523, 1.04251),
}
"""Of E1 … E5 for the input below."""


@torch.no_grad()
def test_the_known_features():
    encoder = ResNetEncoder()
    load_encoder_weights(encoder, imagenet_weights())
    stages = encoder.eval()(torch.remainder(torch.arange(3 * 64 * 64).reshape(1, 3, 64, 64) * 7, 255) / 127.5 - 1)
    assert [stage.mean().item() for stage in stages] == pytest.approx(FINGERPRINT["mean"], rel=1e-3)
    assert [stage.std().item() for stage in stages] == pytest.approx(FINGERPRINT["std"], rel=1e-3)
