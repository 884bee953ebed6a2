"""The page answers every question of the study, or says what is missing."""

import numpy as np
import pytest

pytest.importorskip("research.section_networks", reason="this copy has no folder research/")

from research.relation_page import page
from research.relation_report import Runs, difference, seed_interval, without_absent
from scipy import stats

PATIENTS = tuple("aabbccddee")


def runs(random, arm, hit, seeds=3, **more):
    """Two classes, 100 pixels of each a section, ``hit`` of them right; a quarter of the pixels lies at borders."""
    right = np.clip(random.normal(hit, 2, (seeds, len(PATIENTS), 2)), 0, 100)
    tables = np.zeros((seeds, len(PATIENTS), 2, 2))
    for true in (0, 1):
        tables[..., true, true], tables[..., true, 1 - true] = right[..., true], 100 - right[..., true]
    graph = np.tile([hit, 100 - hit, 5, 100.0, 100.0 - hit], (seeds, len(PATIENTS), 1))
    return Runs(
        arm, tuple(range(seeds)), tables, PATIENTS, ("EPI", "BCC"), (60.0,) * seeds, (0.4,) * seeds,
        boundary=tables / 4, graph=graph, cleaned=np.stack([tables] * 3, axis=2),
        cleaned_graph=np.stack([graph] * 3, axis=2), predicting=(10.0 if arm == "control" else 12.0,) * seeds, **more,
    )  # fmt: skip


def edges():
    cuts = [
        {
            "sender": "EPI",
            "receiver": "BCC",
            "attention": 0.4,
            "moved": 0.02,
            "receivers_part": 0.9,
            "iou_change": -0.03,
        }
    ]
    whole = {"moved": 0.05, "receivers_part": None, "iou_change": -0.02}
    return ({"sections": 2, "cuts": cuts, "all": whole, "rank_correlation": 0.5},)


def test_a_whole_study_answers_everything(tmp_path, random):
    hits = {"control": 70, "vector": 72, "section": 80, "true-masks": 90, "random-masks": 71, "sharp": 79, "unet": 69}
    arms = {name: runs(random, name, hit, edges=edges() if name == "section" else ()) for name, hit in hits.items()}
    results = {"phantom-0": arms, "phantom-0.5": arms, "glas": {"section": arms["section"]}}
    text = page(results, "control", "val", tmp_path).read_text()
    for wanted in (
        "Synthetic texture: gains here are synthetic gains.",
        "| arm | less `vector` |",
        "| `section` | 3 |",
        "within 8 px of a border",
        "| F1 of edges, mean IoU | as it is | pieces under 16 px taken away |",
        "If no pixel of `control` were called a tissue that its section does not hold",
        "Told the true masks, the module gains +",
        "| τ of the masks (temperature) | 0.5: ",
        "Rank correlation of an edge's attention with the pixels that it\nmoves: +0.50.",
        "| EPI → BCC | 0.400 | 2.000 | 90 | -3.00 |",
        "Missing: a run of `control`.",
        "| arm | ambiguity 0 | ambiguity 0.5 |",
        "| 1.20 |",
    ):
        assert wanted in text, wanted
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.md",
        "phantom-0.png",
        "phantom-0.5.png",
        "ambiguity.png",
        "overview.png",
    }
    assert "\n\n\n" not in text


def test_what_is_missing_is_named(tmp_path, random):
    bare = Runs("control", (0,), np.ones((1, 2, 2, 2)), ("a", "b"), ("x", "y"), (1.0,))
    text = page({"glas": {"control": bare}}, "control", "test", tmp_path).read_text()
    for wanted in (
        "Missing: counts at borders.",
        "Missing: graphs.",
        "`random-masks`",
        "no edge was cut",
        "two ambiguities",
    ):
        assert wanted in text, wanted
    assert "\n\n\n" not in text


def test_parts_add_up_and_differ_by_themselves(random):
    one, two = runs(random, "section", 80), runs(random, "control", 70)
    np.testing.assert_allclose(one.part("boundary").confusions + one.part("inside").confusions, one.confusions)
    whole, part = difference(one, two), difference(one.part("inside"), two.part("inside"))
    assert part.mean == pytest.approx(whole.mean)  # IoU knows no scale
    assert difference(one, one) is None


def test_the_interval_over_seeds_is_students(random):
    values = random.normal(0, 1, 5).tolist()
    low, high = seed_interval(values)
    expected = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert (low, high) == pytest.approx(expected)
    assert seed_interval([1.0]) is None


def test_what_knowing_the_section_could_be_worth_is_pixel_by_pixel(random):
    counts = random.integers(0, 20, (2, 3, 4, 4)).astype(float)
    counts[0, 1, 2] = counts[1, 0, 0] = counts[1, 0, 3] = 0  # tissues that are not there
    found = without_absent(counts)
    for seed, section, true, called in np.ndindex(counts.shape):
        held = counts[seed, section].sum(axis=1) > 0
        expected = counts[seed, section, true, called] if held[called] else 0
        if true == called:
            expected += counts[seed, section, true][~held].sum()
        assert found[seed, section, true, called] == expected
    assert found.sum() == counts.sum()
