import csv
import json

import numpy as np
import pytest
import torch
from tests.evaluation import gaussians
from tests.evaluation.evaluations import SCHEMA, confusions, truth_counts, write_evaluation

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.data.split import open_splits
from ntrm.evaluation.compare import compare, read_evaluation
from ntrm.evaluation.evaluate import evaluate
from ntrm.metrics.overlap import pooled
from ntrm.metrics.significance import Bootstrap, compare_confusions, macro_dice

DRAWS = 400


@pytest.fixture
def truth(random):
    return truth_counts(random, sections=20)


@pytest.fixture
def write(tmp_path, random, truth):
    """Write an evaluation of a model of given skill."""

    def one(folder, skill=0.8, counts=None, **changes):
        return write_evaluation(
            tmp_path / folder, confusions(random, truth, skill) if counts is None else counts, **changes
        )

    return one


def test_seeds_are_one_model_and_the_numbers_are_those_of_the_metrics(write, random, truth):
    stacks = {
        "ntrm-paper": [confusions(random, truth, 0.9) for _ in range(3)],
        "unet": [confusions(random, truth, 0.7) for _ in range(2)],
    }
    outs = [
        write(f"{arch}-{seed}", counts=counts, arch=arch, seed=seed)
        for arch, group in stacks.items()
        for seed, counts in enumerate(group)
    ]
    found = compare(outs[::-1], measure="dice", draws=DRAWS, seed=3)
    patients = [f"patient-{number // 2}" for number in range(20)]
    (expected,) = compare_confusions(
        {"unet": np.stack(stacks["unet"]), "ntrm-paper": np.stack(stacks["ntrm-paper"])},
        patients,
        statistic=macro_dice,
        bootstrap=Bootstrap(draws=DRAWS, seed=3),
    )
    (pair,) = found.pairs
    assert pair == expected
    assert pair.established
    assert (found.sections, found.patients) == (20, 10)
    assert [model.label for model in found.models] == ["ntrm-paper", "unet"]  # the best first
    for model in found.models:
        assert model.seeds == tuple(range(len(stacks[model.label])))
        scores = [pooled(counts, SCHEMA).macro["dice"] for counts in stacks[model.label]]
        assert model.scores == pytest.approx(scores)
        assert model.mean == pytest.approx(np.mean(scores))


def test_models_of_one_name_get_labels_that_tell_them_apart(write):
    outs = [
        write("1", seed=0, name="skin"),
        write("2", seed=0, name="skin", options={"width": 0.5, "absent": "linked"}),
        write("3", seed=0, name="skin", encoder_init="scratch"),
        write("4", seed=1, name="skin"),
        write("5", seed=0, name="other", options={}),
        write("6", seed=0, name="skin", recipe={"name": "fast", "batch": 8}),
    ]
    labels = {model.label: len(model.scores) for model in compare(outs, draws=DRAWS).models}
    first = next(label for label, count in labels.items() if count == 2)
    assert len(labels) == 5
    assert "other" in labels
    assert "absent default" in first
    assert "encoder_init imagenet" in first
    assert any("absent linked" in label for label in labels)
    assert any("encoder_init scratch" in label for label in labels)
    assert any("recipe.batch 8" in label for label in labels)
    assert all("width" not in label for label in labels)  # it is the same for all of that name


def test_the_order_of_sections_does_not_matter(write, random, truth):
    good, bad = confusions(random, truth, 0.9), confusions(random, truth, 0.8)
    order = random.permutation(20)
    names, patients = [f"BCC_{i}" for i in order], [f"patient-{i // 2}" for i in order]
    straight = [write("a", counts=good, arch="a"), write("b", counts=bad, arch="b")]
    turned = write("c", counts=bad[order], arch="b", names=names, patients=patients)
    assert compare(straight, draws=DRAWS).pairs == compare([straight[0], turned], draws=DRAWS).pairs


