import json
from dataclasses import fields, replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.familiarity.small import reference_of

from ntrm.core.errors import DataError
from ntrm.core.io import sha256_of
from ntrm.core.labels import SKIN
from ntrm.data.stains import Stains
from ntrm.familiarity.reference import read_reference

WEIGHTS = "a" * 64


@pytest.fixture
def folder(tmp_path):
    """With a reference of the skin classes."""
    reference_of(SKIN).write(tmp_path, WEIGHTS)
    return tmp_path


def read(folder, weights=WEIGHTS, classes=SKIN.names):
    return read_reference(folder, weights, classes)


def refusal(folder, **asked):
    """What is said where it is refused; it always says how to mend it."""
    with pytest.raises(DataError) as caught:
        read(folder, **asked)
    assert "ntrm calibrate" in caught.value.hint
    return str(caught.value)


def change(folder, **values):
    path = folder / "reference.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_numbers(folder, **arrays):
    """With other arrays, as a program would write them: the document names the new file."""
    path = folder / "reference.safetensors"
    found = {**load_file(path), **arrays}
    save_file({name: values for name, values in found.items() if values is not None}, path)
    change(folder, numbers_sha256=sha256_of(path))


def test_what_was_written_is_read_back(folder):
    written, found = reference_of(SKIN), read(folder)
    for field in fields(written.numbers):
        np.testing.assert_array_equal(getattr(found.numbers, field.name), getattr(written.numbers, field.name))
    assert (found.classes, found.mpp, found.about) == (SKIN.names, written.mpp, {"seed": 0})
    assert found.sha256 == sha256_of(folder / "reference.safetensors")


def test_stains_are_read_back_and_may_be_missing(folder):
    assert read(folder).stains is None
    stains = Stains((0.1, 0.5, 0.2), ((0.6, 0.7, 0.3), (0.1, 0.9, 0.1)), (0.9, 1.1))
    replace(reference_of(SKIN), stains=stains).write(folder, WEIGHTS)
    assert read(folder).stains == stains


def test_a_model_without_one_has_none(tmp_path, folder):
    assert read(tmp_path / "elsewhere") is None
    # As after an interruption while it was written: the document comes last.
    (folder / "reference.json").unlink()
    assert read(folder) is None


def test_one_of_other_weights_classes_or_versions_is_refused(folder):
    assert "other weights" in refusal(folder, weights="b" * 64)
    assert "classes EPI, GLD" in refusal(folder, classes=SKIN.names[:-1])
    change(folder, format="ntrm-reference/2")
    assert "ntrm-reference/1" in refusal(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "[" * 100_000, '{"format": "ntrm-reference/1"}'])
def test_a_document_that_is_none_is_refused(folder, content):
    (folder / "reference.json").write_text(content)
    assert "reference.json" in refusal(folder)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "folder"])
def test_damaged_numbers_are_refused(folder, damage):
    path = folder / "reference.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(content if damage == "flip" else content[:-9])
    assert "reference.safetensors cannot be used" in refusal(folder)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"unit_mean": np.full(9, np.nan)}, "unit_mean: values that are no numbers"),
        ({"unit_mean": np.zeros(8)}, "unit_mean: float64 of shape (8,)"),
        ({"unit_mean": np.zeros(9, dtype=np.float32)}, "unit_mean: float32"),
        ({"log_areas": np.zeros(0)}, "log_areas: float64 of shape (0,)"),
        ({"log_areas": np.array([2.0, 1.0])}, "do not rise"),
        ({"quantiles": -np.sort(np.ones((3, 2, 5)).cumsum(axis=2))}, "do not rise"),
        ({"unit_covariance": -np.eye(9)}, "not positive definite"),
        ({"unit_mean": None}, "unit_mean"),
        ({"another": np.zeros(3)}, "another"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_refused(folder, arrays, said):
    change_numbers(folder, **arrays)
    assert said in refusal(folder)
