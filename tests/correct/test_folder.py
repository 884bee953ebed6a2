"""Corrections of a folder's slides without the page: clicks, areas from QuPath, undo and redo, and what is refused."""

import json
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import tifffile
from tests.correct.corrected import Unsure
from tests.evaluation.small import NAMES
from tests.segment.small import InProcess, paint, write_slide

from ntrm.core.errors import DataError, UsageError
from ntrm.correct.folder import FolderCorrections
from ntrm.correct.log import read_log
from ntrm.models.registry import ARCHITECTURES
from ntrm.results.tables import read_results
from ntrm.segment.batch import segment_slides
from ntrm.slides import isolated

EPI, RET, SCC = (NAMES.index(name) for name in ("EPI", "RET", "SCC"))


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(ARCHITECTURES, "by-colour", Unsure)
        patched.setattr(isolated, "ReadingProcess", InProcess)
        yield


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    """Two slides, a model, and results without texture."""
    folder, random = tmp_path_factory.mktemp("segmented"), np.random.default_rng(4)
    Unsure().describe(name="mine").save_pretrained(folder / "model")
    for name in ("first", "second"):
        write_slide(folder / "slides" / f"{name}.tif", paint(random))
    segment_slides(folder / "slides", out=folder / "out", model=folder / "model", device="cpu", batch=2)
    return folder


@pytest.fixture
def out(segmented, tmp_path):
    return shutil.copytree(segmented / "out", tmp_path / "out")


@pytest.fixture
def correcting(out, segmented):
    """Corrections of a copy of the results; their files are made at the end."""

    @contextmanager
    def begin(slides=(segmented / "slides",), **more):
        corrections = FolderCorrections(out, slides, "cpu", **more)
        yield corrections
        corrections.finish()

    return begin


def mask(folder):
    return tifffile.imread(folder / "mask.ome.tif", key=0).astype(int) - 1


def middle(out, tissue, slide="first"):
    """A pixel of a tissue, as x and y."""
    places = np.argwhere(mask(out / slide) == tissue)
    row, column = places[len(places) // 2]
    return int(column), int(row)


def test_what_looks_alike_follows_on_all_slides_after_a_preview_that_writes_nothing(out, correcting):
    click = ("first", *middle(out, SCC), "EPI")
    with correcting(by="AB", preview=True) as shown:
        shown.click(*click)
    assert not {"corrections.jsonl", "corrected"} & {path.name for path in (out / "first").iterdir()}
    with correcting(by="AB") as found:
        found.click(*click, all_slides=True)
    first, second = found.changes
    assert ([first], found.failures) == (shown.changes, {})
    assert (first["slide_id"], first["step"], first["action"], first["tissue"]) == ("first", 1, "name", "EPI")
    assert first["regions"] > 1
    for change in (first, second):
        before, after = mask(out / change["slide_id"]), mask(out / change["slide_id"] / "corrected")
        # All of the tumour looks the same.
        assert (after[before == SCC] == EPI).all()
        assert change["area_mm2"] == pytest.approx((after != before).sum() * 6.7**2 / 1e6, rel=1e-6)
    step, carried = (read_log(out / name).steps[0] for name in ("first", "second"))
    assert (step.by, step.origin, step.spread) == ("AB", "command", "texture")
    assert carried.origin == "slide first, step 1"
    assert read_results(out).slides.column("corrected_parts") == [first["regions"], second["regions"]]


def test_right_after_segmenting_nobody_is_asked_where_the_slides_are(out, segmented, correcting, tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_STATE", str(tmp_path / "state"))
    slides, place = shutil.copytree(segmented / "slides", tmp_path / "mine"), middle(out, SCC)
    segment_slides(slides, out=out, model=segmented / "model", device="cpu", batch=2)
    with correcting(slides=(), preview=True) as found:
        found.click("first", *place, "EPI")
    assert len(found.changes) == 1
    # What travels says nothing of where that was.
    assert not [path for path in out.rglob("*") if path.is_file() and str(slides).encode() in path.read_bytes()]


def test_the_slide_is_needed_once(out, correcting):
    for slides in ({}, {"slides": ()}):
        with correcting(preview=True, **slides) as found:
            found.click("first", *middle(out, SCC), "EPI", spread=False)
        assert len(found.changes) == 1


def test_a_slide_whose_file_is_gone_does_not_stop_the_others(out, correcting, segmented, tmp_path):
    (tmp_path / "only").mkdir()
    shutil.copy(segmented / "slides" / "first.tif", tmp_path / "only" / "renamed.tif")
    with correcting(slides=(tmp_path / "only",), preview=True) as found:
        found.click("first", *middle(out, SCC), "EPI", all_slides=True)
    assert ([change["slide_id"] for change in found.changes], [*found.failures]) == (["first"], ["second"])


def square(x, y, side, name):
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {"objectType": "annotation", "classification": {"name": name}},
    }


def write_areas(path, *features):
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [*features]}))
    return path


