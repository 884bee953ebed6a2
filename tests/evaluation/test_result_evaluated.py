import json

import numpy as np
import pytest
from tests.evaluation.evaluations import SCHEMA, confusions, truth_counts, write_evaluation

from ntrm.core.errors import DataError
from ntrm.evaluation.result import read_evaluation


@pytest.fixture
def counts(random):
    return confusions(random, truth_counts(random, sections=6), 0.8)


@pytest.fixture
def out(tmp_path, counts):
    return write_evaluation(tmp_path / "out", counts, seed=3, recipe={"name": "fast", "augment": {"flip": 0.5}})


def test_it_is_read_as_it_was_written(out, counts):
    found = read_evaluation(out)
    np.testing.assert_array_equal(found.confusions, counts)
    assert (found.name, found.seed, found.classes) == ("ntrm-control", 3, SCHEMA.names)
    assert found.sections == tuple(f"BCC_{number}" for number in range(6))
    assert found.patients == tuple(f"patient-{number // 2}" for number in range(6))
    assert found.data["fingerprint"] == "0123456789abcdef"
    assert found.traits["width"] == "0.5"
    assert found.traits["recipe.augment.flip"] == "0.5"
    assert found.traits["stitching.window"] == "256"


def test_a_network_that_was_called_ntrm_is_the_papers(tmp_path, counts):
    # Seeds of one model, evaluated before and after the default changed, stay one model.
    before = read_evaluation(write_evaluation(tmp_path / "before", counts, arch="ntrm", name="mine"))
    after = read_evaluation(write_evaluation(tmp_path / "after", counts, arch="ntrm-paper", name="mine", seed=1))
    assert before.traits == after.traits
    assert before.traits["arch"] == "ntrm-paper"
    assert read_evaluation(write_evaluation(tmp_path / "nameless", counts, arch="ntrm")).name == "ntrm-paper"


def test_a_folder_without_an_evaluation_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no evaluation[\s\S]*ntrm evaluate"):
        read_evaluation(tmp_path)


def test_a_file_that_is_cut_or_gone_is_refused(out):
    path = out / "confusions.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cannot read .*confusions\.npz"):
        read_evaluation(out)
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read .*confusions\.npz"):
        read_evaluation(out)


@pytest.mark.parametrize(("text", "said"), [('{"mod', "cannot read"), ("[]", "understood"), ("{}", "understood")])
def test_metrics_that_are_none_are_refused(out, text, said):
    (out / "metrics.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_evaluation(out)


@pytest.mark.parametrize("value", ["much", [], 10**400], ids=["text", "list", "huge"])
def test_an_accuracy_that_is_no_number_is_refused(out, value):
    document = json.loads((out / "metrics.json").read_text())
    document["pooled"]["pixel_accuracy"] = value
    (out / "metrics.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="understood"):
        read_evaluation(out)


def test_files_of_two_evaluations_in_one_folder_are_refused(out, tmp_path, counts):
    other = write_evaluation(tmp_path / "other", counts[:, :, ::-1])
    (out / "confusions.npz").write_bytes((other / "confusions.npz").read_bytes())
    with pytest.raises(DataError, match="not of one evaluation"):
        read_evaluation(out)


def test_counts_of_other_sections_or_classes_are_refused(out):
    sections = np.array(["a", "b"])
    for final in (np.ones((2, 3, 3), dtype=np.int64), np.ones((1, 4, 4), dtype=np.int64), np.ones((2, 4, 4))):
        np.savez(out / "confusions.npz", names=sections, patients=sections, final=final)
        with pytest.raises(DataError, match="does not fit its evaluation"):
            read_evaluation(out)


def test_nothing_pickled_is_ever_loaded(out):
    np.savez(out / "confusions.npz", names=np.array([{}], dtype=object), patients=["x"], final=np.ones((1, 4, 4)))
    with pytest.raises(DataError, match="cannot read"):
        read_evaluation(out)
