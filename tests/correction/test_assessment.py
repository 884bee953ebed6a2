"""Cancers of a slide that is unlike what the model knows, once a person has corrected it: a person's word counts."""

import json

import numpy as np
import pytest
from lxml import html
from tests.evaluation.small import NAMES, ByColour
from tests.pipeline.judged import STRANGE, judge_as
from tests.pipeline.small import paint, write_slide

from ntrm.correction.log import Step, append
from ntrm.correction.mask import open_mask
from ntrm.correction.pixels import PixelSet
from ntrm.correction.results import write_corrected
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.tabulating import tabulate_again
from ntrm.results.tables import read_results

pytestmark = pytest.mark.usefixtures("quick_readers")
EPI, RET, SCC = (NAMES.index(name) for name in ("EPI", "RET", "SCC"))
FROM_TUMOUR = ("deep_clearance", "lateral_clearance", "invasion_depth")


@pytest.fixture
def mask(tmp_path, random, monkeypatch):
    """Of an unfamiliar slide with two pieces, each with an SCC."""
    slide = write_slide(tmp_path / "in" / "a.tif", paint(random, pieces=2))
    judge_as(monkeypatch, STRANGE)
    segment_slides(slide, out=tmp_path / "out", model=ByColour(), device="cpu", batch=3)
    return open_mask(tmp_path / "out" / "a")


def corrected(mask, inside, tissue):
    """The summary after a person named these pixels."""
    named = PixelSet.of_window(inside, 0, 0, mask.shape[1]).text
    append(mask.folder, mask.record, Step(action="name", tissue=tissue, named=named, regions=1))
    write_corrected(mask)
    return json.loads((mask.folder / "corrected" / "summary.json").read_text(encoding="utf-8"))


def upper(mask):
    return np.arange(mask.shape[0])[:, None] < mask.shape[0] // 2


def test_what_a_person_did_not_name_stays_not_assessed(mask):
    summary = corrected(mask, mask.labels() == EPI, "RET")
    assert summary["cancers"]["SCC"]["present"] is None
    assert [piece["cancers"][0]["present"] for piece in summary["pieces"]] == [None, None]
    assert all(piece["measurements"][name]["value"] is None for piece in summary["pieces"] for name in FROM_TUMOUR)


def test_a_cancer_that_a_person_names_is_present_and_measured_where_all_of_it_is_theirs(mask):
    summary = corrected(mask, (mask.labels() == SCC) & upper(mask), "SCC")
    assert summary["cancers"]["SCC"]["present"] is True
    assert summary["cancers"]["SCC"]["reason"] == "piece 2 not assessed"
    first, second = summary["pieces"]
    assert first["cancers"][0]["present"] is True
    assert "100% named by a person" in first["cancers"][0]["reason"]
    assert first["measurements"]["invasion_depth"]["value"] > 0
    assert second["cancers"][0]["present"] is None
    assert second["measurements"]["invasion_depth"]["value"] is None
    assert summary["familiarity"]["verdict"] == "unfamiliar"


def test_less_than_half_of_a_tumour_is_not_a_persons_word(mask):
    tumour = (mask.labels() == SCC) & upper(mask)
    some = tumour & (np.cumsum(tumour).reshape(tumour.shape) <= tumour.sum() * 0.4)
    summary = corrected(mask, some, "SCC")
    assert summary["cancers"]["SCC"]["present"] is None


def test_the_report_and_the_table_say_whose_word_it_is(mask):
    corrected(mask, (mask.labels() == SCC) & upper(mask), "SCC")
    page = html.fromstring((mask.folder / "corrected" / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.text_content().split())
    assert "Corrected by a person, 1 part" in text
    assert "Cancers: not assessed." not in text
    assert "SCC (by a person), others not assessed" in text
    tabulate_again(mask.folder.parent)
    row = read_results(mask.folder.parent).slides.rows[0]
    assert (row["cancer_SCC"], row["corrected_cancer_SCC"]) == (None, True)
