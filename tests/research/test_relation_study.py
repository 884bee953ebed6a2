"""The study in micro form: arms, data, runs, intervals."""

import csv
import json
from itertools import product

import numpy as np
import pytest
import torch

pytest.importorskip("research.section_networks", reason="this copy has no folder research/")

from PIL import Image
from research.relation_data import divide, make_renders
from research.relation_report import Runs, differences, two_way
from research.section_networks.networks import NETWORKS
from research.section_networks.networks import create as create_here
from scipy import stats
from tests.training.small_data import write_small

from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.split import open_splits
from ntrm.metrics.overlap import class_scores
from ntrm.metrics.significance import macro_iou
from ntrm.models.registry import create
from research import relation_page, relation_study

ROWS = [f"s{number},p{number},{split},2.0" for number, split in enumerate(["train", "train", "val", "val", "test"])]
MICRO = [
    "--set", "steps=2", "--set", "batch=4", "--set", "window=64", "--set", "overlap=0", "--set", "validate_every=2",
    "--set", "workers=0", "--set", "precision=float32", "--option", "width=0.125", "--device", "cpu", "--cores", "1",
]  # fmt: skip


# --- arms ---


@pytest.mark.parametrize("name", relation_study.ARMS)
def test_every_arm_can_be_built_and_has_a_recipe(name):
    arm = relation_study.ARMS[name]
    if arm.arch.startswith("mit"):
        pytest.importorskip("transformers")
    with torch.device("meta"):
        network = (create_here if arm.arch in NETWORKS else create)(arm.arch, 3, width=0.125, **arm.options)
    assert network.config.options == {"width": 0.125, **arm.options}
    asked = relation_study.parse(["--out", "x"])
    for aligned in (False, True):
        recipe = relation_study.recipe_of(arm, asked, aligned)
        assert recipe.batch * recipe.window**2 == 16 * 256**2  # the same pixels a step
        assert recipe.steps == 1000
        assert not (aligned and recipe.overlap)


def test_arms_are_all_different():
    kinds = [
        (arm.arch, *map(sorted, (arm.options.items(), map(str, arm.recipe.items()))))
        for arm in relation_study.ARMS.values()
    ]
    assert len({str(kind) for kind in kinds}) == len(kinds)


def test_jobs_go_seed_by_seed():
    asked = relation_study.parse(["--out", "x", "--data", "glas,phantom-1", "--arms", "control,unet", "--seeds", "3,4"])
    jobs = relation_study.jobs_of(asked)
    assert [job.seed for job in jobs] == [3] * 4 + [4] * 4
    assert len(set(jobs)) == 8
    with pytest.raises(SystemExit):
        relation_study.parse(["--out", "x", "--arms", "contol"])


def test_every_arm_that_the_page_knows_is_one():
    named = {*relation_page.CONTEXT, *relation_page.RELATIONS, *relation_page.BOUNDS}
    named |= {arm for sweep in relation_page.SWEEPS.values() for arm in sweep.values()}
    assert named <= set(relation_study.ARMS)


# --- the whole ---


def test_the_study_trains_scores_and_goes_on(tmp_path, random, monkeypatch, capsys):
    data = write_small(tmp_path / "tissue", random, rows=ROWS)
    command = ["--out", str(tmp_path / "study"), "--data", str(data), *MICRO, "--reference", "vector"]
    asked = relation_study.parse([*command, "--arms", "vector,section,true-masks"])
    assert relation_study.work(asked) == 0
    text = relation_study.report(asked).read_text()
    rows = list(csv.DictReader((tmp_path / "study" / "results-val.csv").read_text().splitlines()))
    assert {(row["arm"], row["split"], row["steps"], row["sections"]) for row in rows} == {
        ("vector", "val", "2", "2"), ("section", "val", "2", "2"), ("true-masks", "val", "2", "2"),
    }  # fmt: skip
    assert "| `section` | 1 |" in text
    assert "`section`, 1 seed(s): without any edge" in text

    # What is done is not done again; a run whose row was lost is scored again, not trained.
    row = tmp_path / "study" / "runs" / "tissue" / "section" / "0" / "val" / "row.json"
    before = json.loads(row.read_text())
    row.unlink()
    monkeypatch.setattr("research.section_networks.training._steps", pytest.fail)
    assert relation_study.work(asked) == 0
    timed = {"score_seconds": 0, "predict_seconds": 0}
    assert {**json.loads(row.read_text()), **timed} == {**before, **timed}
    assert capsys.readouterr().out.strip().splitlines()[-1] == f"{data} section 0"


def test_one_arm_that_fails_does_not_end_the_others(tmp_path, random, monkeypatch):
    done = []

    def run(job, asked):
        if job.arm == "control":
            raise ValueError("no such luck")
        done.append(job.arm)
        return {"arm": job.arm}

    monkeypatch.setattr(relation_study, "run", run)
    asked = relation_study.parse(["--out", str(tmp_path), "--data", "glas", "--arms", "control,section,unet"])
    assert relation_study.work(asked) == 1
    assert done == ["section", "unet"]
    assert "no such luck" in (tmp_path / "runs/glas/control/0/log.txt").read_text()
    asked.minutes = 1e-9
    done.clear()
    assert relation_study.work(asked) == 0
    assert done == []


