import json

import numpy as np
import pytest
from PIL import Image
from tests.evaluation import gaussians
from tests.evaluation.gaussians import COLOURS, make_network, write_sections
from tests.familiarity import small as painted

from ntrm.core.errors import RefusedError
from ntrm.core.labels import IGNORE
from ntrm.data.split import open_splits
from ntrm.evaluation import calibrate as module
from ntrm.evaluation.calibrate import calibrate, sample_pixels
from ntrm.familiarity import build
from ntrm.familiarity.loaded_model import open_subject
from ntrm.models.predictor import Predictor
from ntrm.models.registry import load

SHAPES = {
    ("one", "train"): (40, 40),
    ("two", "val"): (150, 100),
    ("three", "val"): (40, 90),
    ("four", "test"): (70, 70),
}


@pytest.fixture
def data(tmp_path, random, monkeypatch):
    gaussians.register(monkeypatch)
    write_sections(tmp_path / "data", random, SHAPES)
    return tmp_path / "data"


@pytest.fixture
def save(tmp_path, data):
    """Save a network whose logits are sharper than they should be by a factor."""

    def one(sharpness, name="run/model"):
        network = make_network(open_splits(data).schema, sharpness)
        network.save_pretrained(tmp_path / name)
        return tmp_path / name

    return one


def run(model, data, **options):
    return calibrate(model, data, device="cpu", batch=3, **{"pictures": False, **options})


@pytest.mark.parametrize("sharpness", [1.0, 3.0, 0.4])
def test_logits_that_are_too_sharp_get_that_temperature(save, data, sharpness):
    found = run(save(sharpness), data)
    assert found.temperature == pytest.approx(sharpness, rel=0.1)
    assert json.loads((found.model / "config.json").read_text())["temperature"] == found.temperature
    assert load(found.model).config.temperature == found.temperature


def test_findings_and_pictures_lie_beside_the_model(save, data, tmp_path):
    found = run(save(3.0), data, pictures=True)
    assert found.out == tmp_path / "run" / "calibration"
    assert sorted(path.name for path in found.out.iterdir()) == ["calibration.json", "reliability.png"]
    with Image.open(found.out / "reliability.png") as picture:
        assert min(picture.size) > 100
    document = json.loads((found.out / "calibration.json").read_text())
    assert document == json.loads(json.dumps(found.as_dict()))
    assert document["data"]["split"] == "val"
    assert document["data"]["sections"] == 2
    again = run(found.model, data)  # without pictures: those of the first time would tell a wrong story
    assert [path.name for path in again.out.iterdir()] == ["calibration.json"]


def test_the_sample_is_of_known_pixels_with_their_probabilities(save, data):
    network = load(save(1.0))
    predictor = Predictor(network, "cpu", batch=2)
    part = open_splits(data)["val"]
    scores, labels, windows = sample_pixels(predictor, part, seed=1)
    assert windows == 3 * 2 + 1 * 2
    assert scores.shape == (len(COLOURS), labels.size)
    assert labels.size <= windows * module.PIXELS_PER_WINDOW
    assert (labels != IGNORE).all()
    np.testing.assert_allclose(np.exp(scores).sum(axis=0), 1, atol=1e-4)
    # The truth is as likely as the posterior says.
    chosen = np.exp(scores)[labels, np.arange(labels.size)]
    assert chosen.mean() == pytest.approx((np.exp(scores) ** 2).sum(axis=0).mean(), abs=0.05)
    for batch in (1, 5):
        other = sample_pixels(Predictor(network, "cpu", batch=batch), part, seed=1)
        np.testing.assert_array_equal(other[1], labels)
        np.testing.assert_allclose(other[0], scores, atol=1e-4)
    assert not np.array_equal(sample_pixels(predictor, part, seed=2)[1], labels)


@pytest.mark.parametrize("model", ["bundled", "owner/name"])
def test_models_that_are_not_ones_own_are_refused(data, model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bundled").mkdir()
    with pytest.raises(RefusedError, match="only a local model folder"):
        run(model, data)


def test_a_reference_is_left_with_the_model(tmp_path, random, monkeypatch):
    monkeypatch.setattr(build, "PARTS", 2)  # of the dataset, which has just enough sections, few parts are looked at
    painted.register(monkeypatch)
    splits, model = {"train": build.LEAST_SECTIONS, "val": build.LEAST_SECTIONS}, tmp_path / "painted" / "model"
    skin = painted.write_skin(tmp_path / "skin", random, splits)
    painted.make_network().save_pretrained(model)
    assert open_subject(model).reference is None
    found = run(model, skin)
    assert (found.reference["training"], found.no_reference) == ({"sections": 8, "patients": 8}, "")
    assert json.loads((found.out / "calibration.json").read_text())["reference"] == found.reference
    assert open_subject(model).reference.about == found.reference
