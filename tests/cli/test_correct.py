"""``ntrm correct``: clicks, areas from QuPath, undo and redo, a preview, and plain errors."""

import json
import shutil

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import NAMES, ByColour
from tests.segment.small import InProcess, paint, write_slide
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.correct.log import read_log
from ntrm.models.registry import ARCHITECTURES
from ntrm.results.tables import read_results
from ntrm.segment.batch import segment_slides
from ntrm.slides import isolated

runner = CliRunner()
EPI, RET, SCC = (NAMES.index(name) for name in ("EPI", "RET", "SCC"))


class Unsure(ByColour):
    """Says the same with less confidence: of a network that is sure of everything, nothing follows."""

    def _logits(self, rgb):
        return super()._logits(rgb) / 15


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setitem(ARCHITECTURES, "by-colour", Unsure)
    monkeypatch.setattr(isolated, "ReadingProcess", InProcess)


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    """Two slides, a model, and results without region graphs."""
    folder, random = tmp_path_factory.mktemp("segmented"), np.random.default_rng(4)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(ARCHITECTURES, "by-colour", Unsure)
        patched.setattr(isolated, "ReadingProcess", InProcess)
        Unsure().describe(name="mine").save_pretrained(folder / "model")
        for name in ("first", "second"):
            write_slide(folder / "slides" / f"{name}.tif", paint(random))
        segment_slides(folder / "slides", out=folder / "out", model=folder / "model", device="cpu", batch=2)
    return folder


@pytest.fixture
def out(segmented, tmp_path):
    return shutil.copytree(segmented / "out", tmp_path / "out")


@pytest.fixture
def correct(out, segmented):
    """The command on a copy of the results; returns its JSON."""

    def run(*words, code=0, slides=True):
        where = ["--slides", segmented / "slides", "--model", segmented / "model", "--device", "cpu"] if slides else []
        result = runner.invoke(app, ["correct", str(out), "--json", *map(str, (*words, *where))])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    return run


def mask(folder):
    return tifffile.imread(folder / "mask.ome.tif", key=0).astype(int) - 1


