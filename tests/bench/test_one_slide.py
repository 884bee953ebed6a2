"""The bench of one slide runs, and its table names every stage that a slide has."""

import argparse

import pytest

from bench import one_slide
from ntrm.pipeline import child_pool


@pytest.mark.parametrize("children", [False, True])
def test_a_slide_is_timed_stage_by_stage_also_where_children_do_some(tmp_path, monkeypatch, children):
    if children:
        monkeypatch.setattr(child_pool, "LEAST_PIXELS", 0)
        monkeypatch.setattr(child_pool, "most_threads", lambda: 8)
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
