import json
import shlex

import numpy as np
import pytest
from tests.evaluation.small import ByColour, count, draw_mask, of_test, schema_of, scores_of, write_dataset
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution
from ntrm.data.split import open_splits, section_hashes
from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.metrics.boundary import BoundaryAgreement, boundary_agreement
from ntrm.metrics.graph_agreement import GraphAgreement, graph_agreement
from ntrm.models.registry import ARCHITECTURES

HERE = Resolution.square(6.7)


def test_every_score_is_that_of_the_known_masks(data, sections, tmp_path):
    found = evaluate(ByColour(), data, tmp_path / "out", device="cpu", pictures=False, command=["ntrm", "evaluate"])
    tables = [count(truth, seen) for _, seen, truth in of_test(sections).values()]
    document = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert document == json.loads(json.dumps(found.as_dict()))
    accuracy, iou, dice = scores_of(tables)
    assert document["pooled"]["pixel_accuracy"] == pytest.approx(accuracy)
    assert document["pooled"]["macro"]["iou"] == pytest.approx(iou)
    assert document["pooled"]["macro"]["dice"] == pytest.approx(dice)
    one_by_one = np.mean([scores_of([table]) for table in tables], axis=0)
    assert document["per_section"]["macro"]["iou"] == pytest.approx(one_by_one[1])
    pairs = [(truth, seen) for _, seen, truth in of_test(sections).values()]
    boundary = BoundaryAgreement.total([boundary_agreement(*pair, schema_of(), HERE) for pair in pairs])
    graph = GraphAgreement.total([graph_agreement(*pair, schema_of(), HERE) for pair in pairs])
    assert document["boundary"] == json.loads(json.dumps(boundary.as_dict()))
    assert document["graph"] == json.loads(json.dumps(graph.as_dict()))
    total = np.sum(tables, axis=0)
    claim = document["claims"]["scc_false_positives"]
    assert claim["final"] == total[:3, 3].sum()
    assert claim["other_pixels"] == total[:3].sum()
    assert claim["coarse"] == sum(int(s.coarse[:3, 3].sum()) for s in found.sections)
    assert document["coarse"]["pixels"] == document["pooled"]["pixels"] == total.sum()
    assert document["cancers"]["sections"] == 3
    assert 0 <= document["calibration"]["ece"] <= 1
    assert len(document["calibration"]["reliability"]) == 15
    assert sum(counts["wrong"] for counts in document["interfaces"].values()) > 0


def test_the_document_names_model_data_and_program(data, tmp_path):
    network = ByColour().describe(name="mine", version="2", temperature=1.5)
    found = evaluate(network, data, None, device="cpu", command=["a", "b"], boundaries=False).as_dict()
    parts = open_splits(data)
    assert found["model"] | {"sha256": ""} == {
        "name": "mine", "arch": "by-colour", "options": {}, "version": "2", "sha256": "", "seed": None, "recipe": None,
        "encoder_init": None, "level": None, "sections": None, "init": None, "mpp": 6.7, "window": 64,
        "temperature": 1.5, "data": "",
    }  # fmt: skip
    assert found["data"] == {
        "fingerprint": parts.fingerprint("test"), "split": "test", "level": None, "mpp": pytest.approx(6.7),
        "sections": 3, "patients": 2,
    }  # fmt: skip
    assert found["classes"] == ["EPI", "RET", "BKG", "SCC"]
    assert found["stitching"] == {"window": 64, "overlap": 16}
    assert found["command"] == ["a", "b"]
    assert found["boundary"] is found["robustness"] is None
    assert found["seconds"] >= found["seconds_predicting"] > 0


@pytest.mark.slow
def test_jobs_and_batches_change_nothing(data):
    documents = [
        evaluate(ByColour(), data, None, device="cpu", jobs=jobs, batch=batch).as_dict()
        for jobs, batch in ((1, 16), (2, 1))
    ]
    for document in documents:
        for key in ("seconds", "seconds_predicting"):
            document.pop(key)
    assert documents[0] == documents[1]


def test_sections_without_a_known_pixel_do_no_harm(tmp_path, random):
    unknown = np.full((40, 50), IGNORE, dtype=np.uint8)
    sections = {
        "a": ("test", "p", draw_mask(random, 40, 50), unknown),
        "b": ("test", "q", *[draw_mask(random, 33, 21)] * 2),
    }

    def scores(folder, sections):
        data = write_dataset(tmp_path / folder, sections)
        return evaluate(ByColour(), data, tmp_path / f"{folder}-out", device="cpu", pictures=False).as_dict()

    found, alone = scores("both", sections), scores("alone", {"a": sections["a"]})
    assert found["pooled"]["pixel_accuracy"] == 1.0
    assert found["pooled"]["pixels"] == 33 * 21
    assert alone["pooled"]["pixel_accuracy"] is alone["pooled"]["macro"]["iou"] is alone["calibration"]["ece"] is None


def test_sections_that_were_trained_on_are_told(data, tmp_path):
    parts = open_splits(data)
    network = ByColour().describe(trained_on=tuple(set().union(*map(section_hashes, parts["train"]))))
    assert evaluate(network, data, None, device="cpu").as_dict()["notes"] == []
    assert evaluate(network, data, None, split="train", device="cpu").notes == ()
    rows = [f"{case.name},{'test' if case.split == 'train' else 'train'}" for case in parts.dataset]
    (tmp_path / "other.csv").write_text("\n".join(["name,split", *rows]))
    (note,) = evaluate(network, data, None, splits=tmp_path / "other.csv", device="cpu").as_dict()["notes"]
    assert note.startswith("the model was trained on 1 of 1 section (training)")  # and the split file decides
    assert evaluate(ByColour(), data, None, splits=tmp_path / "other.csv", device="cpu").notes == ()


def test_robustness_starts_from_the_scores_themselves(data):
    found = evaluate(ByColour(), data, None, device="cpu", robustness=True, boundaries=False)
    rows = found.as_dict()["robustness"]
    assert len(rows) == len(DEGRADATIONS) + 1
    assert rows[0]["iou"] == pytest.approx(found.pooled.macro["iou"])
    assert rows[0]["iou_change"] == 0
    assert min(row["iou_change"] for row in rows) < 0


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


def test_classes_that_the_network_does_not_know_and_the_dataset_as_output_are_refused(data):
    with pytest.raises(RefusedError, match="inside the dataset"):
        evaluate(ByColour(), data, data / "scores", device="cpu")
    assert not (data / "scores").exists()
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
