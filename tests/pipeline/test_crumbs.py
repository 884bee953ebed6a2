"""Tumour in crumbs beside a piece: no piece has it, and yet nobody may read that there is none."""

import csv
import json

import numpy as np
import pytest
from lxml import html
from tests.evaluation.small import NAMES, ByColour
from tests.pipeline.small import BKG, write_slide

from ntrm.correction.log import Step, append
from ntrm.correction.pixels import PixelSet
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.corrected_outputs import write_corrected
from ntrm.pipeline.slide_mask import open_mask

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


def run(folder, mask):
    slide = write_slide(folder / "a.tif", mask)
    (outcome,) = segment_slides(slide, out=folder / "out", model=ByColour(), device="cpu", batch=3).slides
    assert outcome.row["pieces"] == 1
    return outcome, json.loads((folder / "out" / "a" / "summary.json").read_text(encoding="utf-8"))


def text_of(path):
    return " ".join(html.fromstring(path.read_text(encoding="utf-8")).text_content().split())


def test_a_cancer_in_crumbs_alone_is_neither_found_nor_missing(tmp_path):
    outcome, summary = run(tmp_path, paint())
    cancer = summary["cancers"]["SCC"]
    assert (cancer["present"], cancer["confidence"], cancer["reason"]) == (None, None, REASON)
    assert (cancer["area_mm2"], cancer["regions"]) == (pytest.approx(summary["areas_mm2"]["SCC"]), 1)
    assert summary["pieces"][0]["cancers"][0]["present"] is False
    assert f"SCC {REASON}" in summary["warnings"]
    assert outcome.cancers is None
    with (tmp_path / "out" / "slides.csv").open(newline="", encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["cancer_SCC"], row["cancer_SCC_confidence"]) == ("not assessed", "not assessed")
    assert f"SCC {REASON}" in row["warnings"]
    report = text_of(tmp_path / "out" / "a" / "report.html")
    assert "No cancer was found on the pieces." in report
    assert f"SCC {REASON} (0.03 mm² in 1 region)." in report
    assert "too little or too unsure" not in report
    assert "or with tumour in crumbs alone" in text_of(tmp_path / "out" / "index.html")


@pytest.mark.parametrize(("squares", "present"), [({"in_piece": 30}, True), ({"in_crumb": 6}, False)])
def test_a_piece_decides_where_it_has_the_cancer_or_crumbs_have_too_little(tmp_path, squares, present):
    outcome, summary = run(tmp_path, paint(**squares))
    assert summary["cancers"]["SCC"]["present"] is present
    assert not any("crumbs" in text for text in summary["warnings"])
    assert outcome.cancers == ["SCC"] * present
    report = text_of(tmp_path / "out" / "a" / "report.html")
    assert ("too little or too unsure to count" in report) is not present
    assert "crumbs" not in report


def test_a_person_who_corrects_the_crumb_settles_it(tmp_path):
    run(tmp_path, paint())
    mask = open_mask(tmp_path / "out" / "a")
    named = PixelSet.of_window(mask.labels() == SCC, 0, 0, mask.shape[1]).text
    append(mask.folder, mask.record, Step(action="name", tissue="RET", named=named, regions=1))
    write_corrected(mask)
    summary = json.loads((mask.folder / "corrected" / "summary.json").read_text(encoding="utf-8"))
    assert summary["cancers"]["SCC"]["present"] is False
    assert not any("crumbs" in text for text in summary["warnings"])
