"""Slides without a model: the blank mask, its documents, and what people make of it."""

import numpy as np
import pytest
from tests.evaluation.small import MPP
from tests.segment.small import BKG, document, paint, rows_of, write_slide

from ntrm.core.errors import NtrmError, RefusedError, UsageError
from ntrm.core.labels import IGNORE, UNNAMED, read_schema
from ntrm.core.wording import NO_MODEL
from ntrm.correct.dataset import CorrectedResults
from ntrm.correct.folder import FolderCorrections
from ntrm.correct.log import Step, append, read_log
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet
from ntrm.correct.slide import SlideCorrections
from ntrm.data.image_files import read_mask
from ntrm.report.slide_overview import remake_reports
from ntrm.results.classes import change_class, folder_classes, given_classes
from ntrm.segment.annotate import Blank
from ntrm.segment.batch import segment_slides

pytestmark = pytest.mark.usefixtures("quick_readers")


def annotate(slides, out, classes="BCC,RET,tumour ü", **more):
    blank = Blank(classes and given_classes(classes), more.pop("mask_mpp", None))
    return segment_slides(slides, out=out, model=blank, progress=False, **more)


@pytest.fixture
def blank(tmp_path):
    """A slide that nobody named anything on, and what is painted there."""
    painted = paint(np.random.default_rng(3))
    annotate(write_slide(tmp_path / "in" / "a.tif", painted), tmp_path / "out")
    return tmp_path / "out", painted


def box(painted):
    """(H, W) a part of the tissue."""
    return np.pad(np.ones((30, 40), dtype=bool), ((80, painted.shape[0] - 110), (40, painted.shape[1] - 80)))


def name(out, tissue, where):
    """A person draws ``where`` (H, W) on the slide."""
    slide = SlideCorrections(out / "a")
    slide.record(slide.drawn(PixelSet.of_window(where, 0, 0, where.shape[1]), tissue))
    corrections = FolderCorrections(out)
    corrections.changes.append({"slide_id": "a"})
    corrections.finish()
    return document(out / "a" / "corrected")


def test_all_tissue_is_unnamed_and_everything_says_that_there_is_no_model(blank):
    out, painted = blank
    mask = open_mask(out / "a")
    labels, tissue = mask.labels(), painted != BKG
    assert mask.schema.names == ("BCC", "RET", "tumour ü", "background", UNNAMED)
    assert set(np.unique(labels)) == {3, 4}
    assert (labels[tissue] == 4).all()
    assert 1 <= (labels == 4).sum() / tissue.sum() < 1.5
    summary, run = document(out / "a"), document(out, "run.json")
    assert (summary["model"], run["model"], run["options"]["mpp"]) == (None, None, MPP)
    assert summary["tissue_fractions"][UNNAMED] == 1
    assert summary["cancers"]["BCC"]["present"] is None
    assert summary["familiarity"]["reasons"] == [NO_MODEL]
    assert document(out / "a", "regions.geojson")["features"] == []
    assert {row["tissue"] for row in rows_of(out, "regions")} == {UNNAMED}
    assert {row["mean_confidence"] for row in rows_of(out, "regions")} == {""}
    assert {row["model_name"] for table in ("slides", "regions") for row in rows_of(out, table)} == {NO_MODEL}
    assert remake_reports(out, jobs=1).failures == ()
    for page in (out / "index.html", out / "a" / "report.html"):
        assert NO_MODEL in page.read_text()


def test_what_is_there_is_kept_and_other_classes_are_refused(blank, tmp_path):
    out, _ = blank
    (tmp_path / "in" / "broken.svs").write_bytes(b"nothing")
    for classes in ("BCC,RET,tumour ü", None):
        again = annotate(tmp_path / "in", out, classes)
        assert [(slide.slide_id, slide.status) for slide in again.slides] == [("a", "kept"), ("broken", "failed")]
    with pytest.raises(RefusedError, match="annotated with other classes"):
        annotate(tmp_path / "in", out, "BCC,RET")
    with pytest.raises(RefusedError, match="results of another run"):
        annotate(tmp_path / "in", out, mask_mpp=4.0)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ("a,b,a", "share a name"), ("a,,b", "unusable class name"), ("", "unusable"), ("background", "no tissue"),
        (",".join(map(str, range(300))), "too many classes"), ("a\u202eb", "unusable class name"),
        ("no.csv", "cannot read"),
    ],
)  # fmt: skip
def test_impossible_classes_are_refused(classes, words):
    with pytest.raises(NtrmError, match=words):
        given_classes(classes)


