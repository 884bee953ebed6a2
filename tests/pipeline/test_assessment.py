"""What becomes of the cancers of a slide, or of a piece, that is unlike what the model knows."""

import csv
import json

import pytest
from tests.evaluation.small import ByColour
from tests.pipeline.judged import KNOWN, SMALL, STRANGE, WHY, judge_as
from tests.pipeline.small import fingerprints, paint, write_slide

from ntrm.pipeline.batch import segment_slides
from ntrm.results.documents import read_slide
from ntrm.results.familiarity import WITHOUT_REFERENCE
from ntrm.results.tables import read_results
from ntrm.wsi.quality.checks import Quality

pytestmark = pytest.mark.usefixtures("quick_readers")
LENGTHS = ("deep_clearance", "lateral_clearance", "invasion_depth")
WARNING = f"unlike what the model knows (p = 0.002): {WHY}; darker than any"


@pytest.fixture
def slide(tmp_path, random):
    """Of two pieces, each with an SCC."""
    return write_slide(tmp_path / "in" / "a.tif", paint(random, pieces=2))


def run(slide, out, **options):
    return segment_slides(slide, out=out, model=ByColour(), device="cpu", batch=3, **options)


def document(out, name):
    return json.loads((out / "a" / name).read_text(encoding="utf-8"))


