import csv
import re
import shutil

import pytest
from tests.report.segmented import check_safe
from tests.report.test_cohort import rewrite

from ntrm.core.errors import DataError
from ntrm.report.formatting import area_text, confidence_text
from ntrm.report.slide_overview import MOST_BYTES, write_overview
from ntrm.results.tables import read_results


def rows(text):
    """Cells of the table of slides, by name."""
    table = text.rpartition("<h2>Slides</h2>")[2].partition("</table>")[0]
    found = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", table)
    plain = [(re.sub(r"<.*?>", "", head), re.findall(r"<td.*?>(.*?)</td>", rest)) for head, rest in found]
    return {head: [re.sub(r"<.*?>", " ", cell).strip() for cell in cells] for head, cells in plain}


def overview(out):
    text = write_overview(out).read_text(encoding="utf-8")
    return check_safe(text), text


def test_slides_have_their_numbers_and_links_and_failures_their_reasons(results):
    page, text = overview(results)
    table = read_results(results).slides
    shown = rows(text)
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


def test_missing_reports_thumbnails_and_masks_only_leave_gaps(results):
    (results / "one" / "report.html").unlink()
    (results / "one" / "mask.ome.tif").write_bytes(b"damaged")
    (results / "one" / "thumbnail.jpg").write_bytes(b"\xff\xd8\xff" + bytes(MOST_BYTES))
    (results / "two" / "thumbnail.jpg").write_bytes(b"no picture")
    page, text = overview(results)
    assert page.links == ["two/report.html"]
    assert list(rows(text)) == ["one", "two"]
    assert "--t0:#5a1478;" in text


def test_hostile_names_and_reasons_stay_texts(results):
    hostile = '"><script>alert(1)<' + "%2e&"

    def spoil(found):
        for row in found:
            row.update(slide_id=hostile if row["slide_id"] == "one" else row["slide_id"], warnings=hostile)
            row["reason"] = hostile if row["status"] == "failed" else ""

    shutil.move(results / "one", results / hostile)
    rewrite(results / "slides.csv", spoil)
    page, _ = overview(results)
    assert page.texts.count(hostile) >= 4
    assert "%22%3E%3Cscript%3Ealert%281%29%3C%252e%26/report.html" in page.links


def test_the_same_tables_give_the_same_bytes(results):
    assert write_overview(results).read_bytes() == write_overview(results).read_bytes()


def test_a_folder_of_failures_alone_has_an_overview(results):
    rewrite(results / "slides.csv", lambda found: found.__delitem__(slice(1, None)))
    assert read_results(results).slides.column("status") == ["failed"]
    page, _ = overview(results)
    assert "Tissue composition" not in page.text
    assert "broken" in page.text


def test_an_empty_table_has_an_overview(results):
    rewrite(results / "slides.csv", list.clear)
    page, _ = overview(results)
    assert "Slides done" in page.text


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
    assert "This page: " in page.text


def test_without_results_there_is_no_overview(tmp_path):
    with pytest.raises(DataError, match="holds no results"):
        write_overview(tmp_path)
    assert list(tmp_path.iterdir()) == []
