"""``corrected/``: from mask and log alone, whole or not at all, every number against a loop over pixels."""

import csv
import json
import shutil

import numpy as np
import pytest
import tifffile
from lxml import html
from scipy import ndimage
from tests.evaluation.small import NAMES, ByColour
from tests.segment.judged import STRANGE, judge_as
from tests.segment.small import BKG, fingerprints, paint, write_slide

from ntrm.core.errors import DataError
from ntrm.correct import results as corrected_outputs
from ntrm.correct.log import Step, append, read_log
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet
from ntrm.correct.results import correction_in, is_current, write_corrected
from ntrm.results.tables import read_results
from ntrm.segment.batch import segment_slides
from ntrm.segment.tabulating import tabulate_again

pytestmark = pytest.mark.usefixtures("quick_readers")

EPI, RET, SCC = (NAMES.index(name) for name in ("EPI", "RET", "SCC"))


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segmented")
    slide = write_slide(folder / "slides" / "a.tif", paint(np.random.default_rng(4)))
    segment_slides([slide], out=folder / "out", model=ByColour(), device="cpu", batch=2)
    return folder / "out"


@pytest.fixture
def mask(segmented, tmp_path):
    shutil.copytree(segmented, tmp_path / "out")
    return open_mask(tmp_path / "out" / "a")


def named(mask, inside, tissue, **more):
    """A step that names pixels (H, W)."""
    named = PixelSet.of_window(inside, 0, 0, inside.shape[1])
    followed = {name: PixelSet.of_window(where, 0, 0, where.shape[1]).text for name, where in more.items()}
    step = Step(action="name", tissue=tissue, named=named.text, followed=followed, regions=1 + len(followed))
    return append(mask.folder, mask.record, step)


def document(path):
    return json.loads(path.read_text(encoding="utf-8"))


def stored(folder):
    return tifffile.imread(folder / "mask.ome.tif", key=0)


def box(mask, top, left, height, width):
    inside = np.zeros(mask.shape, dtype=bool)
    inside[top : top + height, left : left + width] = True
    return inside


def test_every_region_says_what_is_by_hand_what_followed_and_how_sure_the_network_was_of_the_rest(mask):
    hand, other = box(mask, 70, 40, 20, 30), box(mask, 95, 40, 10, 10)
    named(mask, hand, "EPI", SCC=other)
    write_corrected(mask)
    confidence = np.full(mask.shape, np.nan)
    for row, inside in whole_regions(mask.folder.parent, mask.labels(), mask):
        confidence[inside] = float(row["mean_confidence"])
    checked = 0
    for row, inside in whole_regions(
        mask.folder / "corrected", stored(mask.folder / "corrected").astype(int) - 1, mask
    ):
        rest = inside & ~hand & ~other
        assert float(row["corrected_by_hand"]) == pytest.approx(hand[inside].mean())
        assert float(row["corrected_followed"]) == pytest.approx(other[inside].mean())
        assert (row["mean_confidence"] == "") == (not rest.any())
        if rest.any() and not np.isnan(confidence[rest]).any():
            assert float(row["mean_confidence"]) == pytest.approx(confidence[rest].mean(), rel=1e-6)
            checked += 1
    assert checked >= 2


