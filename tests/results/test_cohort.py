import csv

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.results.cohort import MEASURES, read_cohort
from ntrm.results.tables import read_results


def rewrite(path, edit):
    """Change the rows of a table, each a dict."""
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        columns, rows = reader.fieldnames, list(reader)
    edit(rows)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)


def leave_out_one(rows):
    """Slide one is unlike what the model knows."""
    for row in rows:
        if row["slide_id"] == "one":
            row.update(familiarity="unfamiliar", cancer_SCC="not assessed", cancer_SCC_confidence="not assessed")


def test_slides_are_those_of_the_tables(results):
    cohort, tables = read_cohort(results), read_results(results)
    assert [slide.slide_id for slide in cohort.slides] == tables.slides.column("slide_id")
    assert [slide.slide_id for slide in cohort.failed] == ["broken"]
    assert cohort.tissues == ("EPI", "RET", "SCC")
    assert cohort.cancers == ("SCC",)
    for slide, row in zip(cohort.slides, tables.slides, strict=True):
        assert slide.tissue_area_mm2 == row["tissue_area_mm2"]
        assert slide.measures == {key: row[f"{key}_mm"] for key in MEASURES}
        assert slide.reason == (row["reason"] or "")
        if slide.done:
            assert slide.fractions == {name: row[f"fraction_{name}"] for name in cohort.tissues}
            assert slide.cancers == {"SCC": row["cancer_SCC_confidence"]}
            assert slide.tumour_fraction(["SCC"]) == row["fraction_SCC"]


def test_confidence_and_borders_add_up_over_regions_and_pieces(results):
    cohort, tables = read_cohort(results), read_results(results)
    for slide in cohort.done:
        own = [row for row in tables.regions if row["slide_id"] == slide.slide_id]
        values, areas = ([row[key] for row in own] for key in ("mean_confidence", "area_mm2"))
        assert slide.confidence == pytest.approx(np.average(values, weights=areas))
    beside = {}
    for row in tables.interfaces:
        pair = {row["tissue_a"], row["tissue_b"]}
        if "SCC" in pair and "outside" not in pair:
            (other,) = pair - {"SCC"}
            beside[other] = beside.get(other, 0) + row["boundary_mm"]
    assert beside
    assert cohort.neighbours == {"SCC": pytest.approx(beside)}


def test_reasons_come_from_the_pieces_each_once(results):
    def spoil(rows):
        for row in rows:
            row["deep_clearance_mm"], row["deep_clearance_reason"] = "", "fragmented"
        rows[-1]["lateral_clearance_reason"] = "no surface"

    rewrite(results / "pieces.csv", spoil)
    by_id = {slide.slide_id: slide for slide in read_cohort(results).slides}
    assert by_id["two"].reasons["deep_clearance"] == ["fragmented"]
    assert by_id["two"].reasons["lateral_clearance"] == ["no surface"]


@pytest.mark.parametrize("name", ["slides.csv", "pieces.csv", "regions.csv", "interfaces.csv"])
def test_missing_and_damaged_tables_are_told_with_what_to_do(results, name):
    path = results / name
    whole = path.read_bytes()
    for content in (b"", b"a,b\n1,2\n", b"\xff\xfe\x00"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=name) as found:
            read_cohort(results)
        assert "run the same ntrm segment again" in found.value.hint
    path.write_bytes(whole + b"," * 200 + b"x\n")
    with pytest.raises(DataError, match=f"{name} has a row with too many cells"):
        read_cohort(results)
    path.unlink()
    with pytest.raises(DataError, match=f"cannot read {name}"):
        read_cohort(results)


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", ".hidden", "..", "a/b"])
def test_a_slide_is_a_folder_of_the_results_and_nothing_else(results, name):
    rewrite(results / "slides.csv", lambda rows: rows[0].update(slide_id=name))
    with pytest.raises(DataError, match="damaged"):
        read_cohort(results)


def test_slides_and_pieces_that_are_not_assessed_count_for_no_statistic(results):
    borders = {row["piece"]: 0.0 for row in read_results(results).interfaces if row["slide_id"] == "two"}
    for row in read_results(results).interfaces:
        if row["slide_id"] == "two" and {"SCC", "RET"} == {row["tissue_a"], row["tissue_b"]}:
            borders[row["piece"]] += row["boundary_mm"]

    def leave_out_piece(rows):
        next(row for row in rows if (row["slide_id"], row["piece"]) == ("two", "2")).update(familiarity="unfamiliar")

    rewrite(results / "slides.csv", leave_out_one)
    rewrite(results / "pieces.csv", leave_out_piece)
    cohort = read_cohort(results)
    assert [slide.slide_id for slide in cohort.done] == ["one", "two"]
    assert [slide.slide_id for slide in cohort.assessed] == ["two"]
    assert cohort.done[0].cancers == {}
    assert cohort.neighbours["SCC"]["RET"] == pytest.approx(borders[1])


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ("slides", {"tissue_area_mm2": "much"}),
        ("regions", {"area_mm2": "inf"}),
        ("interfaces", {"boundary_mm": "much"}),
        ("interfaces", {"tissue_a": "SCC", "tissue_b": "XYZ"}),
    ],
)
def test_cells_that_make_no_sense_are_told(results, table, wrong):
    rewrite(results / f"{table}.csv", lambda rows: [row.update(wrong) for row in rows])
    with pytest.raises(DataError, match="damaged"):
        read_cohort(results)
