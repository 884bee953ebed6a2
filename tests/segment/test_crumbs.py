"""Tumour in crumbs beside a piece: no piece has it, and yet nobody may read that there is none."""

import shutil

import numpy as np
import pytest
from lxml import html
from tests.evaluation.small import NAMES
from tests.segment.judged import STRANGE, judge_as
from tests.segment.small import BKG, document, rows_of, run, write_slide

from ntrm.correct.log import Step, append
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet
from ntrm.correct.results import write_corrected
from ntrm.results.tables import read_results
from ntrm.segment.tabulating import tabulate_again

pytestmark = pytest.mark.usefixtures("quick_readers")
EPI, RET, SCC = (NAMES.index(name) for name in ("EPI", "RET", "SCC"))
REASON = "not assessed: tumour in crumbs outside all pieces"


def paint(in_crumb=24, in_piece=0):
    """A piece of skin, and a crumb of 0.06 mm² far from it, with squares of SCC this many pixels wide."""
    mask = np.full((260, 300), BKG, dtype=np.uint8)
    mask[40:140, 20:120] = RET
    mask[40:48, 20:120] = EPI
    mask[180:216, 220:256] = RET
    for (top, left), side in (((80, 60), in_piece), ((186, 226), in_crumb)):
        mask[top : top + side, left : left + side] = SCC
    return mask


def segmented(folder, mask):
    (outcome,) = run(write_slide(folder / "a.tif", mask), folder / "out").slides
    return outcome, document(folder / "out" / "a")


@pytest.fixture(scope="module")
def once(tmp_path_factory, quick_readers):
    """Results of a slide with tumour in a crumb alone, and the outcome."""
    folder = tmp_path_factory.mktemp("crumbs")
    return folder / "out", segmented(folder, paint())[0]


@pytest.fixture
def out(tmp_path, once):
    """A copy of them, for a person to correct."""
    return shutil.copytree(once[0], tmp_path / "out")


def text_of(path):
    return " ".join(html.fromstring(path.read_text(encoding="utf-8")).text_content().split())


def test_a_cancer_in_crumbs_alone_is_neither_found_nor_missing(once):
    (out, outcome), summary = once, document(once[0] / "a")
    cancer = summary["cancers"]["SCC"]
    assert (cancer["present"], cancer["confidence"], cancer["reason"]) == (None, None, REASON)
    assert (cancer["area_mm2"], cancer["regions"]) == (pytest.approx(summary["areas_mm2"]["SCC"]), 1)
    assert summary["pieces"][0]["cancers"][0]["present"] is False
    assert f"SCC {REASON}" in summary["warnings"]
    assert outcome.cancers is None
    (row,) = rows_of(out)
    assert row["pieces"] == "1"
    assert (row["cancer_SCC"], row["cancer_SCC_confidence"]) == ("not assessed", "not assessed")
    assert f"SCC {REASON}" in row["warnings"]
    report = text_of(out / "a" / "report.html")
    assert "No cancer was found on the pieces." in report
    assert f"SCC {REASON} (0.03 mm² in 1 region)." in report
    assert "too little or too unsure" not in report
    assert "or with tumour in crumbs (fragments below 0.1 mm²) only" in text_of(out / "index.html")


@pytest.mark.parametrize(("squares", "present"), [({"in_piece": 30}, True), ({"in_crumb": 6}, False)])
def test_a_piece_decides_where_it_has_the_cancer_or_crumbs_have_too_little(tmp_path, squares, present):
    outcome, summary = segmented(tmp_path, paint(**squares))
    assert summary["cancers"]["SCC"]["present"] is present
    assert not any("crumbs" in text for text in summary["warnings"])
    assert outcome.cancers == ["SCC"] * present
    report = text_of(tmp_path / "out" / "a" / "report.html")
    assert ("too little or too unsure to count" in report) is not present
    assert "crumbs" not in report


def corrected(folder, tissue, columns=300):
    """The summary after a person named what is SCC, left of these columns."""
    mask = open_mask(folder)
    named = PixelSet.of_window((mask.labels() == SCC)[:, :columns], 0, 0, mask.shape[1]).text
    append(mask.folder, mask.record, Step(action="name", tissue=tissue, named=named, regions=1))
    write_corrected(mask)
    return document(folder / "corrected")


@pytest.mark.parametrize(
    ("tissue", "columns", "present", "reason"), [("RET", 300, False, None), ("SCC", 236, None, REASON)]
)
def test_a_person_who_corrects_most_of_the_crumb_settles_it(out, tissue, columns, present, reason):
    summary = corrected(out / "a", tissue, columns)
    assert summary["cancers"]["SCC"]["present"] is present
    assert reason in (None, summary["cancers"]["SCC"]["reason"])
    assert any("crumbs" in text for text in summary["warnings"]) is (present is None)


def test_a_cancer_that_a_person_names_in_a_crumb_is_present(out):
    summary = corrected(out / "a", "SCC")
    cancer = summary["cancers"]["SCC"]
    assert (cancer["present"], cancer["reason"]) == (True, "named by a person in crumbs outside all pieces")
    assert (cancer["area_mm2"], cancer["regions"]) == (pytest.approx(summary["areas_mm2"]["SCC"]), 1)
    assert cancer["confidence"] > 0.5
    assert summary["pieces"][0]["cancers"][0]["present"] is False, "of the piece nobody said it"
    assert not any("crumbs" in text for text in summary["warnings"])
    report = text_of(out / "a" / "corrected" / "report.html")
    assert "in 1 region; named by a person in crumbs outside all pieces" in report
    assert "not assessed: tumour" not in report
    tabulate_again(out)
    row = read_results(out).slides.rows[0]
    assert (row["cancer_SCC"], row["corrected_cancer_SCC"]) == (None, True)


@pytest.mark.parametrize("strange", [False, True])
def test_a_persons_word_counts_without_a_piece_that_was_assessed(tmp_path, monkeypatch, strange):
    mask = paint()
    if strange:
        judge_as(monkeypatch, STRANGE)
    else:
        mask[:150] = BKG
    segmented(tmp_path, mask)
    cancer = corrected(tmp_path / "out" / "a", "SCC")["cancers"]["SCC"]
    assert cancer["present"] is True
    assert cancer["reason"] == "named by a person in crumbs outside all pieces; the rest not assessed"
    assert cancer["regions"] == 1