def whole_regions(folder, labels, mask):
    """Rows of ``regions.csv`` with their pixels; without regions that are cut where the slide's tissue ends."""
    with (folder / "regions.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            inside = component(labels, row, mask)
            if abs(inside.sum() * mask.resolution.pixel_area_um2 / 1e6 - float(row["area_mm2"])) < 1e-9:
                yield row, inside


def component(labels, row, mask):
    """The connected pixels of a row of the table: those whose box is the row's."""
    sx, sy = mask.summary.grid.to_level0[:2]
    left, top = float(row["left_px"]) / sx, float(row["top_px"]) / sy
    numbers, _ = ndimage.label(labels == NAMES.index(row["tissue"]))
    for number, (rows, columns) in enumerate(ndimage.find_objects(numbers), 1):
        if (rows.start, columns.start) == (round(top), round(left)):
            return numbers == number
    return np.zeros(labels.shape, dtype=bool)


def test_every_file_says_that_a_person_corrected_it(mask):
    named(mask, box(mask, 70, 40, 20, 30), "EPI")
    write_corrected(mask)
    folder = mask.folder / "corrected"
    area = 600 * mask.resolution.pixel_area_um2 / 1e6
    expected = {"steps": 1, "regions": 1, "area_mm2": pytest.approx(area)}
    expected["log"] = read_log(mask.folder).fingerprint
    assert document(folder / "summary.json")["corrected"] == expected
    assert document(folder / "graph.json")["corrected"] == expected | {"text": "corrected by a person, 1 part"}
    polygons = document(folder / "regions.geojson")
    assert polygons["ntrm"]["corrected"]["text"] == "corrected by a person, 1 part"
    assert {each["properties"]["metadata"]["corrected"] for each in polygons["features"]} == {
        "corrected by a person, 1 part"
    }
    with tifffile.TiffFile(folder / "mask.ome.tif") as stored:
        assert "corrected by a person, 1 part" in stored.pages.first.description
    assert "corrected by a person, 1 part" in (folder / "report.html").read_text().lower()
    assert "corrected" not in document(mask.folder / "summary.json")


def test_made_again_from_mask_and_log_alone_every_file_has_the_bytes_that_it_had(mask):
    named(mask, box(mask, 70, 40, 20, 30), "EPI", SCC=box(mask, 110, 40, 10, 10))
    write_corrected(mask)
    first = fingerprints(mask.folder / "corrected")
    assert {*first} >= {"mask.ome.tif", "summary.json", "graph.json", "regions.geojson", "report.html", "overlay.png"}
    assert {*first} >= {"slides.csv", "pieces.csv", "regions.csv", "interfaces.csv", "thumbnail.jpg", "slide.jpg"}
    shutil.rmtree(mask.folder / "corrected")
    for action in (None, "undo", "redo"):
        log = append(mask.folder, mask.record, Step(action=action)) if action else read_log(mask.folder)
        assert not is_current(mask.folder, log)
        write_corrected(mask)
        assert is_current(mask.folder, log)
        if action == "undo":
            assert not (mask.folder / "corrected").exists()
        else:
            assert fingerprints(mask.folder / "corrected") == first
    # Another log of as many steps is not what was written.
    (mask.folder / "corrections.jsonl").unlink()
    named(mask, box(mask, 70, 40, 20, 30), "RET")
    assert not is_current(mask.folder, read_log(mask.folder))


def test_a_failure_leaves_the_version_before(mask, monkeypatch):
    named(mask, box(mask, 70, 40, 20, 30), "EPI")
    write_corrected(mask)
    first = fingerprints(mask.folder / "corrected")
    named(mask, box(mask, 90, 40, 20, 30), "SCC")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corrected_outputs, "write_overlays", full)
    with pytest.raises(DataError, match="cannot write"):
        write_corrected(mask)
    assert fingerprints(mask.folder / "corrected") == first
    monkeypatch.setattr(corrected_outputs, "write_overlays", lambda *_: None)
    write_corrected(mask)
    assert correction_in(mask.folder).steps == 2
    assert not list((mask.folder / ".ntrm").glob("corrected-*"))


def test_tissue_that_a_person_finds_on_glass_belongs_to_the_piece_beside_it(mask):
    glass = box(mask, 140, 40, 25, 30) & (mask.labels() == BKG)
    assert glass.sum() > 300
    named(mask, glass, "RET")
    write_corrected(mask)
    before, after = (document(each / "summary.json") for each in (mask.folder, mask.folder / "corrected"))
    gained = glass.sum() * mask.resolution.pixel_area_um2 / 1e6
    assert after["pieces"][0]["areas_mm2"]["RET"] - before["pieces"][0]["areas_mm2"]["RET"] == pytest.approx(gained)
    assert len(after["pieces"]) == len(before["pieces"]) == 1