def test_a_table_of_classes_keeps_its_numbers_and_colours(tmp_path):
    (tmp_path / "c.csv").write_text("index,name,r,g,b\n0,glass,0,0,0\n1,Bkg,150,150,150\n2,'=1+1,1,2,3\n")
    schema = given_classes(str(tmp_path / "c.csv"))
    assert schema.names == ("glass", "Bkg", "=1+1", UNNAMED)
    assert (schema.background, schema.tissues[2].rgb) == ("Bkg", (1, 2, 3))
    every = given_classes(",".join(map(str, range(253))))
    assert len({tissue.rgb for tissue in every.tissues}) == 255


def test_a_coarse_image_keeps_its_own_pixels_and_none_is_guessed(tmp_path):
    slide = write_slide(tmp_path / "in" / "a.tif", paint(np.random.default_rng(3)), mpp=9.0)
    annotate(slide, tmp_path / "out", mask_mpp=2.0)
    assert document(tmp_path / "out" / "a")["grid"]["mpp"] == [9.0, 9.0]
    with pytest.raises(UsageError, match="classes are missing"):
        annotate(slide, tmp_path / "other", None)
    with pytest.raises(NtrmError, match="µm/px of the masks"):
        Blank(mask_mpp=1.0)


def test_cancers_are_found_by_a_persons_word_and_measured_once_all_has_a_name(blank):
    out, painted = blank
    tumour, tissue = box(painted), open_mask(out / "a").labels() == 4
    with pytest.raises(UsageError, match="unknown class"):
        SlideCorrections(out / "a").drawn(PixelSet.empty(), UNNAMED)
    some = name(out, "BCC", tumour)
    assert some["cancers"]["BCC"]["present"] is True
    assert some["pieces"][0]["measurements"]["deep_clearance"]["value"] is None
    assert 0 < some["tissue_fractions"][UNNAMED] < 1
    (feature,) = document(out / "a" / "corrected", "regions.geojson")["features"]
    assert feature["properties"]["classification"]["name"] == "BCC"
    every = name(out, "RET", tissue & ~tumour)
    assert every["tissue_fractions"][UNNAMED] == 0
    assert "name yet" not in every["pieces"][0]["measurements"]["deep_clearance"]["reason"]
    assert float(rows_of(out)[0]["corrected_fraction_RET"]) > 0.5


def test_logs_follow_classes_that_are_added_and_renamed(blank):
    out, painted = blank
    before = open_mask(out / "a").record
    where = box(painted)
    name(out, "tumour ü", where)
    change_class(out, "necrosis")
    name(out, "necrosis", np.roll(where, 20, axis=0))
    change_class(out, "carcinoma", (1, 2, 3), before="tumour ü")
    slide = SlideCorrections(out / "a")
    assert [step.tissue for step in slide.log.steps] == ["carcinoma", "necrosis"]
    assert np.unique(slide.state().paint(slide.mask.labels())).tolist() == [2, 3, 4, 5]
    assert not slide.is_written
    slide.write()
    assert SlideCorrections(out / "a").is_written
    change_class(out, "carcinoma", (3, 2, 1), before="carcinoma")
    assert not SlideCorrections(out / "a").is_written
    # One who has not heard of it writes by the old names.
    append(out / "a", before, Step(action="draw", tissue="tumour ü", named="0+5"))
    assert [step.tissue for step in SlideCorrections(out / "a").log.steps] == ["carcinoma", "necrosis", "carcinoma"]
    assert len(read_log(out / "a").steps) == 3
    for wrong in ("RET", "a,b", UNNAMED):
        with pytest.raises(NtrmError):
            change_class(out, wrong)
    with pytest.raises(UsageError, match="keep their names"):
        change_class(out, "glass", before="background")
    assert folder_classes(out).names == ("BCC", "RET", "carcinoma", "background", UNNAMED, "necrosis")


def test_what_has_no_name_is_no_part_of_a_dataset(blank, tmp_path):
    out, painted = blank
    change_class(out, "necrosis")
    where = box(painted)
    name(out, "necrosis", where)
    record = CorrectedResults(out, tmp_path / "in").write(tmp_path / "data")
    assert record["slides"][0]["pixels"]["necrosis"] == where.sum()
    (path,) = (tmp_path / "data" / "Masks").iterdir()
    mask = read_mask(path, read_schema(tmp_path / "data" / "classes.csv")).mask
    assert np.unique(mask).tolist() == [3, 4, IGNORE]
    assert (mask[where] == 4).all()
