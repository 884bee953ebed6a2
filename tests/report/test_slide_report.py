import base64

import pytest
from lxml import html
from tests.report.pages import HOSTILE, cells, check_safe, rows, words
from tests.report.segmented import change, document, judged, network_relations
from tests.segment.judged import KNOWN, STRANGE, WHY

from ntrm.core.wording import area_text
from ntrm.report.html import NOTICE, confidence_text, share_text, value_text
from ntrm.report.slide_report import write_slide_report
from ntrm.results.documents import read_slide, tissues_in


def reported(folder):
    return check_safe(write_slide_report(folder).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["one", "two"])
def test_every_number_is_that_of_the_files(results, name):
    page = reported(results / name)
    text = (results / name / "report.html").read_text(encoding="utf-8")
    summary = document(results / name / "summary.json")
    slide = read_slide(results / name)
    present = {tissue: share for tissue, share in summary["tissue_fractions"].items() if share}
    assert present
    for tissue, share in present.items():
        whole = [
            area_text(summary["areas_mm2"][tissue]),
            share_text(share),
            "",
            confidence_text(tissues_in(slide.graphs)[tissue].confidence),
        ]
        assert cells(text, tissue)[0] == whole
    for piece in summary["pieces"]:
        found = cells(text, str(piece["number"]))[0]
        assert found[0] == area_text(piece["tissue_area_mm2"])
        keys = ("deep_clearance", "lateral_clearance", "invasion_depth", "orientation")
        for cell, key in zip(found[2:], keys, strict=True):
            told = piece["measurements"][key]
            expected = value_text(told["value"], told["unit"])
            assert cell == (expected if told["value"] is not None else f"not assessed {told['reason']}")
    for cancer, told in summary["cancers"].items():
        if told["present"]:
            said = f"confidence {confidence_text(told['confidence'])} · {area_text(told['area_mm2'])} mm² in"
            assert f"{said} {told['regions']} region" in page.text
            assert cancer in page.text
    assert page.text.count(NOTICE) == 2


def test_the_head_of_the_page_says_which_pieces_its_lengths_leave_open(results):
    folder = results / "two"

    def lengths(*reasons):
        def spoil(it):
            for piece, reason in zip(it["pieces"], reasons, strict=True):
                told = {"value": None, "reason": reason, "line_px": None} if reason else {"value": 1.25, "reason": ""}
                piece["measurements"]["deep_clearance"].update(told)

        change(folder / "summary.json", spoil)
        text = " ".join(reported(folder).text.split())
        return text[text.index("Deep clearance") :][:120]

    assert lengths("torn", "").startswith("Deep clearance 1.25 mm not assessed in piece 1: torn")
    assert not lengths("no tumour in the piece", "").startswith("Deep clearance 1.25 mm not assessed")
    assert lengths("", "").startswith("Deep clearance 1.25 mm least of 2 pieces")
    assert lengths("torn", "torn").startswith("Deep clearance not assessed torn")


def test_boundaries_and_sentences_are_those_of_the_graph(results):
    page = reported(results / "two")
    text = (results / "two" / "report.html").read_text(encoding="utf-8")
    for number, piece in enumerate(document(results / "two" / "graph.json")["pieces"]):
        for sentence in piece["text"]:
            assert sentence in page.text
        edges = [edge for edge in piece["graph"]["edges"] if edge["kind"] == "boundary"]
        for edge in edges:
            shares = share_text(edge["share_of_source"]), share_text(edge["share_of_target"])
            row = [f"{edge['boundary_mm']:.2f}", *shares, str(edge["contacts"])]
            assert cells(text, f"{edge['source']} – {edge['target']}")[number] == row
    assert "Piece 1" in page.texts
    assert "Piece 2" in page.texts
    assert "Piece 1" not in reported(results / "one").texts


def test_quality_and_warnings_are_told(results):
    folder = results / "one"
    change(folder / "summary.json", lambda it: it.update(warnings=[]))
    assert "No warnings." in reported(folder).text

    def soil(it):
        it["warnings"] = ["pen marks on 3.0% of tissue"]
        it["quality"].update(pen=True, pen_score=0.0312)

    change(folder / "summary.json", soil)
    page = reported(folder)
    assert page.texts.count("pen marks on 3.0% of tissue") == 2
    assert cells((folder / "report.html").read_text(), "Pen marks") == [["warning", "0.031"]]


def test_the_networks_relations_are_shown_as_what_it_used(results):
    folder = results / "one"
    change(folder / "graph.json", lambda it: it.update(network=None))
    assert "What the network used" not in reported(folder).text
    names = document(folder / "summary.json")["classes"]
    relations = network_relations(names)
    change(folder / "graph.json", lambda it: it.update(network=relations))
    page = reported(folder)
    assert "means over those of 7 windows that have the edge" in page.text
    assert "This is what was used." in page.text
    assert "not used by this model" not in page.text
    one, other = names[-1], names[-2]
    layers = [layer[-1][-2] for layer in relations["attention"]]
    row = [f"{value:.3f}" for value in (sum(layers) / 2, *layers)]
    row += [str(relations["edge_windows"][-1][-2]), "0.750 at (42, 45)", f"{relations['edge_weight'][-1][-2]:.3f}"]
    assert cells((folder / "report.html").read_text(), f"{one} → {other}") == [row]
    summing = {"attention": [], "edge_weight": None, "strongest_windows": []}
    change(folder / "graph.json", lambda it: it.update(network={**relations, **summing}))
    texts = {*reported(folder).texts}
    unused = {"Attention: not used by this model.", "Edge weights: not used by this model."}
    assert unused | {"No relation between two tissues was used."} <= texts