def test_tables_and_documents_say_the_same(write, tmp_path):
    found = compare([write("a", arch="a", skill=0.9), write("b", arch="b"), write("c", arch="b", seed=1)], draws=DRAWS)
    found.write(tmp_path / "table.csv")
    found.write(tmp_path / "document.json")
    with (tmp_path / "table.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    document = json.loads((tmp_path / "document.json").read_text())
    assert document == json.loads(json.dumps(found.as_dict()))
    (pair,) = document["comparisons"]
    assert row["verdict"] == pair["verdict"] == found.verdicts[0]
    assert float(row["difference"]) == pytest.approx(pair["difference"])
    assert len(row["second_by_seed"].split()) == 2
    for wrong in ("table.txt", "metrics.json"):
        with pytest.raises(UsageError, match=r"\.csv or \.json"):
            found.write(tmp_path / wrong)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"names": [f"SCC_{number}" for number in range(20)]}, "same sections"),
        ({"patients": ["one"] * 20}, "same patients"),
        ({"classes": ("EPI", "SCC", "RET", "BKG")}, "same classes"),
        ({"data": {"fingerprint": "f" * 16}}, "same data"),
        ({"data": {"split": [["val"], {}]}}, "same data"),
        ({"data": {"level": "5x", "mpp": 3.35}}, "same data"),
    ],
)
def test_evaluations_of_different_things_are_refused(write, random, truth, changes, said):
    one = write("a", arch="a")
    with pytest.raises(RefusedError, match=said):
        compare([one, write("b", arch="b", **changes)], draws=DRAWS)
    with pytest.raises(RefusedError, match="same sections") as caught:
        compare([one, write("c", arch="b", counts=confusions(random, truth[:-2], 0.8))], draws=DRAWS)
    assert caught.value.expected == f"20: {', '.join(read_evaluation(one).sections[-2:])}"
    with pytest.raises(RefusedError, match="not scored on the same ground truth"):
        compare([one, write("d", arch="c", counts=confusions(random, truth + 1, 0.8))], draws=DRAWS)


def test_fewer_than_two_models_and_doubles_are_refused(write):
    one, two = write("a"), write("b", seed=1)
    with pytest.raises(UsageError, match=r"nothing to compare\n.*ntrm-control \(2 evaluations\)"):
        compare([one, two])
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([])
    with pytest.raises(RefusedError, match=r"cannot be distinguished[\s\S]*same settings and seed 0"):
        compare([one, two, write("again")])
    with pytest.raises(UsageError, match=r"unknown measure[\s\S]*iou, dice, accuracy"):
        compare([one, two], measure="f1")


def test_what_evaluate_writes_is_understood(tmp_path, random, monkeypatch):
    gaussians.register(monkeypatch)
    shapes = {(f"s{number}", "test"): (40, 50) for number in range(8)}
    gaussians.write_sections(tmp_path / "data", random, {**shapes, ("x", "train"): (32, 32), ("y", "val"): (32, 32)})
    schema = open_splits(tmp_path / "data").schema
    outs = []
    for name, seed in (("right", 0), ("right", 1), ("wrong", 0)):
        network = gaussians.make_network(schema).describe(name=name)
        with torch.no_grad():
            network.conv.bias[0] += 0.05 * seed + 3 * (name == "wrong")
        network.save_pretrained(tmp_path / f"{name}-{seed}" / "model")
        facts = {"seed": seed, "recipe": {"name": "fast"}, "encoder_init": "scratch", "level": ""}
        (tmp_path / f"{name}-{seed}" / "provenance.json").write_text(json.dumps(facts))
        outs.append(tmp_path / f"{name}-{seed}" / "scores")
        evaluate(outs[-1].parent / "model", tmp_path / "data", outs[-1], device="cpu", pictures=False)
    found = compare(outs, draws=DRAWS)
    assert [(model.label, model.seeds) for model in found.models] == [("right", (0, 1)), ("wrong", (0,))]
    assert (found.sections, found.patients) == (8, 8)
    scores = [json.loads((out / "metrics.json").read_text())["pooled"]["macro"]["iou"] for out in outs]
    assert found.models[0].scores == pytest.approx(scores[:2])
    assert found.pairs[0].established
    assert found.verdicts[0].startswith("right scores higher than wrong")


@pytest.fixture
def out(tmp_path, random):
    counts = confusions(random, truth_counts(random, sections=6), 0.8)
    return write_evaluation(tmp_path / "out", counts, seed=3, recipe={"name": "fast", "augment": {"flip": 0.5}})


def saved(path, final, names=("a", "b")):
    np.savez(path, names=np.array(names), patients=np.array(["x"] * len(names)), final=final)


DAMAGE = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:900]), r"cannot read .*confusions\.npz"),
    "gone": (lambda path: path.unlink(), r"cannot read .*confusions\.npz"),
    "pickled": (lambda path: saved(path, np.ones((1, 4, 4)), [{}]), "cannot read"),
    "other classes": (lambda path: saved(path, np.ones((2, 3, 3), dtype=np.int64)), "does not fit its evaluation"),
    "other sections": (lambda path: saved(path, np.ones((1, 4, 4), dtype=np.int64)), "does not fit its evaluation"),
    "no counts": (lambda path: saved(path, np.ones((2, 4, 4))), "does not fit its evaluation"),
    "of another": (lambda path: saved(path, np.ones((2, 4, 4), dtype=np.int64)), "not of one evaluation"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_counts_that_are_damaged_or_of_another_evaluation_are_refused(out, damage):
    spoil, said = DAMAGE[damage]
    spoil(out / "confusions.npz")
    with pytest.raises(DataError, match=said):
        read_evaluation(out)
