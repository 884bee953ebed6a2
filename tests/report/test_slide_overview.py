import csv
import shutil
from urllib.parse import quote

import numpy as np
import pytest
from lxml import html
from tests.correct.test_results import box, named
from tests.helpers import is_held
from tests.report.pages import HOSTILE, check_safe, rows, words
from tests.results.test_cohort import leave_out_one, rewrite

from ntrm.core.wording import area_text
from ntrm.correct.mask import open_mask
from ntrm.correct.results import write_corrected
from ntrm.report import slide_overview, slide_report
from ntrm.report.html import confidence_text
from ntrm.report.slide_overview import MOST_BYTES, borders, composition, histogram, remake_reports, write_overview
from ntrm.results.cohort import CohortSlide
from ntrm.results.tables import read_results


def slide_rows(text):
    """Cells of the table of slides, by name."""
    return dict(rows(text, "Slides"))


def overview(out):
    text = write_overview(out).read_text(encoding="utf-8")
    return check_safe(text), text


def test_slides_have_their_numbers_and_links_and_failures_their_reasons(results):
    page, text = overview(results)
    table = read_results(results).slides
    shown = slide_rows(text)
    done = [row for row in table if row["status"] == "done"]
    assert list(shown) == [row["slide_id"] for row in done]
    for row in done:
        cells = shown[row["slide_id"]]
        assert cells[1] == f"SCC ({confidence_text(row['cancer_SCC_confidence'])})"
        assert cells[2] == area_text(row["tissue_area_mm2"])
        for cell, key in zip(cells[4:7], ("deep_clearance", "lateral_clearance", "invasion_depth"), strict=True):
            value = row[f"{key}_mm"]
            assert cell.startswith("–") if value is None else cell == f"{value:.2f} mm"
        assert cells[7] == str(row["pieces"])
    links = [link for link in page.links if not link.startswith("data:")]
    assert links == [f"{row['slide_id']}/report.html" for row in done]
    failed = next(row for row in table if row["status"] == "failed")
    assert failed["reason"] in page.text
    assert sum(link.startswith("data:image/jpeg") for link in page.links) == len(done)
    rewrite(results / "pieces.csv", lambda pieces: pieces[0].update(deep_clearance_reason="torn"))
    rewrite(results / "slides.csv", lambda slides: [slide.update(deep_clearance_mm="1.5") for slide in slides])
    assert slide_rows(overview(results)[1])["one"][4] == "1.50 mm not assessed in other pieces: torn"


def test_missing_reports_thumbnails_and_masks_only_leave_gaps(results):
    (results / "one" / "report.html").unlink()
    (results / "one" / "mask.ome.tif").write_bytes(b"damaged")
    (results / "one" / "thumbnail.jpg").write_bytes(b"\xff\xd8\xff" + bytes(MOST_BYTES))
    (results / "two" / "thumbnail.jpg").write_bytes(b"no picture")
    page, text = overview(results)
    assert page.links == ["two/report.html"]
    assert list(slide_rows(text)) == ["one", "two"]
    assert "--t0:#5a1478;" in text


def test_hostile_names_and_reasons_stay_texts(results):
    hostile = HOSTILE.replace("/", "%2e")  # a name of a folder

    def spoil(found):
        for row in found:
            row.update(slide_id=hostile if row["slide_id"] == "one" else row["slide_id"], warnings=hostile)
            row["reason"] = hostile if row["status"] == "failed" else ""

    shutil.move(results / "one", results / hostile)
    rewrite(results / "slides.csv", spoil)
    page, _ = overview(results)
    assert page.texts.count(hostile) >= 4
    assert f"{quote(hostile, safe='')}/report.html" in page.links
    assert "script" not in page.tags


