"""What becomes of the cancers of a slide, or of a piece, that is unlike what the model knows."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.segment.judged import KNOWN, SMALL, STRANGE, WHY, judge_as
from tests.segment.small import document, paint, rows_of, run, write_slide

from ntrm.results.documents import read_slide
from ntrm.results.familiarity import WITHOUT_REFERENCE
from ntrm.results.tables import read_results
from ntrm.slides.quality.checks import Quality

pytestmark = pytest.mark.usefixtures("quick_readers")
LENGTHS = ("deep_clearance", "lateral_clearance", "invasion_depth")
WARNING = f"unlike what the model knows (p = 0.002): {WHY}; darker than any"


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    """Of two pieces, each with an SCC."""
    return write_slide(tmp_path_factory.mktemp("in") / "a.tif", paint(np.random.default_rng(3), pieces=2))


@pytest.fixture(scope="module")
def made(tmp_path_factory, slide, quick_readers):
    """Results of the slide when it is familiar, when it is not although its first piece is, and the other way round."""
    verdicts = {"known": (KNOWN, {}), "strange": (STRANGE, {1: KNOWN, 2: STRANGE}), "piece": (KNOWN, {2: STRANGE})}
    folders, told = {name: tmp_path_factory.mktemp(name) for name in verdicts}, {}
    for name, verdict in verdicts.items():
        with pytest.MonkeyPatch.context() as patch:
            judge_as(patch, *verdict)
            (told[name],) = run(slide, folders[name]).as_dict()["slides"]
    return SimpleNamespace(**folders, told=told)


def documents(made, name):
    return document(made.known / "a", name), document(made.strange / "a", name)


def test_no_cancer_of_an_unfamiliar_slide_is_assessed_and_areas_stay(made):
    before, after = documents(made, "summary.json")
    assert before["cancers"]["SCC"]["present"] is True
    unsaid = {"present": None, "confidence": None, "reason": "not assessed: unlike what the model knows (p = 0.002)"}
    assert after["cancers"]["SCC"] == before["cancers"]["SCC"] | unsaid
    for key in ("areas_mm2", "tissue_fractions", "tissue_area_mm2"):
        assert after[key] == before[key]
    for piece, other in zip(after["pieces"], before["pieces"], strict=True):
        (cancer,) = piece["cancers"]
        assert cancer["present"] is cancer["confidence"] is None
        assert cancer["reason"].startswith("not assessed: unlike")
        assert piece["areas_mm2"] == other["areas_mm2"]
        # What is measured from a tumour is not assessed, and has no line.
        assert any(other["measurements"][name]["value"] is not None for name in LENGTHS)
        for name in LENGTHS:
            measure = piece["measurements"][name]
            assert (measure["value"], measure["line_px"]) == (None, None)
            assert measure["reason"] == "unlike what the model knows"
        assert piece["measurements"]["orientation"] == other["measurements"]["orientation"]
    for name in ("regions", "interfaces"):
        assert rows_of(made.known, name) == rows_of(made.strange, name)


def test_no_sentence_names_a_tumour_of_an_unfamiliar_slide(made):
    before, after = (each["pieces"] for each in documents(made, "graph.json"))
    assert any("SCC" in text for text in before[0]["text"])
    for graph, piece in zip(after, document(made.strange / "a")["pieces"], strict=True):
        assert graph["text"][-1] == "Tumours: not assessed, unlike what the model knows (p = 0.002)."
        assert piece["text"][: len(graph["text"])] == graph["text"]
        assert "Deep clearance: not assessed (unlike what the model knows)." in piece["text"]
        assert not any("SCC" in text for text in piece["text"])
    # The graph itself is what the network says.
    assert [piece["graph"] for piece in before] == [piece["graph"] for piece in after]


def test_the_warning_comes_first_in_every_list(made):
    assert document(made.strange / "a")["warnings"][0] == WARNING
    assert rows_of(made.strange)[0]["warnings"].startswith(WARNING)
    told = made.told["strange"]
    assert told["warnings"].startswith(WARNING)
    assert (told["cancers"], told["familiarity"], told["familiarity_p"]) == (None, "unfamiliar", 0.002)


def test_tables_say_not_assessed_and_read_it_as_nothing(made):
    (row,) = rows_of(made.strange)
    assert (row["cancer_SCC"], row["cancer_SCC_confidence"]) == ("not assessed", "not assessed")
    assert (row["deep_clearance_mm"], row["invasion_depth_mm"]) == ("", "")
    assert [row[f"familiarity{key}"] for key in ("", "_p", "_colours_p", "_texture_p", "_anatomy_p", "_reason")] == [
        *("unfamiliar", "0.002", "0.4", "0.03", "0.002"),
        f"{WHY}; darker than any",
    ]
    first, second = rows_of(made.strange, "pieces")
    assert {first["cancer_SCC"], second["cancer_SCC_confidence"]} == {"not assessed"}
    assert (first["familiarity"], second["familiarity"]) == ("familiar", "unfamiliar")
    assert first["deep_clearance_reason"] == "unlike what the model knows"
    read = read_results(made.strange).slides.rows[0]
    assert read["cancer_SCC"] is read["cancer_SCC_confidence"] is None
    assert (read["familiarity"], read["familiarity_p"]) == ("unfamiliar", 0.002)
    assert read_results(made.known).slides.rows[0]["cancer_SCC"] is True


def test_an_unfamiliar_piece_alone_is_not_assessed_and_the_slide_says_which(made):
    before, after = document(made.known / "a"), document(made.piece / "a")
    assert after["warnings"][0] == f"piece 2: {WARNING}"
    (one, two), (first, _) = after["pieces"], before["pieces"]
    assert {**one, "familiarity": None} == {**first, "familiarity": None}
    assert two["cancers"][0]["present"] is None
    assert two["measurements"]["invasion_depth"]["value"] is None
    cancer = after["cancers"]["SCC"]
    assert (cancer["present"], cancer["reason"]) == (True, "piece 2 not assessed")
    assert cancer["area_mm2"] == first["cancers"][0]["area_mm2"]
    depth = first["measurements"]["invasion_depth"]["value"]
    assert rows_of(made.piece)[0]["invasion_depth_mm"] == f"{depth:.9g}"


@pytest.mark.parametrize("verdict", [SMALL, WITHOUT_REFERENCE])
def test_a_slide_that_was_not_judged_says_so_and_nothing_else_changes(tmp_path, slide, made, monkeypatch, verdict):
    judge_as(monkeypatch, verdict)
    done = run(slide, tmp_path / "out", strict=False)
    assert done.notes == (f"familiarity: {verdict.verdict} on 1 of 1: {verdict.reasons[0]}",)
    before, after = document(made.known / "a"), document(tmp_path / "out" / "a")
    assert after["familiarity"]["verdict"] == verdict.verdict
    for summary in (before, after):
        for each in (summary, *summary["pieces"]):
            each.pop("familiarity")
    assert after == before
    for name in ("mask.ome.tif", "overlay.png", "graph.json", "regions.geojson"):
        assert (tmp_path / "out" / "a" / name).read_bytes() == (made.known / "a" / name).read_bytes()


def test_what_was_written_is_read_back(made):
    slide = read_slide(made.strange / "a")
    assert slide.familiarity == STRANGE
    assert [piece.familiarity for piece in slide.pieces] == [KNOWN, STRANGE]
    assert slide.cancers["SCC"].present is None
    assert slide.familiarities.warnings == slide.warnings[:1]


def test_qupath_is_told_and_the_polygons_are_the_same(made):
    before, after = documents(made, "regions.geojson")
    assert after["ntrm"]["warnings"] == [WARNING]
    assert "warnings" not in before["ntrm"]
    for one, other in zip(before["features"], after["features"], strict=True):
        assert other["properties"].pop("metadata") == {"cancers": "not assessed: unlike what the model knows"}
        assert one == other
    told = document(made.piece / "a", "regions.geojson")
    assert told["ntrm"]["warnings"] == [f"piece 2: {WARNING}"]
    assert told["features"] == before["features"]


def test_a_strict_run_refuses_an_unfamiliar_slide_and_leaves_nothing_of_it(tmp_path, slide, monkeypatch):
    monkeypatch.setattr(Quality, "serious", False)  # painted slides are taken for masks
    judge_as(monkeypatch, STRANGE)
    done = run(slide, tmp_path / "out", strict=True)
    (outcome,) = done.slides
    assert (outcome.status, outcome.refused, done.exit_code) == ("failed", True, 3)
    assert outcome.reason.startswith(f"the slide is unlike what the model knows; got p = 0.002: {WHY}")
    assert "run without --strict" in outcome.reason
    assert [path.name for path in (tmp_path / "out" / "a").iterdir()] == [".ntrm"]
    assert not (tmp_path / "out" / "a" / ".ntrm" / "done.json").exists()
    (row,) = rows_of(tmp_path / "out")
    assert (row["status"], row.get("cancer_SCC", "")) == ("failed", "")
    judge_as(monkeypatch, KNOWN, {2: STRANGE})
    done = run(slide, tmp_path / "out", strict=True)
    assert done.exit_code == 0
    assert done.slides[0].row["warnings"].startswith("piece 2: unlike")
