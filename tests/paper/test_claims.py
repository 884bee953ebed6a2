import numpy as np
import pytest
from tests.paper.synthetic import confusions, interface_tables, read, tiny_plan, write_job

from ntrm.core.labels import SKIN, LabelSchema, Tissue
from ntrm.paper.claims import HELD, LEFT_OUT, NOT_ESTABLISHED, NOT_HELD, find_claims

ARCHS = ("unet-resnet18", "ntrm-paper")
SECTIONS = 10


def claims(results):
    return {claim.claim: claim for claim in find_claims(results, results.plan.ours)}


def written(root, random, *, ours, others, interfaces=None, f1=None, iou=None, levels=("10x",), seeds=(0,)):
    """Results in which NTRM and the others are right so often; ``interfaces`` are NTRM's, the control has none."""
    plan = tiny_plan(ARCHS, seeds=seeds, levels=levels, ablation=False)
    for job in plan.jobs:
        mine = job.variant.arch == "ntrm-paper"
        counts = dict.fromkeys((("BCC", "RET"), ("RET", "HYP"), ("EPI", "KER")), (100, 40, 0, 0))
        scores = {"adjacency_f1": (f1 or {}).get(job.variant.arch, [0.5] * SECTIONS)}
        scores["iou"] = (iou or {}).get(job.variant.level, [0.5] * SECTIONS)
        write_job(
            root / job.key,
            job,
            confusions(random, SECTIONS, ours if mine else others),
            coarse=None if job.variant.arch == "unet-resnet18" else confusions(random, SECTIONS, others),
            interfaces=interface_tables(SECTIONS, interfaces if mine and interfaces else counts),
            scores=scores,
            seconds=2.0 if job.variant.level == "10x" else 8.0,
            pixels=1_000_000 if job.variant.level == "10x" else 4_000_000,
        )
    return read(root, plan)


def test_what_is_clearly_better_holds_and_what_is_equal_is_not_established(tmp_path, random):
    results = written(tmp_path / "better", random, ours=0.9, others=0.5)
    found = claims(results)
    assert found["the highest mean IoU"].verdict == HELD
    dice = found["the highest Dice: 4.9 to 31.25 points above"]
    ours, other = (
        results.metric(each, "pooled", "macro", "dice").mean for each in (results.plan.ours, results.plan.systems[0])
    )
    assert (dice.verdict, dice.difference.value) == (HELD, pytest.approx(100 * (ours - other)))
    assert f"{100 * (ours - other):+.2f}" in dice.measured
    assert f"{100 * (ours / other - 1):+.0f} %" in dice.measured
    for whom in ("than the matched control", "than the other systems", "after the relation module"):
        claim = found[f"fewer false positives of SCC {whom}"]
        assert claim.verdict == HELD
        assert claim.difference.value < 0
    final, coarse = (results.stack(results.plan.ours, name)[0].sum(axis=0) for name in ("final", "coarse"))
    scc = SKIN.index("SCC")
    others = [true for true in range(12) if true != scc]
    rates = [sum(t[true, scc] for true in others) / sum(t[true].sum() for true in others) for t in (final, coarse)]
    assert claim.difference.value == pytest.approx(100 * (rates[0] - rates[1]))
    assert "SCC found" in claim.measured
    found = claims(written(tmp_path / "equal", random, ours=0.7, others=0.7, seeds=(0, 1)))
    for equal in ("the highest mean IoU", "the spatial order of tissues is kept better than by the matched control"):
        assert found[equal].verdict == NOT_ESTABLISHED
    found = claims(written(tmp_path / "worse", random, ours=0.5, others=0.9))
    assert found["the highest mean IoU"].verdict == NOT_HELD


def test_interfaces_count_corrected_and_broken_pixels_and_ask_the_control(tmp_path, random):
    counts = {("BCC", "RET"): (60, 10, 30, 5), ("RET", "BCC"): (40, 10, 10, 1), ("RET", "HYP"): (100, 60, 0, 20)}
    found = claims(written(tmp_path, random, ours=0.7, others=0.7, interfaces=counts))
    gained = found["errors corrected at the BCC–RET interface"]
    # Both sides of the interface, ten sections: 40 corrected and 6 broken of 100 pixels each.
    assert gained.verdict == HELD
    assert "400 corrected, 60 broken of 1,000 pixels" in gained.measured
    assert gained.difference.value == pytest.approx(34.0)
    against_control = found["errors corrected at the BCC–RET interface, because of the relation module"]
    # 80 of 100 pixels are right, 60 under the control.
    assert against_control.difference.value == pytest.approx(20.0)
    assert against_control.verdict == HELD
    assert found["errors corrected at the RET–HYP interface"].verdict == NOT_HELD
    missing = found["errors corrected at the EPI–KER interface"]
    assert missing.verdict == LEFT_OUT
    assert missing.difference is None


def test_the_order_of_tissues_is_judged_by_the_graph(tmp_path, random):
    better = (0.8 + 0.05 * random.random(SECTIONS)).tolist()
    f1 = {"ntrm-paper": better, "ntrm-control": [0.5] * SECTIONS, "unet-resnet18": [0.9] * SECTIONS}
    found = claims(written(tmp_path, random, ours=0.7, others=0.7, f1=f1))
    control = found["the spatial order of tissues is kept better than by the matched control"]
    assert control.verdict == HELD
    assert control.difference.value == pytest.approx(100 * (np.mean(better) - 0.5))
    assert found["the spatial order of tissues is kept better than by the other systems"].verdict == NOT_HELD


def test_resolutions_are_compared_section_by_section_and_by_cost(tmp_path, random):
    fine = (0.4 + 0.02 * random.random(SECTIONS)).tolist()
    results = written(tmp_path, random, ours=0.7, others=0.7, levels=("10x", "5x"), iou={"5x": fine})
    found = claims(results)
    assert found["10x scores higher than 5x"].verdict == HELD
    assert found["10x scores higher than 5x"].difference.value == pytest.approx(100 * (0.5 - np.mean(fine)))
    cost = found["10x costs little beside 5x"]
    assert cost.verdict == HELD
    assert "4.0 times the pixels" in cost.measured
    assert "4.0 times as long" in cost.measured


def test_other_tissues_leave_the_claims_about_skin_out_with_the_reason(tmp_path, random):
    glands = LabelSchema(
        tuple(Tissue(k, name, name, (k, k, k)) for k, name in enumerate(("background", "benign", "malignant")))
    )
    plan = tiny_plan(ARCHS, seeds=(0,), levels=("",), ablation=False)
    for job in plan.jobs:
        final = confusions(random, SECTIONS, 0.7, classes=3)
        coarse = confusions(random, SECTIONS, 0.5, classes=3) if "ntrm" in job.variant.arch else None
        write_job(tmp_path / job.key, job, final, coarse=coarse, schema=glands)
    found = claims(read(tmp_path, plan))
    left_out = [claim for claim in found.values() if claim.verdict == LEFT_OUT]
    assert len(left_out) == 5
    assert all("this dataset" in claim.measured or "resolutions" in claim.measured for claim in left_out)
    assert found["the highest mean IoU"].difference is not None