def test_many_slides_stay_a_small_page(results, random):
    with (results / "slides.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    like = next(row for row in found if row["slide_id"] == "two")
    names = [f"s{k}" for k in range(400)]
    for name in names:
        (results / name).mkdir()
        (results / name / "thumbnail.jpg").write_bytes(b"\xff\xd8\xff" + random.bytes(MOST_BYTES - 3))
    rewrite(results / "slides.csv", lambda old: old.__setitem__(slice(None), [{**like, "slide_id": n} for n in names]))
    page, text = overview(results)
    assert len(text) < 400 * (8000 + 2000) + 200_000
    assert sum(link.startswith("data:image/jpeg") for link in page.links) == 400


TISSUES = ("EPI", "RET", "SCC")


def slide(name, fractions):
    shares = dict(zip(TISSUES, fractions, strict=True))
    return CohortSlide(name, True, "", "", 1, 1.0, shares, {}, {}, {}, None)


def slides(random, count):
    return [slide(f"s{k:04d}", random.dirichlet([1, 2, 1])) for k in range(count)]


def stops(text):
    """Tissues with where their parts of a bar begin and end, in percent."""
    return [(TISSUES[int(one[7])], *(float(n.rstrip("%")) for n in one.split()[1:])) for one in text.split(",")]


def test_columns_are_stacked_by_share_most_cancer_first(random):
    found = slides(random, 7)
    order = sorted(found, key=lambda one: -one.fractions["SCC"])
    drawn = composition(found, TISSUES, ("SCC",))
    assert [name for name, _ in drawn["columns"]] == [one.slide_id for one in order]
    for one, (_, text) in zip(order, drawn["columns"], strict=True):
        parts = stops(text)
        assert [name for name, _, _ in parts] == ["SCC", "EPI", "RET"]
        assert (parts[0][1], parts[-1][2]) == (0, 100)
        for name, start, end in parts:
            assert end - start == pytest.approx(100 * one.fractions[name], abs=0.11)


def test_bins_are_those_of_numpy(random):
    for _ in range(50):
        values = random.exponential(10 ** random.uniform(-3, 2), int(random.integers(1, 60))).tolist()
        drawn = histogram(values)
        counts = [count for _, count, _ in drawn]
        step = float(drawn[1][0]) if len(drawn) > 1 else 1.0
        expected, _ = np.histogram(values, bins=np.arange(len(counts) + 1) * step)
        assert counts == expected.tolist()
        assert sum(counts) == len(values)
        assert len(counts) <= 18
        assert [height for _, _, height in drawn] == pytest.approx([100 * count / max(counts) for count in counts])
    assert histogram([0.0, 0.0]) == [("0", 2, 100.0)]


def test_borders_are_fractions_of_each_cancers_boundary():
    ((cancer, text, words),) = borders({"SCC": {"EPI": 1.0, "RET": 3.0}, "BCC": {}, "IEC": {"EPI": 0.0}}, TISSUES)
    assert (cancer, words) == ("SCC", ["RET 75.0%", "EPI 25.0%"])
    assert stops(text) == [("RET", 0, 75), ("EPI", 75, 100)]


def pages(out):
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.html"))}


def test_all_pages_are_made_again(results):
    first = remake_reports(results)
    before = pages(results)
    assert set(before) == {"index.html", "one/report.html", "two/report.html"}
    for path in results.rglob("*.html"):
        path.unlink()
    assert remake_reports(results) == first
    assert pages(results) == before
    assert first.reported == ("one", "two")
    assert first.without_results == ("broken",)


def test_a_slide_that_cannot_be_reported_does_not_stop_the_others(results):
    (results / "one" / "summary.json").write_text("{")
    (results / "one" / "report.html").unlink(missing_ok=True)
    found = remake_reports(results)
    ((name, reason),) = (failure.values() for failure in found.failures)
    assert name == "one"
    assert "cannot read summary.json" in reason
    assert "run the same ntrm segment again" in reason
    assert found.reported == ("two",)
    assert "one/report.html" not in (results / "index.html").read_text()


def test_slides_that_are_not_assessed_are_counted_and_left_out_of_the_plots(results):
    before, _ = overview(results)
    assert "Cancers found: SCC on 2." in before.text
    assert "Cancers not assessed" not in before.text

    rewrite(results / "slides.csv", leave_out_one)
    text = write_overview(results).read_text(encoding="utf-8")
    page = check_safe(text)
    assert "Cancers found: SCC on 1." in page.text
    assert (
        "Cancers were not assessed on 1 slide, and no plot below counts it: unlike what the model knows, without a "
        "piece of tissue that is large enough, or with tumour in crumbs (fragments below 0.1 mm²) only." in page.text
    )
    assert "Cancers not assessed 1" in page.text
    assert slide_rows(text)["one"][1] == "not assessed"
    assert slide_rows(text)["two"][1].startswith("SCC")
    columns = html.fromstring(text).find_class("columns")[0]
    assert [words(column) for column in columns] == ["two"]


def test_nobody_replaces_what_a_page_shows_while_it_is_made(results, monkeypatch):
    """The page of a corrected version, or of the tables, would stand beside what is newer than it is."""
    mask = open_mask(results / "one")
    named(mask, box(mask, 70, 40, 10, 10), "EPI")
    write_corrected(mask)
    held = []

    def watch(module, name, lock):
        real = getattr(module, name)

        def watched(place, *given, **more):
            held.append((place.relative_to(results).as_posix(), is_held(results / lock)))
            return real(place, *given, **more)

        monkeypatch.setattr(module, name, watched)

    watch(slide_report, "write_page", "one/.ntrm/corrected.lock")
    watch(slide_overview, "read_cohort", ".lock")
    watch(slide_overview, "write_page", ".lock")
    assert remake_reports(results).failures == ()
    pages = [("one/report.html", False), ("one/corrected/report.html", True), ("two/report.html", False)]
    assert sorted(held) == sorted([*pages, (".", True), (".", True), ("index.html", True)])