def test_the_table_of_slides_has_both_versions_and_the_overview_tells_of_them(mask):
    out = mask.folder.parent
    before = (out / "slides.csv").read_bytes(), (out / "index.html").read_bytes()
    named(mask, mask.labels() == SCC, "EPI")
    write_corrected(mask)
    tabulate_again(out)
    row = read_results(out).slides.rows[0]
    after = document(mask.folder / "corrected" / "summary.json")
    assert (row["cancer_SCC"], row["corrected_cancer_SCC"]) == (True, False)
    assert row["corrected_parts"] == 1
    assert row["corrected_area_EPI_mm2"] == pytest.approx(after["areas_mm2"]["EPI"])
    assert row["corrected_tissue_area_mm2"] == pytest.approx(row["tissue_area_mm2"])
    page = (out / "index.html").read_text()
    assert '<a href="a/corrected/report.html">corrected by a person, 1 part</a>: none' in page
    append(mask.folder, mask.record, Step(action="undo"))
    write_corrected(mask)
    tabulate_again(out)
    assert ((out / "slides.csv").read_bytes(), (out / "index.html").read_bytes()) == before


FROM_TUMOUR = ("deep_clearance", "lateral_clearance", "invasion_depth")


@pytest.fixture
def unfamiliar(tmp_path, random, monkeypatch):
    """The mask of a slide that is unlike what the model knows, with two pieces, each with an SCC."""
    slide = write_slide(tmp_path / "in" / "a.tif", paint(random, pieces=2))
    judge_as(monkeypatch, STRANGE)
    segment_slides(slide, out=tmp_path / "strange", model=ByColour(), device="cpu", batch=3)
    return open_mask(tmp_path / "strange" / "a")


def corrected(mask, inside, tissue):
    """The summary after a person named these pixels."""
    named(mask, inside, tissue)
    write_corrected(mask)
    return document(mask.folder / "corrected" / "summary.json")


def test_what_a_person_did_not_name_stays_not_assessed(unfamiliar):
    tumour = (unfamiliar.labels() == SCC) & (np.arange(unfamiliar.shape[0])[:, None] < unfamiliar.shape[0] // 2)
    less_than_half = tumour & (np.cumsum(tumour).reshape(tumour.shape) <= tumour.sum() * 0.4)
    for inside, tissue in ((unfamiliar.labels() == EPI, "RET"), (less_than_half, "SCC")):
        summary = corrected(unfamiliar, inside, tissue)
        assert summary["cancers"]["SCC"]["present"] is None
        assert [piece["cancers"][0]["present"] for piece in summary["pieces"]] == [None, None]
        assert all(piece["measurements"][name]["value"] is None for piece in summary["pieces"] for name in FROM_TUMOUR)


def test_a_cancer_that_a_person_names_is_present_and_measured_where_all_of_it_is_theirs(unfamiliar):
    upper = np.arange(unfamiliar.shape[0])[:, None] < unfamiliar.shape[0] // 2
    summary = corrected(unfamiliar, (unfamiliar.labels() == SCC) & upper, "SCC")
    assert (summary["cancers"]["SCC"]["present"], summary["familiarity"]["verdict"]) == (True, "unfamiliar")
    assert summary["cancers"]["SCC"]["reason"] == "piece 2 not assessed"
    first, second = summary["pieces"]
    assert (first["cancers"][0]["present"], second["cancers"][0]["present"]) == (True, None)
    assert "100% named by a person" in first["cancers"][0]["reason"]
    assert first["measurements"]["invasion_depth"]["value"] > 0
    assert second["measurements"]["invasion_depth"]["value"] is None
    # The report and the table say whose word it is.
    page = html.fromstring((unfamiliar.folder / "corrected" / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.text_content().split())
    assert "Cancers: not assessed." not in text
    assert "SCC (by a person), others not assessed" in text
    tabulate_again(unfamiliar.folder.parent)
    row = read_results(unfamiliar.folder.parent).slides.rows[0]
    assert (row["cancer_SCC"], row["corrected_cancer_SCC"]) == (None, True)
