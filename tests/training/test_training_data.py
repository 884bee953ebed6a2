"""Training on corrected slides, alone and beside a dataset."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.annotations.small import annotate, box, drawn, import_annotations
from tests.correct.corrected import correct, segmented, step
from tests.evaluation.small import MPP, draw_mask, schema_of, write_dataset
from tests.segment.conftest import quick_readers
from tests.training.small_data import read_log, small_recipe, weights

from ntrm.annotations.pairing import SlideFacts
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.core.labels import IGNORE
from ntrm.correct.dataset import CorrectedResults
from ntrm.data.resample import resample_dataset
from ntrm.data.split import open_splits, trained_on
from ntrm.models.registry import create
from ntrm.training.recipe import load_recipe
from ntrm.training.train import train
from ntrm.training.training_data import TrainingData, open_training_data

__all__ = ["quick_readers"]
pytestmark = pytest.mark.usefixtures("quick_readers")
SHAPE = (190, 130)
FINETUNE = load_recipe(
    "finetune",
    {"steps": 4, "batch": 2, "window": 64, "overlap": 16, "validate_every": 2, "workers": 0, "precision": "float32"},
)


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """Slides a and b, each with one named box; b is for validation."""
    rows = ["slide,patient,split", "slides/a.tif,A,", "slides/b.tif,B,"]
    found = segmented(tmp_path_factory.mktemp("corrected"), rows=rows)
    for name in "ab":
        correct(found.results, name, step(SHAPE, "SCC", (80, 90, 40, 60), RET=(100, 104, 40, 50)))
    return found


@pytest.fixture(scope="module")
def init(tmp_path_factory, tiny_network):
    """An untrained network of the slides' classes and µm/px."""
    folder, network = tmp_path_factory.mktemp("init") / "model", create("tiny", schema_of())
    network.describe(mpp=MPP, window=64)
    network.save_pretrained(folder)
    return folder


def learn(slides, init, out, data=None, trust="hand", **settings):
    settings = {"recipe": FINETUNE, "device": "cpu", "pictures": False, **settings}
    return train(data, out, init=init, corrections=CorrectedResults(slides.results, slides.slides, trust), **settings)


def test_corrected_slides_alone_train_for_a_fixed_number_of_steps_and_the_run_says_what_it_learned_from(
    slides, init, tmp_path
):
    said = []
    result = learn(slides, init, tmp_path / "run", trust="followed", say=said.append)
    assert result.steps == result.best["step"] == 4
    assert result.best["iou"] is None
    assert result.provenance["recipe"]["keep"] == "last"
    assert any("no model selection" in line for line in said)
    assert any(line.startswith("--trust followed learns from corrected places alone") for line in said)
    counted = "corrected slides: 2; pixels that count: 480, of RET, SCC"
    assert f"{counted}; nothing keeps the network from forgetting EPI, BKG" in said
    assert [row["val_loss"] for row in read_log(tmp_path / "run" / "log.csv")] == [None, None]
    before, after = (load_file(folder / "model.safetensors") for folder in (init, result.model))
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert not (result.model / "reference.json").exists()
    followed = result.provenance["corrections"]
    assert [(slide["slide_id"], slide["version"], slide["pixels"]) for slide in followed["slides"]] == [
        ("a", 1, {"RET": 40, "SCC": 200}),
        ("b", 1, {"RET": 40, "SCC": 200}),
    ]
    written = json.loads((tmp_path / "run" / "corrections" / "corrections.json").read_text())
    assert [slide.pop("group") for slide in written["slides"]] == ["A", "B"]  # patients stay with the data
    assert written == followed