def middle(out, tissue, slide="first"):
    """A pixel of a tissue, as x and y."""
    places = np.argwhere(mask(out / slide) == tissue)
    row, column = places[len(places) // 2]
    return column, row


def test_a_click_names_a_part_and_what_looks_alike_follows_after_a_preview_that_writes_nothing(out, correct):
    words = ["--click", "first", *middle(out, SCC), "EPI", "--by", "AB"]
    shown = correct(*words, "--preview")
    assert shown["preview"] is True
    assert not {"corrections.jsonl", "corrected"} & {path.name for path in (out / "first").iterdir()}
    found = correct(*words)
    assert found["changes"] == shown["changes"]
    (change,) = found["changes"]
    assert (change["slide_id"], change["step"], change["action"], change["tissue"]) == ("first", 1, "name", "EPI")
    assert change["regions"] > 1
    before, after = mask(out / "first"), mask(out / "first" / "corrected")
    # All of the tumour looks the same.
    assert (after[before == SCC] == EPI).all()
    changed = (after != before).sum() * 6.7**2 / 1e6
    assert change["area_mm2"] == pytest.approx(changed, rel=1e-6)
    step = read_log(out / "first").steps[0]
    assert (step.by, step.origin, step.spread) == ("AB", "command", "looks and relations")
    assert read_results(out).slides.column("corrected_parts") == [change["regions"], None]


def test_right_after_segmenting_nobody_is_asked_where_the_slides_are(out, correct, segmented, tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_STATE", str(tmp_path / "state"))
    slides = shutil.copytree(segmented / "slides", tmp_path / "mine")
    words = {"model": segmented / "model", "device": "cpu", "batch": 2}
    segment_slides(slides, out=out, **words)
    click = ["--click", "first", *middle(out, SCC), "EPI", "--model", segmented / "model", "--device", "cpu"]
    (slides / "first.tif").rename(tmp_path / "away.tif")
    asked = correct(*click, code=2, slides=False)["error"]
    assert "--slides" in asked["hint"]
    (tmp_path / "away.tif").rename(slides / "first.tif")
    assert correct(*click, slides=False)["changes"][0]["regions"] > 1
    # What travels says nothing of where that was, and of pseudonyms nothing is remembered.
    assert not [path for path in out.rglob("*") if path.is_file() and str(slides).encode() in path.read_bytes()]
    monkeypatch.setenv("NTRM_STATE", str(tmp_path / "none"))
    segment_slides(slides, out=tmp_path / "secret", pseudonymise=tmp_path / "key.csv", **words)
    assert not (tmp_path / "none").exists()


def test_the_slide_is_needed_once(out, correct, segmented):
    place = middle(out, SCC)
    refused = correct("--click", "first", *place, "EPI", code=2, slides=False)["error"]
    assert refused["what"].startswith("the parts of first are not known yet")
    assert "--slides" in refused["hint"]
    correct("--click", "first", *place, "EPI", "--no-spread")
    correct("--click", "first", *place, "RET", "--no-spread", slides=False)
    assert [step.tissue for step in read_log(out / "first").steps] == ["EPI", "RET"]


def test_a_whole_region_is_named_without_the_slide(out, correct):
    place = middle(out, SCC)
    (change,) = correct("--click", "first", *place, "RET", "--whole-region", "--no-spread", slides=False)["changes"]
    before, after = mask(out / "first"), mask(out / "first" / "corrected")
    expected = np.where(before == SCC, RET, before)
    np.testing.assert_array_equal(after, expected)
    assert change["area_mm2"] == pytest.approx((before == SCC).sum() * 6.7**2 / 1e6)


def test_several_clicks_are_several_steps_and_the_last_is_undone_and_done_again(out, correct):
    one, two = middle(out, SCC), middle(out, EPI)
    words = ["--click", "first", *one, "EPI", "--click", "first", *two, "RET", "--no-spread"]
    assert [change["step"] for change in correct(*words)["changes"]] == [1, 2]
    (undone,) = correct("--undo", "first")["changes"]
    assert (undone["action"], undone["of"], undone["tissue"]) == ("undo", 2, "RET")
    once = mask(out / "first" / "corrected")
    assert once[two[1], two[0]] == EPI
    correct("--redo", "first")
    assert mask(out / "first" / "corrected")[two[1], two[0]] == RET
    listed = correct("--list")["steps"]
    assert [(each["action"], each["active"]) for each in listed] == [
        *[("name", True)] * 2, ("undo", False), ("redo", False),
    ]  # fmt: skip
    assert correct("--list", "--slide", "second")["steps"] == []


def test_a_damaged_corrected_version_is_made_anew_as_the_hint_says(out, correct):
    file = "graph.json"
    words = ["--click", "first", *middle(out, SCC), "RET", "--whole-region", "--no-spread"]
    correct(*words, slides=False)
    before = mask(out / "first" / "corrected")
    (out / "first" / "corrected" / file).write_bytes(b"{")
    told = runner.invoke(app, ["report", str(out), "--jobs", "1"])
    assert told.exit_code == 1
    assert "first/corrected: cannot read " + file in told.stderr
    assert "make it anew with `ntrm correct OUT --undo first`, then `ntrm correct OUT --redo first`" in told.stderr
    correct("--undo", "first", slides=False)
    correct("--redo", "first", slides=False)
    assert runner.invoke(app, ["report", str(out), "--jobs", "1"]).exit_code == 0
    np.testing.assert_array_equal(mask(out / "first" / "corrected"), before)


def test_a_name_is_carried_on_to_all_slides(out, correct):
    found = correct("--click", "first", *middle(out, SCC), "EPI", "--all-slides")
    assert [change["slide_id"] for change in found["changes"]] == ["first", "second"]
    before, after = mask(out / "second"), mask(out / "second" / "corrected")
    assert (after[before == SCC] == EPI).all()
    assert read_log(out / "second").steps[0].origin == "slide first, step 1"
    assert found["failures"] == []


def test_a_slide_whose_file_is_gone_does_not_stop_the_others(out, correct, segmented, tmp_path):
    (tmp_path / "only").mkdir()
    shutil.copy(segmented / "slides" / "first.tif", tmp_path / "only" / "renamed.tif")
    words = ["--slides", tmp_path / "only", "--model", segmented / "model", "--device", "cpu"]
    found = correct("--click", "first", *middle(out, SCC), "EPI", "--all-slides", *words, code=1, slides=False)
    assert [change["slide_id"] for change in found["changes"]] == ["first"]
    assert [each["slide_id"] for each in found["failures"]] == ["second"]


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


def test_areas_from_qupath_are_drawn_the_smaller_over_the_larger(out, correct, tmp_path):
    path = write_areas(tmp_path / "first.geojson", square(30, 80, 10, "EPI"), square(20, 70, 40, "SCC"))
    found = correct("--from", path, slides=False)
    assert [(change["action"], change["tissue"]) for change in found["changes"]] == [("draw", "EPI"), ("draw", "SCC")]
    expected = mask(out / "first")
    expected[70:110, 20:60] = SCC
    expected[80:90, 30:40] = EPI
    np.testing.assert_array_equal(mask(out / "first" / "corrected"), expected)
    assert "first.geojson" not in (out / "first" / "corrections.jsonl").read_text()


def test_regions_that_were_exported_as_they_are_change_nothing(out, correct, tmp_path):
    exported = json.loads((out / "first" / "regions.geojson").read_text())
    path = tmp_path / "first.geojson"
    path.write_text(json.dumps(exported))
    assert "no area changes the slide" in correct("--from", path, code=1, slides=False)["error"]["what"]
    for each in exported["features"]:
        if each["properties"]["classification"]["name"] == "SCC":
            each["properties"]["classification"]["name"] = "RET"
    path.write_text(json.dumps(exported))
    correct("--from", path, slides=False)
    before, after = mask(out / "first"), mask(out / "first" / "corrected")
    np.testing.assert_array_equal(after, np.where(before == SCC, RET, before))


def test_neither_do_those_that_were_simplified_when_they_were_written(tmp_path):
    # Round regions, of a slide that is finer than the model.
    tissue = np.full((300, 260), NAMES.index("BKG"), dtype=np.uint8)
    y, x = np.indices(tissue.shape)
    for radius, at, name in ((95, (150, 130), RET), (34, (130, 100), SCC), (9, (126, 104), EPI), (20, (205, 165), SCC)):
        tissue[(y - at[0]) ** 2 + (x - at[1]) ** 2 < radius**2] = name
    slide, out = write_slide(tmp_path / "first.tif", tissue, mpp=4.0), tmp_path / "out"
    segment_slides(slide, out=out, model=Unsure(), device="cpu", batch=2, simplify_um=30.0)

    def draw(path):
        said = runner.invoke(app, ["correct", str(out), "--from", str(path), "--slide", "first", "--json"])
        return json.loads(said.stdout)

    features = json.loads((out / "first" / "regions.geojson").read_text())["features"]
    for each in features:
        # As QuPath may export them: rings from elsewhere, the other way round, with two decimals, the largest last.
        rings = [np.roll(np.array(ring)[:-1].round(2)[::-1], 3, axis=0) for ring in each["geometry"]["coordinates"]]
        each["geometry"]["coordinates"] = [[*ring.tolist(), ring[0].tolist()] for ring in rings]
    features.sort(key=lambda each: each["properties"]["measurements"]["Area mm^2"])
    path = write_areas(tmp_path / "first.geojson", *features)
    assert "no area changes the slide" in draw(path)["error"]["what"]
    (change,) = draw(write_areas(path, *features, square(20, 70, 40, "SCC")))["changes"]
    assert (change["action"], change["tissue"]) == ("draw", "SCC")
    assert "no area changes the slide" in draw(out / "first" / "corrected" / "regions.geojson")["error"]["what"]


def test_an_area_over_exported_regions_counts_in_full_and_corrected_ones_change_nothing(out, correct, tmp_path):
    exported = json.loads((out / "first" / "regions.geojson").read_text())["features"]
    correct("--from", write_areas(tmp_path / "first.geojson", *exported, square(0, 0, 129, "SCC")), slides=False)
    before, after = mask(out / "first"), mask(out / "first" / "corrected")
    before[:129, :129] = SCC
    np.testing.assert_array_equal(after, before)
    corrected = out / "first" / "corrected" / "regions.geojson"
    said = correct("--from", corrected, "--slide", "first", code=1, slides=False)["error"]["what"]
    assert "no area changes the slide" in said


def test_areas_that_cannot_be_drawn_are_told(out, correct, tmp_path):
    path = write_areas(tmp_path / "drawn.json", square(20, 70, 10, "SCC"))
    assert "--slide" in correct("--from", path, code=2, slides=False)["error"]["hint"]
    assert correct("--from", path, "--slide", "second", slides=False)["changes"][0]["slide_id"] == "second"
    path = tmp_path / "first.geojson"
    for area, code, what in (
        (square(20, 70, 10, "SCX"), 2, "first.geojson: the model does not know this tissue"),
        (square(5000, 70, 10, "EPI"), 1, "first.geojson: an annotation (EPI) lies outside first"),
        (square(20, 70, 10, ""), 1, "first.geojson has no area with a class"),
    ):
        assert correct("--from", write_areas(path, area), code=code, slides=False)["error"]["what"] == what
    assert not (out / "first" / "corrections.jsonl").exists()


def test_areas_that_were_left_out_are_counted(out, correct, tmp_path):
    areas = square(20, 70, 10, "SCC"), square(40, 70, 10, ""), square(9.6, 9.6, 0.2, "EPI")
    path = write_areas(tmp_path / "first.geojson", *areas)
    (counts,) = correct("--from", path, "--preview", slides=False)["areas"]
    assert (counts["slide_id"], counts["unclassified"], counts["no_pixel"]) == ("first", 1, 1)
    result = runner.invoke(app, ["correct", str(out), "--from", str(path)])
    assert "first: annotations left out or changed: 1 without a class, 1 on no pixel" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["--click", "frist", 1, 1, "EPI"], 2, "no such slide in out"),
        (["--click", "first", 1, 1, "EPL"], 2, "unknown class"),
        (["--click", "first", 5000, 1, "EPI"], 2, "the place lies outside the mask"),
        (["--click", "first", -1, 1, "EPI"], 2, "the place lies outside the mask"),
        (["--click", "first", "a", 1, "EPI"], 2, "unreadable click"),
        (["--click", "first", 1, 1], 2, "unreadable click"),
        (["--click=first 1 1"], 2, "unreadable click"),
        (["--undo", "first"], 2, "there is nothing to undo"),
        (["--undo", "first", "--by", "much too long"], 2, "impossible initials"),
        (["--click", "first", 1, 1, "EPI", "--slide", "second"], 2, "--slide goes with --from or --list"),
        (["--click", "first", 1, 1, "EPI", "--slides", "nix"], 2, "no such folder of slides"),
        (["--undo", "first", "--list"], 2, "what to do is not clear"),
        ([], 2, "what to do is not clear"),
    ],
)
def test_what_cannot_be_done_is_told(correct, words, code, what):
    assert correct(*words, code=code)["error"]["what"] == what


