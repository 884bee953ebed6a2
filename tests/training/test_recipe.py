import json
import math
import pickle
from dataclasses import asdict, fields, replace

import pytest
import yaml

from ntrm.core.errors import NtrmError, UsageError
from ntrm.data.augment import Augment
from ntrm.training.recipe import (
    MOST_CHARACTERS,
    RECIPES,
    Recipe,
    check_start,
    load_recipe,
    parse_overrides,
    parse_yaml,
    write_recipe,
)


@pytest.fixture
def fast():
    return load_recipe("fast")


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_the_papers_recipe_is_the_specification():
    recipe = load_recipe("paper")
    stated = {
        "epochs": 150, "steps": None, "batch": 4, "optimiser": "adam", "learning_rate": 1e-4, "weight_decay": 0,
        "gradient_clip": None, "schedule": "plateau", "plateau_factor": 0.5, "plateau_patience": 5, "warmup": 0,
        "early_stopping": 20, "validate_every": None, "keep": "loss", "precision": "float32", "window": 256,
        "weighting": "batch", "coarse": 0.4, "encoder_weights": "imagenet", "freeze_batch_norm": False,
    }  # fmt: skip
    assert {key: value for key, value in recipe.as_dict().items() if key in stated} == stated
    assert recipe.augmentation == Augment.paper()


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_written_is_read_again(name, tmp_path):
    recipe, path = load_recipe(name, {"learning_rate": 1e-5, "resident": "no"}), tmp_path / "deep" / "recipe.yaml"
    write_recipe(recipe, path)
    document = yaml.safe_load(path.read_text())
    assert load_recipe(path).as_dict() == document == json.loads(json.dumps(recipe.as_dict()))
    assert list(document) == [field.name for field in fields(Recipe)]
    assert list(document["augment"]) == [field.name for field in fields(Augment)]
    del document["augment"]["jpeg_quality"]  # a file may say less
    assert load_recipe(written(path, yaml.safe_dump(document))).as_dict() == recipe.as_dict()
    assert load_recipe(name, {"augment.blur_sigma": [0.5, 2]}).augmentation.blur_sigma == (0.5, 2)
    assert pickle.loads(pickle.dumps(recipe)) == recipe  # it travels to other processes


def test_a_file_may_build_on_a_recipe(tmp_path, fast):
    path = written(tmp_path / "mine.yaml", "base: fast\nbatch: 6\naugment: {stain: 0}\nepochs: 3\nresident: no\n")
    recipe = load_recipe(path, {"augment.flip": 0.25})
    assert (recipe.name, recipe.batch, recipe.epochs, recipe.steps, recipe.resident) == ("mine", 6, 3, None, "no")
    assert recipe.augmentation == replace(Augment.full(), stain=0, flip=0.25)
    changed = {"name", "batch", "epochs", "steps", "resident", "augment"}
    assert {k: v for k, v in asdict(recipe).items() if k not in changed} == {
        k: v for k, v in asdict(fast).items() if k not in changed
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch: 6", "not a complete recipe"),
        ("base: slow", "unknown base"),
        ("base: [fast]", "unknown base"),
        ("base: fast\nbacth: 6", "unknown field of a recipe"),
        ("base: fast\n3: 6", "unknown field of a recipe"),
        ("base: fast\nbatch: 6\nbatch: 8", "given twice: batch"),
        ("base: fast\naugment: &a {flip: 1}\nname: *a", "references"),
        ("base: fast\nname: !!python/object/apply:os.getcwd []", "cannot understand"),
        *((text, "cannot understand") for text in ("!!python/name:os.system", "!thing 3", "a: 1\n---\nb: 2", "\0")),
        ("? [1]\n: 2", "cannot understand"),
        ("- fast", "not a recipe"),
        ("", "not a recipe"),
        ("base: [", "cannot understand"),
        ("[" * 1500, "cannot understand"),
        ("base: fast\nsteps: " + "9" * 5000, "cannot understand"),
        ("# " + "x" * MOST_CHARACTERS, "too long"),
    ],
)
def test_files_that_are_no_recipe_are_refused(text, words, tmp_path):
    with pytest.raises(NtrmError, match=words):
        load_recipe(written(tmp_path / "mine.yaml", text))