def test_a_run_that_was_killed_while_it_wrote_the_slides_begins_again_and_never_with_others(slides, init, tmp_path):
    said = []
    whole = learn(slides, init, tmp_path / "whole", trust="all", say=said.append)
    learned_from = whole.provenance["corrections"]
    assert learned_from["trust"] == "all"
    assert [sum(slide["pixels"].values()) for slide in learned_from["slides"]] == [SHAPE[0] * SHAPE[1]] * 2
    assert not any("--trust" in line for line in said)
    (tmp_path / "run" / "corrections" / "Images").mkdir(parents=True)
    (tmp_path / "run" / "corrections" / "Images" / "a.tif").write_bytes(b"half")
    assert weights(learn(slides, init, tmp_path / "run", trust="all", resume=True).folder) == weights(whole.folder)
    with pytest.raises(RefusedError, match="other corrections"):
        learn(slides, init, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(whole.folder)


def test_a_few_areas_on_a_large_section_are_all_that_is_trained_on(random, tmp_path):
    seen = draw_mask(random, 320, 320)
    truth = np.full_like(seen, IGNORE)
    truth[10:20, 300:310] = truth[300:310, 10:20] = 1
    sections = {"x": ("train", "X", seen, truth), "y": ("val", "Y", seen, truth)}
    given = open_training_data(write_dataset(tmp_path / "drawn", sections), tmp_path)
    windows = given.windows(small_recipe(window=64, overlap=0))
    assert [(source.window.top, source.window.left) for source in windows.sources] == [(0, 256), (256, 0)]
    assert windows.unknown == 25 - 2


def test_beside_a_dataset_corrected_windows_are_about_half(slides, random, tmp_path):
    sections = {}
    for number, split in enumerate(("train", "train", "train", "train", "val", "test")):
        seen = draw_mask(random, 100, 150)
        sections[f"s{number}"] = (split, f"p{number}", seen, seen)
    known = write_dataset(tmp_path / "known", sections)
    given = open_training_data(known, tmp_path, corrections=CorrectedResults(slides.results, slides.slides))
    windows = given.windows(small_recipe(window=32, overlap=0))
    corrected = [source for source in windows.sources if source.case.name in "ab"]
    assert len(corrected) / len(windows) == pytest.approx(0.5, abs=0.1)
    assert len({source.window for source in windows.sources if source.case.name == "s0"}) == 4 * 5


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """Corrected slides a, to learn from, and b, for validation."""
    rows = ["slide,patient,split", "slides/a.tif,A,train", "slides/b.tif,B,val"]
    slides = segmented(tmp_path_factory.mktemp("split"), rows=rows)
    for name in "ab":
        correct(slides.results, name, step(SHAPE, "SCC", (80, 90, 40, 60)))
    return slides


def test_slides_that_the_table_put_into_val_choose_the_weights(divided, init, tmp_path):
    result = learn(divided, init, tmp_path / "run")
    assert result.provenance["recipe"]["keep"] == "iou"
    assert [row["step"] for row in read_log(tmp_path / "run" / "log.csv")] == [0, 2, 4]


def imported(slide, folder, name, split, right):
    """A dataset of a slide under another name, cut out around a box that a person drew."""
    folder.mkdir()
    shutil.copy(slide, folder / f"{name}.tif")
    annotate(folder / f"{name}.geojson", drawn("RET", box(40, 80, right, 120)))
    facts = {name: SlideFacts(name, split)}
    files = folder / f"{name}.tif", folder / f"{name}.geojson"
    import_annotations(*files, folder / "data", schema=schema_of(), facts=facts, margin_um=0)
    return folder / "data"


def test_slides_of_an_import_that_was_learned_from_are_recognised_whatever_is_cut_from_them(divided, tmp_path):
    given = open_splits(imported(divided.slides / "b.tif", tmp_path / "one", "one", "train", right=90))
    hashes = TrainingData(given, given["train"]).hashes()
    again = open_splits(imported(divided.slides / "b.tif", tmp_path / "two", "two", "val", right=70))
    assert not hashes & {sha256_of(case.image)[:8] for case in again.dataset}
    assert trained_on(hashes, again["val"]) == "the model was trained on 1 of 1 section (two)"
    resampled = resample_dataset(again.dataset, ["2x"], tmp_path / "coarse").out
    assert trained_on(hashes, open_splits(resampled)["val"]) == "the model was trained on 1 of 1 section (two)"
    corrections = CorrectedResults(divided.results, divided.slides)
    corrected = open_training_data(None, tmp_path / "run", corrections=corrections)
    assert trained_on(hashes, corrected.validation) == "the model was trained on 1 of 1 section (b)"


@pytest.mark.parametrize(
    ("places", "settings", "mpp", "words"),
    [
        ({"x": ("train", "X"), "y": ("val", "A"), "z": ("test", "Z")}, {}, None, "patient A is in two splits"),
        ({"a": ("train", "X"), "y": ("val", "Y")}, {}, None, "same name as a section"),
        ({"x": ("train", "X"), "y": ("val", "Y")}, {"schema": schema_of(("EPI", "RET"))}, None, "other tissues"),
        ({"x": ("train", "X"), "y": ("val", "Y")}, {"mpp": 2.0}, None, "other µm/px"),
        (None, {}, 1.0, "other µm/px"),
    ],
)
def test_data_that_do_not_fit_the_corrections_are_refused(slides, random, tmp_path, places, settings, mpp, words):
    seen, data = np.minimum(draw_mask(random, 64, 64), 1), None
    if places:
        data = write_dataset(tmp_path / "known", {name: (*of, seen, seen) for name, of in places.items()}, **settings)
    with pytest.raises(RefusedError, match=words):
        open_training_data(data, tmp_path, corrections=CorrectedResults(slides.results, slides.slides), mpp=mpp)


def test_corrections_need_a_model_and_a_recipe_of_a_fixed_length(slides, init, tmp_path):
    with pytest.raises(UsageError, match="too few corrections to train from scratch"):
        train(None, tmp_path / "run", corrections=CorrectedResults(slides.results), device="cpu")
    with pytest.raises(UsageError, match="nothing to validate on"):
        learn(slides, init, tmp_path / "run", recipe="paper")
    with pytest.raises(UsageError, match="all corrected slides"):
        learn(slides, init, tmp_path / "run", sections=1)
    with pytest.raises(UsageError, match="nothing to train on"):
        train(None, tmp_path / "run", device="cpu")