def test_areas_from_qupath_are_drawn_the_smaller_over_the_larger_and_what_is_left_out_is_counted(
    out, correcting, tmp_path
):
    areas = square(30, 80, 10, "EPI"), square(20, 70, 40, "SCC"), square(40, 70, 10, ""), square(9.6, 9.6, 0.2, "EPI")
    with correcting() as found:
        found.draw(write_areas(tmp_path / "first.geojson", *areas))
    assert [(change["action"], change["tissue"]) for change in found.changes] == [("draw", "EPI"), ("draw", "SCC")]
    (counts,) = found.areas
    assert (counts["slide_id"], counts["unclassified"], counts["no_pixel"]) == ("first", 1, 1)
    expected = mask(out / "first")
    expected[70:110, 20:60] = SCC
    expected[80:90, 30:40] = EPI
    np.testing.assert_array_equal(mask(out / "first" / "corrected"), expected)
    assert "first.geojson" not in (out / "first" / "corrections.jsonl").read_text()


def test_regions_that_were_exported_change_nothing_and_an_area_over_them_counts_in_full(tmp_path):
    # Round regions, of a slide that is finer than the model, simplified when they were written.
    tissue = np.full((300, 260), NAMES.index("BKG"), dtype=np.uint8)
    y, x = np.indices(tissue.shape)
    for radius, at, name in ((95, (150, 130), RET), (34, (130, 100), SCC), (9, (126, 104), EPI), (20, (205, 165), SCC)):
        tissue[(y - at[0]) ** 2 + (x - at[1]) ** 2 < radius**2] = name
    slide, out = write_slide(tmp_path / "first.tif", tissue, mpp=4.0), tmp_path / "out"
    segment_slides(slide, out=out, model=Unsure(), device="cpu", batch=2, simplify_um=30.0)
    features = json.loads((out / "first" / "regions.geojson").read_text())["features"]
    for each in features:
        # As QuPath may export them: rings from elsewhere, the other way round, with two decimals, the largest last.
        rings = [np.roll(np.array(ring)[:-1].round(2)[::-1], 3, axis=0) for ring in each["geometry"]["coordinates"]]
        each["geometry"]["coordinates"] = [[*ring.tolist(), ring[0].tolist()] for ring in rings]
    features.sort(key=lambda each: each["properties"]["measurements"]["Area mm^2"])
    path, found, before = (
        write_areas(tmp_path / "first.geojson", *features),
        FolderCorrections(out),
        mask(out / "first"),
    )
    with pytest.raises(DataError, match="no area changes the slide"):
        found.draw(path)
    found.draw(write_areas(path, *features, square(0, 0, 200, "SCC")))
    found.finish()
    assert [(change["action"], change["tissue"]) for change in found.changes] == [("draw", "SCC")]
    corner = round(200 * 4.0 / 6.7)
    before[:corner, :corner] = SCC
    np.testing.assert_array_equal(mask(out / "first" / "corrected"), before)
    with pytest.raises(DataError, match="no area changes the slide"):
        found.draw(out / "first" / "corrected" / "regions.geojson", "first")


def areas(file, *area):
    return lambda found: found.draw(write_areas(found.out.parent / file, square(*area)))


@pytest.mark.parametrize(
    ("do", "error", "what"),
    [
        (lambda found: found.click("frist", 1, 1, "EPI"), UsageError, "no such slide in out"),
        (lambda found: found.click("first", 1, 1, "EPL"), UsageError, "unknown class"),
        (lambda found: found.click("first", 5000, 1, "EPI"), UsageError, "the place lies outside the mask"),
        (lambda found: found.click("first", 60, 90, "EPI"), UsageError, "first has not been read yet"),
        (lambda found: FolderCorrections(found.out, by="much too long"), UsageError, "impossible initials"),
        (lambda found: FolderCorrections(found.out, [found.out / "nix"]), UsageError, "no such folder of slides"),
        (areas("drawn.json", 20, 70, 10, "SCC"), UsageError, "the file does not say which slide it is about"),
        (areas("first.json", 20, 70, 10, "SCX"), UsageError, "first.json: this tissue is none of the classes"),
        (areas("first.json", 5000, 70, 10, "EPI"), DataError, r"first.json: an annotation \(EPI\) lies outside first"),
        (areas("first.json", 20, 70, 10, ""), DataError, "first.json has no area with a class"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(out, correcting, do, error, what):
    with correcting(slides=()) as found, pytest.raises(error, match=what):
        do(found)
    assert not (out / "first" / "corrections.jsonl").exists()
