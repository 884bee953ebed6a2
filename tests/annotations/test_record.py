import json

import pytest
from tests.annotations.small import annotate, box, drawn, import_annotations, rows

from ntrm.annotations.pairing import SlideFacts
from ntrm.core.errors import DataError, RefusedError
from ntrm.data.layouts import open_dataset
from ntrm.slides.readers.formats import open_slide


def written(out):
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in out.glob("*s/*.png")}


def test_a_second_run_leaves_what_is_complete_and_redoes_what_changed(folders):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5)
    before = written(out)
    again = import_annotations(slides, marks, out, mpp=0.5, facts={"a": SlideFacts(patient="P7"), "b": SlideFacts()})
    assert again.reused == ("a", "b")
    assert written(out) == before
    assert rows(out / "cases.csv")[0]["group"] == "P7"
    import_annotations(slides, marks, out, mpp=0.5, facts={"a": SlideFacts(patient="=P7"), "b": SlideFacts()})
    assert rows(out / "cases.csv")[0]["group"] == "'=P7"
    assert {case.name: case.group for case in open_dataset(out)} == {"a": "=P7", "b": "b"}
    annotate(marks / "b.geojson", drawn("KER", box(20, 20, 60, 60)))
    (out / "Masks" / "a.png").unlink()
    third = import_annotations(slides, marks, out, mpp=0.5)
    assert third.reused == ()
    assert third.imported[1].pixels["KER"] == 1600
    assert (out / "Masks" / "a.png").exists()


def test_with_other_options_every_case_is_made_anew(folders):
    slides, marks, out = folders
    annotate(marks / "b.geojson", drawn("Tumor", box(20, 20, 60, 60)))
    first = import_annotations(slides, marks, out, mpp=0.5)
    assert "--map" in first.failures[0].error.hint
    report = import_annotations(slides, marks, out, mpp=0.5, names={"Tumor": "BCC"})
    assert (report.reused, report.failures) == ((), ())
    assert report.imported[1].pixels["BCC"] == 1600
    assert json.loads((out / "provenance.json").read_text())["options"]["names"] == {"tumor": "BCC"}


@pytest.mark.parametrize("stranger", ["notes.txt", "Masks/x.png", "cases.csv"])
def test_a_folder_with_other_files_is_refused(folders, stranger):
    slides, marks, out = folders
    (out / "Masks").mkdir(parents=True)
    (out / stranger).write_text("mine")
    with pytest.raises(RefusedError, match="is no import"):
        import_annotations(slides, marks, out, mpp=0.5)
    assert (out / stranger).read_text() == "mine"
    assert not (out / ".lock").exists()


@pytest.mark.parametrize("text", ["{}", "[", '{"options": {}, "slides": [{"name": "a"}]}'])
def test_a_foreign_record_is_refused(folders, text):
    slides, marks, out = folders
    out.mkdir()
    (out / "provenance.json").write_text(text)
    with pytest.raises(RefusedError, match="not the record"):
        import_annotations(slides, marks, out, mpp=0.5)


def test_a_case_that_cannot_be_made_anew_is_taken_out(folders):
    """Its mask came from other annotations, its row from another table."""
    slides, marks, out = folders
    told = {"a": SlideFacts("P1", "train"), "b": SlideFacts("P2", "test")}
    import_annotations(slides, marks, out, mpp=0.5, facts=told)
    annotate(marks / "a.geojson", drawn("unheard of", box(40, 40, 100, 90)))
    told = {"a": SlideFacts("P1", "test"), "b": SlideFacts("P1", "test")}
    report = import_annotations(slides, marks, out, mpp=0.5, facts=told)
    assert (report.exit_code, [failure.slide for failure in report.failures]) == (1, ["a.png"])
    assert [tuple(row.values())[:4] for row in rows(out / "cases.csv")] == [("b", "P1", "test", "0.5")]
    assert [slide["name"] for slide in json.loads((out / "provenance.json").read_text())["slides"]] == ["b"]
    assert sorted(path.name for path in out.glob("*/*")) == ["b.png", "b.png"]


def test_cases_of_an_earlier_import_are_not_lost(folders):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5)
    before = written(out)
    (marks / "a.geojson").unlink()
    with pytest.raises(RefusedError, match="would lose") as refused:
        import_annotations(slides, marks, out, mpp=0.5)
    assert (refused.value.got, written(out)) == ("a", before)


def test_patients_of_some_slides_only_and_a_patient_in_two_splits_are_refused(folders):
    slides, marks, out = folders
    with pytest.raises(DataError, match="no patient told of b"):
        import_annotations(slides, marks, out, mpp=0.5, facts={"a": SlideFacts("P1")})
    with pytest.raises(DataError, match="match no slide"):
        import_annotations(slides, marks, out, mpp=0.5, facts={"c": SlideFacts("P1")})
    apart = {"a": SlideFacts("P1", "train"), "b": SlideFacts("P1", "test")}
    with pytest.raises(RefusedError, match=r"(?s)two splits.*the table of slides"):
        import_annotations(slides, marks, out, mpp=0.5, facts=apart)
    assert not (out / "cases.csv").exists()


def test_one_import_at_a_time_works_in_a_folder(folders):
    slides, marks, out = folders

    def second(path):
        """While the first import reads a slide."""
        with pytest.raises(RefusedError, match="another process works in"):
            import_annotations(slides, marks, out, mpp=0.5)
        return open_slide(path)

    report = import_annotations(slides, marks, out, mpp=0.5, open_slide=second)
    assert (len(report.imported), report.failures) == (2, ())
    assert [case.name for case in open_dataset(out)] == ["a", "b"]