def test_changes_are_laid_over(fast):
    words = [
        "batch=8",
        "augment.flip=0",
        "gradient_clip=null",
        "learning_rate=1e-4",
        "resident=no",
        "precision = float32",
    ]
    recipe = load_recipe("fast", parse_overrides(words))
    assert (recipe.batch, recipe.gradient_clip, recipe.learning_rate, recipe.resident) == (8, None, 1e-4, "no")
    assert recipe.augmentation == replace(Augment.full(), flip=0)
    assert load_recipe("fast", {}) == fast
    assert load_recipe("fast", {"augment": "none"}).augmentation == Augment()
    recipe = load_recipe("paper", parse_overrides(["augment.blur=0", "augment=full"]))
    assert recipe.augmentation == replace(Augment.full(), blur=0)
    for pairs in (["batch"], ["=8"], ["batch="], ["batch=["], ["batch=*x"]):
        with pytest.raises(NtrmError, match=r"cannot understand"):
            parse_overrides(pairs)
    with pytest.raises(UsageError, match="twice"):
        parse_overrides(["batch=8", "batch=9"])


def test_one_length_replaces_the_other():
    assert (load_recipe("paper", {"steps": 10}).epochs, load_recipe("paper", {"steps": 10}).steps) == (None, 10)
    assert (load_recipe("fast", {"epochs": 2}).epochs, load_recipe("fast", {"epochs": 2}).steps) == (2, None)
    for both in ({"epochs": 2, "steps": 10}, {"epochs": None, "steps": None}, {"steps": None}):
        with pytest.raises(UsageError, match="exactly one"):
            load_recipe("fast", both)


@pytest.mark.parametrize("key", ["bacth", "augment.", "batch.size", "augment.flop", "", ".flip", "base"])
def test_an_unknown_field_recipe_or_augmentation_lists_those_there_are(key, tmp_path):
    with pytest.raises(UsageError, match=r"flip|batch, optimiser"):
        load_recipe("fast", {key: 1})
    for source in ("quick", tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="paper, fast, robust, finetune, a YAML file"):
            load_recipe(source)
    with pytest.raises(UsageError, match="none, paper, full"):
        load_recipe("paper", {"augment": "plenty"})


def test_fine_tuning_needs_a_start(tmp_path):
    with pytest.raises(UsageError, match="name the model with --init"):
        check_start(load_recipe("finetune", {"steps": 2}), None)
    check_start(load_recipe("finetune"), "bundled")
    check_start(load_recipe("fast"), None)
    # One's own recipe, whatever it is based on, may start from anything.
    (tmp_path / "mine.yaml").write_text("base: finetune\n")
    check_start(load_recipe(tmp_path / "mine.yaml"), None)
    check_start(load_recipe("finetune", {"name": "from scratch"}), None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", ""), ("name", "a/b"), ("epochs", 0), ("epochs", True), ("steps", "10"), ("batch", 2.0)),
        *(("optimiser", "sgd"), ("learning_rate", math.nan), ("learning_rate", "fast"), ("weight_decay", -0.1)),
        *(("gradient_clip", 0), ("schedule", "linear"), ("warmup", 1), ("plateau_factor", 0), ("keep", "best")),
        *(("early_stopping", 2.5), ("validate_every", 0), ("precision", "bf16"), ("compile", 1), ("replay", "true")),
        *(("window", 100), ("window", 2**20), ("overlap", 256), ("drop_background", "no"), ("weighting", "none")),
        *(("coarse", 101), ("encoder_weights", ""), ("freeze_batch_norm", 0), ("resident", False), ("workers", -1)),
        *(("balance", 1.1), ("dice", -0.1), ("fill", None), ("augment", [0.5]), ("augment", {"flip": 2})),
        *(("augment", {"flip": None}), ("augment", {"blur_sigma": [1, 2, 3]}), ("augment", {"jpeg_quality": [90, 40]})),
    ],
    ids=repr,
)
def test_impossible_values_are_refused(field, value):
    with pytest.raises(UsageError, match=field if field not in ("epochs", "steps") else "epochs|steps"):
        load_recipe("fast", {field: value})


SCALARS = {
    "no": "no", "off": "off", "true": True, "False": False, "1e-4": 1e-4, "-2.5E+3": -2500.0, "1.": 1.0, ".5": 0.5,
    "+7": 7, "010": 10, "1:30": "1:30", "1_000": "1_000", "2026-01-31": "2026-01-31", "none": "none", "null": None,
    "~": None, "": None, "'5'": "5", "5 # five": 5,
}  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_mean_what_people_mean(text):
    found = parse_yaml(text, "it")
    assert (found, type(found)) == (SCALARS[text], type(SCALARS[text]))
