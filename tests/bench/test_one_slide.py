"""The bench of one slide runs, and its table names every stage that a slide has."""

import argparse

from bench import one_slide


def test_a_slide_is_timed_stage_by_stage(tmp_path):
    asked = argparse.Namespace(
        sizes="300x260",
        mpp=None,
        model="bundled",
        device="cpu",
        batch=4,
        repeats=1,
        pause=0.0,
        picture=None,
        seed=1,
        out=None,
    )
    report = one_slide.study(asked, tmp_path)
    (found,) = report["sizes"]["300 x 260"]
    assert (
        {"look", "stream", "files", "mask", "overlays", "tables"} <= found["stages"].keys() <= one_slide.STAGES.keys()
    )
    assert 0 < found["slide"] <= found["whole"]
    assert "| stream |" in one_slide.table(report)
