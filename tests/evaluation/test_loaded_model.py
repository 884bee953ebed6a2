import json
import shlex

import pytest
from tests.evaluation.small import ByColour, write_dataset
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.core.errors import DataError, RefusedError
from ntrm.data.split import open_splits, section_hashes, trained_on
from ntrm.evaluation.calibrate import calibrate
from ntrm.evaluation.evaluate import evaluate
from ntrm.models.registry import ARCHITECTURES


def test_a_run_tells_its_seed_and_recipe(data, tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    run = tmp_path / "run"
    digest = ByColour().save_pretrained(run / "model")
    facts = {"seed": 3, "recipe": {"name": "fast"}, "encoder_init": "scratch", "level": "10x", "other": 1}
    (run / "provenance.json").write_text(json.dumps(facts))
    found = evaluate(run / "model", data, None, device="cpu", boundaries=False).model
    assert {key: found[key] for key in ("seed", "recipe", "encoder_init", "level")} == {
        key: facts[key] for key in ("seed", "recipe", "encoder_init", "level")
    }
    assert found["sha256"] == digest
    (run / "provenance.json").write_text('{"seed": 3')
    with pytest.raises(DataError, match=r"provenance\.json"):
        evaluate(run / "model", data, None, device="cpu")


def test_classes_that_the_network_does_not_know_are_refused(data):
    network = ByColour(classes=2)
    with pytest.raises(RefusedError, match=r"(?s)BKG, SCC.*EPI, RET"):
        evaluate(network, data, None, device="cpu")


def test_another_resolution_is_refused_with_the_command_that_makes_the_right_one(tmp_path, sections):
    folder = write_dataset(tmp_path / "Präparate 1", sections, mpp=2.9)
    with pytest.raises(RefusedError, match=r"(?s)2\.9 µm/px.*6\.7 µm/px") as refused:
        evaluate(ByColour(), folder, None, device="cpu")
    ntrm, *command = shlex.split(refused.value.hint.split("`")[1])
    assert (ntrm, CliRunner().invoke(app, command).exit_code) == ("ntrm", 0)
    resampled = evaluate(ByColour(), tmp_path / "Präparate 1-6.7um", None, device="cpu", boundaries=False)
    assert (resampled.data["mpp"], len(resampled.sections)) == (6.7, len(open_splits(folder)["test"]))


def test_sections_that_the_network_was_trained_on_are_told(data, tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    parts = open_splits(data)
    network = ByColour().describe(trained_on=tuple(set().union(*map(section_hashes, parts["train"]))))
    network.save_pretrained(tmp_path / "model")
    options = {"device": "cpu", "pictures": False, "reference": False}
    assert calibrate(tmp_path / "model", data, split="test", **options).as_dict()["notes"] == []
    (note,) = calibrate(tmp_path / "model", data, split="train", **options).as_dict()["notes"]
    assert note.startswith(f"the model was trained on 1 of 1 section ({parts['train'].cases[0].name}): it is surer")
    assert trained_on(ByColour().config.trained_on, parts["train"]) == ""