def test_hostile_names_and_texts_stay_texts(results):
    folder = results / "one"

    def spoil(it):
        it["slide_id"] = HOSTILE
        it["warnings"] = [HOSTILE]
        it["model"]["name"] = HOSTILE
        it["options"][HOSTILE] = HOSTILE
        it["grid"]["slide"]["reader"] = HOSTILE
        it["pieces"][0]["measurements"]["deep_clearance"].update(value=None, reason=HOSTILE, line_px=None)

    change(folder / "summary.json", spoil)

    def spoil_graph(it):
        it["slide_id"] = HOSTILE
        it["pieces"][0]["text"] = [HOSTILE]
        for node in it["pieces"][0]["graph"]["nodes"]:
            if node["kind"] == "tissue":
                node["title"] = HOSTILE

    change(folder / "graph.json", spoil_graph)
    page = reported(folder)
    assert page.texts.count(HOSTILE) >= 5
    assert "script" not in page.tags


def test_a_slide_without_tissue_has_a_report_too(results):
    folder = results / "one"

    def clear(it):
        it.update(pieces=[], warnings=["no tissue found"], tissue_area_mm2=0.0)
        it["areas_mm2"] = dict.fromkeys(it["areas_mm2"], 0.0)
        it["tissue_fractions"] = dict.fromkeys(it["tissue_fractions"])
        it["cancers"] = {}

    change(folder / "summary.json", clear)
    change(folder / "graph.json", lambda it: it.update(pieces=[]))
    page = reported(folder)
    assert "No cancer was found." in page.text
    assert "No tissue was found." in page.text
    assert "There is no piece of tissue to measure." in page.text


def told(folder):
    """The texts of a report by their place: banner, headline, measured lines."""
    page = html.fromstring((folder / "report.html").read_text(encoding="utf-8"))
    banner, headline = (page.find_class(name) for name in ("banner", "headline"))
    return (
        words(banner[0]) if banner else "",
        words(headline[0]) if headline else "",
        page.xpath("//*[@class='marks']/*[local-name()='g']")[::2],
    )


def test_an_unfamiliar_slide_begins_with_why_and_calls_no_finding(tmp_path):
    folder = judged(tmp_path, STRANGE, {1: KNOWN, 2: STRANGE}, [(0, 0, 60, 60, 0.001)])
    page = reported(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    banner, headline, lines = told(folder)
    assert banner.startswith("This slide is unlike what the model knows: of 1,000 sections")
    assert "about 2 look as unlike as this (p = 0.002)" in banner
    assert WHY in banner
    assert "measures similarity" in banner
    assert headline == "Cancers: not assessed."
    assert lines == []
    assert text.index('class="banner"') < text.index('class="figures"')
    assert "No cancer was found" not in page.text
    assert "Not found: SCC" not in page.text
    assert "specks aside" not in page.text
    for number in ("1", "2"):
        assert cells(text, number)[0][1:5] == ["not assessed", *["not assessed unlike what the model knows"] * 3]
    assert "SCC (not assessed)" in {head for head, _ in rows(text, "Tissues")}
    assert rows(text, "Familiarity") == [
        ("Slide", ["unfamiliar", "0.002", "0.4", "0.03", "0.002"]),
        ("Piece 1", ["familiar", "0.61", "0.7", "0.61", "0.9"]),
        ("Piece 2", ["unfamiliar", "0.002", "0.4", "0.03", "0.002"]),
    ]
    (where,) = html.fromstring(text).find_class("where")
    picture = base64.b64decode(where.find("img").get("src").removeprefix("data:image/jpeg;base64,"))
    assert picture == (folder / "familiarity.jpg").read_bytes()


def test_an_unfamiliar_piece_alone_is_named_and_the_other_keeps_its_findings(tmp_path):
    folder = judged(tmp_path, KNOWN, {1: KNOWN, 2: STRANGE})
    page = reported(folder)
    banner, headline, lines = told(folder)
    assert banner.startswith("Piece 2 is unlike what the model knows")
    assert headline == ""
    assert "piece 2 not assessed" in page.text
    assert len(lines) == sum(
        each["line_px"] is not None
        for name, each in document(folder / "summary.json")["pieces"][0]["measurements"].items()
        if name != "orientation"
    )
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert cells(text, "1")[0][1].startswith("SCC")
    assert cells(text, "2")[0][1] == "not assessed"
    assert html.fromstring(text).find_class("where") == []