def test_people_read_what_was_written_and_what_was_done_before_an_error_stays_done(out, segmented):
    x, y = map(str, middle(out, SCC))
    words = ["correct", str(out), "--whole-region", "--no-spread", "--click", "first", x, y, "RET"]
    result = runner.invoke(app, words)
    assert (result.exit_code, "1 step" in result.stdout) == (0, True), result.output
    assert f"written: {out / 'first' / 'corrected'}" in result.stderr
    assert "command" in runner.invoke(app, ["correct", str(out), "--list"]).stdout
    result = runner.invoke(app, [*words, "--click", "first", "5000", "1", "RET"])
    assert result.exit_code == 2
    assert "written before this error: 1 step" in result.stderr
    result = runner.invoke(app, [*words, "--click", "first", "5000", "1", "RET", "--json"])
    document = json.loads(result.stdout)
    assert (list(document), [change["step"] for change in document["changes"]]) == (["error", "changes"], [3])


def test_another_model_is_refused(out, correct, segmented, tmp_path):
    network = Unsure()
    network.colours.data += 0.1
    network.describe(name="mine").save_pretrained(tmp_path / "moved")
    words = ["--click", "first", *middle(out, SCC), "EPI", "--slides", segmented / "slides"]
    error = correct(*words, "--model", tmp_path / "moved", code=3, slides=False)["error"]
    assert error["what"] == "first was made with another model"
    weights = json.loads((segmented / "model" / "config.json").read_text())["weights_sha256"]
    assert error["hint"].endswith(f"--model (named mine, weights {weights[:12]})")