def rows(out, table):
    with (out / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def known(tmp_path, slide, monkeypatch):
    """The results of the slide when it is familiar."""
    judge_as(monkeypatch, KNOWN)
    run(slide, tmp_path / "known")
    return tmp_path / "known"


@pytest.fixture
def strange(tmp_path, slide, monkeypatch):
    """The results of the slide when it is not, although its first piece is."""
    judge_as(monkeypatch, STRANGE, {1: KNOWN, 2: STRANGE})
    run(slide, tmp_path / "strange")
    return tmp_path / "strange"


def test_no_cancer_of_an_unfamiliar_slide_is_assessed_and_areas_stay(known, strange):
    before, after = document(known, "summary.json"), document(strange, "summary.json")
    assert before["cancers"]["SCC"]["present"] is True
    assert {key: after["cancers"]["SCC"][key] for key in ("present", "confidence")} == dict.fromkeys(
        ("present", "confidence")
    )
    assert after["cancers"]["SCC"]["reason"] == "not assessed: unlike what the model knows (p = 0.002)"
    for key in ("area_mm2", "regions"):
        assert after["cancers"]["SCC"][key] == before["cancers"]["SCC"][key]
    for key in ("areas_mm2", "tissue_fractions", "tissue_area_mm2"):
        assert after[key] == before[key]
    for piece, other in zip(after["pieces"], before["pieces"], strict=True):
        (cancer,) = piece["cancers"]
        assert cancer["present"] is cancer["confidence"] is None
        assert cancer["reason"].startswith("not assessed: unlike")
        assert piece["areas_mm2"] == other["areas_mm2"]
    for name in ("regions", "interfaces"):
        assert rows(known, name) == rows(strange, name)


def test_what_is_measured_from_a_tumour_is_not_assessed_and_has_no_line(known, strange):
    for piece, other in zip(
        document(strange, "summary.json")["pieces"], document(known, "summary.json")["pieces"], strict=True
    ):
        assert any(other["measurements"][name]["value"] is not None for name in LENGTHS)
        for name in LENGTHS:
            measure = piece["measurements"][name]
            assert (measure["value"], measure["line_px"]) == (None, None)
            assert measure["reason"] == "unlike what the model knows"
        assert piece["measurements"]["orientation"] == other["measurements"]["orientation"]


def test_no_sentence_names_a_tumour_of_an_unfamiliar_slide(known, strange):
    assert any("SCC" in text for text in document(known, "graph.json")["pieces"][0]["text"])
    told = [piece["text"] for piece in document(strange, "graph.json")["pieces"]]
    said = [piece["text"] for piece in document(strange, "summary.json")["pieces"]]
    for graph, all_of_it in zip(told, said, strict=True):
        assert graph[-1] == "Tumours: not assessed, unlike what the model knows (p = 0.002)."
        assert all_of_it[: len(graph)] == graph
        assert "Deep clearance: not assessed (unlike what the model knows)." in all_of_it
        assert not any("SCC" in text for text in all_of_it)
    # The graph itself is what the network says.
    before, after = (document(out, "graph.json")["pieces"] for out in (known, strange))
    assert [piece["graph"] for piece in before] == [piece["graph"] for piece in after]


def test_the_warning_comes_first_in_every_list(tmp_path, slide, strange, monkeypatch):
    quality = document(strange, "summary.json")["warnings"]
    assert quality[0] == WARNING
    assert rows(strange, "slides")[0]["warnings"].startswith(WARNING)
    judge_as(monkeypatch, STRANGE)
    (told,) = run(slide, tmp_path / "again").as_dict()["slides"]
    assert told["warnings"].startswith(WARNING)
    assert (told["cancers"], told["familiarity"], told["familiarity_p"]) == (None, "unfamiliar", 0.002)


def test_tables_say_not_assessed_and_read_it_as_nothing(known, strange):
    (row,) = rows(strange, "slides")
    assert (row["cancer_SCC"], row["cancer_SCC_confidence"]) == ("not assessed", "not assessed")
    assert (row["deep_clearance_mm"], row["invasion_depth_mm"]) == ("", "")
    assert [row[f"familiarity{key}"] for key in ("", "_p", "_colours_p", "_texture_p", "_anatomy_p", "_reason")] == [
        *("unfamiliar", "0.002", "0.4", "0.03", "0.002"),
        f"{WHY}; darker than any",
    ]
    first, second = rows(strange, "pieces")
    assert {first["cancer_SCC"], second["cancer_SCC_confidence"]} == {"not assessed"}
    assert (first["familiarity"], second["familiarity"]) == ("familiar", "unfamiliar")
    assert first["deep_clearance_reason"] == "unlike what the model knows"
    read = read_results(strange).slides.rows[0]
    assert read["cancer_SCC"] is read["cancer_SCC_confidence"] is None
    assert (read["familiarity"], read["familiarity_p"]) == ("unfamiliar", 0.002)
    assert read_results(known).slides.rows[0]["cancer_SCC"] is True


def test_an_unfamiliar_piece_alone_is_not_assessed_and_the_slide_says_which(tmp_path, slide, known, monkeypatch):
    judge_as(monkeypatch, KNOWN, {1: KNOWN, 2: STRANGE})
    run(slide, tmp_path / "out")
    before, after = document(known, "summary.json"), document(tmp_path / "out", "summary.json")
    assert after["warnings"][0] == f"piece 2: {WARNING}"
    (one, two), (first, _) = after["pieces"], before["pieces"]
    assert {**one, "familiarity": None} == {**first, "familiarity": None}
    assert two["cancers"][0]["present"] is None
    assert two["measurements"]["invasion_depth"]["value"] is None
    cancer = after["cancers"]["SCC"]
    assert (cancer["present"], cancer["reason"]) == (True, "piece 2 not assessed")
    assert cancer["area_mm2"] == first["cancers"][0]["area_mm2"]
    depth = first["measurements"]["invasion_depth"]["value"]
    assert rows(tmp_path / "out", "slides")[0]["invasion_depth_mm"] == f"{depth:.9g}"


@pytest.mark.parametrize("verdict", [SMALL, WITHOUT_REFERENCE])
def test_a_slide_that_was_not_judged_says_so_and_nothing_else_changes(tmp_path, slide, known, monkeypatch, verdict):
    judge_as(monkeypatch, verdict)
    done = run(slide, tmp_path / "out", strict=False)
    assert done.notes == (f"familiarity: {verdict.verdict} on 1 of 1: {verdict.reasons[0]}",)
    before, after = document(known, "summary.json"), document(tmp_path / "out", "summary.json")
    assert after["familiarity"]["verdict"] == verdict.verdict
    for summary in (before, after):
        for each in (summary, *summary["pieces"]):
            each.pop("familiarity")
    assert after == before
    for name in ("mask.ome.tif", "overlay.png", "graph.json", "regions.geojson"):
        assert (tmp_path / "out" / "a" / name).read_bytes() == (known / "a" / name).read_bytes()


def test_what_was_written_is_read_back(strange):
    slide = read_slide(strange / "a")
    assert slide.familiarity == STRANGE
    assert [piece.familiarity for piece in slide.pieces] == [KNOWN, STRANGE]
    assert slide.cancers["SCC"].present is None
    assert slide.familiarities.warnings == slide.warnings[:1]


def test_qupath_is_told_and_the_polygons_are_the_same(tmp_path, slide, known, strange, monkeypatch):
    before, after = (document(out, "regions.geojson") for out in (known, strange))
    assert after["ntrm"]["warnings"] == [WARNING]
    assert "warnings" not in before["ntrm"]
    for one, other in zip(before["features"], after["features"], strict=True):
        metadata = other["properties"].pop("metadata")
        assert metadata == {"cancers": "not assessed: unlike what the model knows"}
        assert one == other
    judge_as(monkeypatch, KNOWN, {2: STRANGE})
    run(slide, tmp_path / "out")
    told = document(tmp_path / "out", "regions.geojson")
    assert told["ntrm"]["warnings"] == [f"piece 2: {WARNING}"]
    assert told["features"] == before["features"]


@pytest.fixture
def good(monkeypatch):
    """Slides of good quality: painted ones are taken for masks."""
    monkeypatch.setattr(Quality, "serious", False)


@pytest.mark.usefixtures("good")
def test_a_strict_run_refuses_an_unfamiliar_slide_and_leaves_nothing_of_it(tmp_path, slide, monkeypatch):
    judge_as(monkeypatch, STRANGE)
    out = tmp_path / "out"
    for _ in range(2):
        done = run(slide, out, strict=True)
        (outcome,) = done.slides
        assert (outcome.status, outcome.refused, done.exit_code) == ("failed", True, 3)
        assert outcome.reason.startswith(f"the slide is unlike what the model knows; got p = 0.002: {WHY}")
        assert "run without --strict" in outcome.reason
        assert [path.name for path in (out / "a").iterdir()] == [".ntrm"]
        assert not (out / "a" / ".ntrm" / "done.json").exists()
    (row,) = rows(out, "slides")
    assert (row["status"], row.get("cancer_SCC", "")) == ("failed", "")


@pytest.mark.usefixtures("good")
def test_a_strict_run_takes_what_is_familiar_and_warns_of_a_piece(tmp_path, slide, monkeypatch):
    judge_as(monkeypatch, KNOWN, {2: STRANGE})
    done = run(slide, tmp_path / "out", strict=True)
    assert done.exit_code == 0
    assert done.slides[0].row["warnings"].startswith("piece 2: unlike")
    assert {"mask.ome.tif", "regions.geojson"} <= {path.name for path in (tmp_path / "out" / "a").iterdir()}


def test_the_same_slide_gives_the_same_bytes_and_a_map_where_windows_were_judged(tmp_path, slide, monkeypatch):
    windows = [(0, 0, 64, 64, 0.001), (48, 0, 64, 64, 0.5)]
    judge_as(monkeypatch, STRANGE, windows=windows)
    for name in ("one", "two"):
        run(slide, tmp_path / name)
    one, two = (fingerprints(tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert "a/familiarity.jpg" in one
    judge_as(monkeypatch, STRANGE)
    run(slide, tmp_path / "three")
    assert not (tmp_path / "three" / "a" / "familiarity.jpg").exists()