# --- data ---


def test_patients_stay_together_and_every_split_has_some(random):
    patients = {f"s{number}": f"p{number // 2}" for number in range(40)}
    cancers = {name: "BCC" if int(patient[1:]) % 3 else "SCC" for name, patient in patients.items()}
    split = divide(patients, cancers)
    for one, two in product(patients, patients):
        assert patients[one] != patients[two] or split[one] == split[two]
    counts = {name: sum(value == name for value in split.values()) for name in ("train", "val", "test")}
    assert counts == {"train": 20, "val": 10, "test": 10}
    assert divide(dict(reversed(patients.items())), cancers) == split


def test_renders_are_mosaics_of_real_masks(tmp_path, random):
    masks = tmp_path / "masks"
    masks.mkdir()
    drawn = {}
    for name in ("BCC_3_0001", "BCC_3_0002", "BCC_3_0007", "SCC_4_0001", "IEC_1_0001", "IEC_12_0001"):
        drawn[name] = np.full((256, 256), SKIN.index("BKG"), np.uint8)
        drawn[name][200:] = random.integers(len(SKIN))
        Image.fromarray(SKIN.colourise(drawn[name])).save(masks / f"{name}.png")
    made = make_renders(tmp_path / "renders", masks, 0.5, 1)
    assert made.aligned
    parts = open_splits(made.folder)
    assert {case.name for case in parts.dataset} == {"BCC_3", "SCC_4", "IEC_1", "IEC_12"}
    assert {case.split for case in parts.dataset} == {"train", "val", "test"}
    mask = np.asarray(Image.open(made.folder / "Masks" / "BCC_3.png"))
    assert mask.shape == (512, 512)
    assert np.array_equal(mask[:256, 256:], drawn["BCC_3_0002"])
    assert np.array_equal(mask[256:, :256], drawn["BCC_3_0007"])
    assert (mask[256:, 256:] == IGNORE).all()
    image = made.folder / "Images" / "BCC_3.png"
    before = image.stat().st_mtime_ns
    make_renders(made.folder, masks, 0.5, 1)
    assert image.stat().st_mtime_ns == before


# --- intervals ---


def confusions(random, runs, sections, hit):
    """(R, S, 2, 2) of sections with 100 pixels of each class, ``hit`` of them right."""
    right = np.clip(random.normal(hit, 3, (runs, sections, 2)), 0, 100)
    tables = np.zeros((runs, sections, 2, 2))
    for true in (0, 1):
        tables[..., true, true], tables[..., true, 1 - true] = right[..., true], 100 - right[..., true]
    return tables


def test_the_interval_is_that_of_drawing_patients_and_seeds(random):
    first, second = confusions(random, 3, 8, 80), confusions(random, 3, 8, 75)
    patients = list("aabbccdd")
    low, high = two_way(first, second, patients, draws=3000)
    found = []
    for _ in range(3000):  # by drawing literally
        drawn = random.choice(list("abcd"), 4)
        sections = [place for patient in drawn for place in range(8) if patients[place] == patient]
        pairs = [(first[r][sections].sum(axis=0), second[r][sections].sum(axis=0)) for r in random.integers(3, size=3)]
        found.append(np.mean([macro_iou(one) - macro_iou(two) for one, two in pairs]))
    width = stats.t.ppf(0.975, 2) * np.std(found) * np.sqrt(3 / 2)  # three seeds are fewer than four patients
    assert high - low == pytest.approx(2 * width, rel=0.12)  # deviations of 3000 draws are known to 1.3 %
    whole = np.mean(macro_iou(first.sum(axis=1)) - macro_iou(second.sum(axis=1)))
    assert (low + high) / 2 == pytest.approx(whole)


def test_one_seed_leaves_the_patients_alone(random):
    first, second = confusions(random, 1, 6, 80), confusions(random, 1, 6, 70)
    low, high = two_way(first, second, list("abcdef"))
    assert low < macro_iou(first.sum(axis=1))[0] - macro_iou(second.sum(axis=1))[0] < high
    assert two_way(first, first, list("abcdef")) == (0, 0)


def test_an_arm_is_compared_over_the_seeds_it_shares(random):
    names, patients = ("a", "b"), tuple("aabbccdd")
    control = Runs("control", (0, 1, 2), confusions(random, 3, 8, 60), patients, names, (1, 1, 1))
    better = Runs("section", (1, 2, 5), confusions(random, 3, 8, 90), patients, names, (1, 1, 1))
    other = Runs("unet", (7,), confusions(random, 1, 8, 60), patients, names, (1,))
    found = differences({"control": control, "section": better, "unet": other}, "control")
    assert [(each.arm, each.seeds) for each in found] == [("section", 2)]
    one, two = macro_iou(better.confusions[:2].sum(axis=1)), macro_iou(control.confusions[1:].sum(axis=1))
    assert found[0].mean == pytest.approx((one - two).mean())
    assert found[0].patients_low > 0.1
    ious = [class_scores(runs.sum(axis=1), "iou") for runs in (better.confusions[:2], control.confusions[1:])]
    assert found[0].by_class == pytest.approx(tuple((ious[0] - ious[1]).mean(axis=0)))
