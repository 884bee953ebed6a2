import json
from dataclasses import replace

import pytest
from tests.annotations.small import annotate, box, drawn, import_annotations, rows

from ntrm.annotations import importing
from ntrm.annotations.pairing import SlideFacts
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import SKIN, LabelSchema
from ntrm.data.layouts import open_dataset
from ntrm.wsi.readers.formats import open_slide


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


def test_a_run_that_was_stopped_goes_on(folders, monkeypatch):
    slides, marks, out = folders

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(importing, "write_indexed_mask", stop)
        with pytest.raises(KeyboardInterrupt):
            import_annotations(slides, marks, out, mpp=0.5)
    assert list(out.glob("Masks/*")) == []
    report = import_annotations(slides, marks, out, mpp=0.5)
    assert [case.name for case in report.imported] == ["a", "b"]
    assert not list(out.rglob(".partial-*"))


@pytest.mark.parametrize(
    ("change", "word"),
    [({"target_mpp": 1.0}, "target_mpp = 1.0"), ({"margin_um": 3.0}, "margin_um"), ({"names": {"EPI": ""}}, "names")],
)
def test_options_are_never_mixed(folders, change, word):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5)
    with pytest.raises(RefusedError, match=word):
        import_annotations(slides, marks, out, **{"mpp": 0.5, **change})


def test_other_titles_or_colours_of_the_classes_are_other_options(folders):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5)
    first, *others = SKIN.tissues
    for change, word in (({"title": "skin"}, "titles"), ({"rgb": (1, 2, 3)}, "colours")):
        schema = LabelSchema((replace(first, **change), *others), SKIN.background)
        with pytest.raises(RefusedError, match=word):
            import_annotations(slides, marks, out, mpp=0.5, schema=schema)


def test_names_that_were_unknown_may_be_added_to_the_map(folders):
    slides, marks, out = folders
    annotate(marks / "b.geojson", drawn("Tumor", box(20, 20, 60, 60)))
    first = import_annotations(slides, marks, out, mpp=0.5)
    assert "--map" in first.failures[0].error.hint
    report = import_annotations(slides, marks, out, mpp=0.5, names={"Tumor": "BCC"})
    assert (report.reused, report.failures) == (("a",), ())
    assert report.imported[1].pixels["BCC"] == 1600
    assert json.loads((out / "provenance.json").read_text())["options"]["names"] == {"tumor": "BCC"}
    for other in ({"Tumor": "SCC"}, {}, {"Tumor": "BCC", "Stroma*": "RET"}):
        with pytest.raises(RefusedError, match="other options"):
            import_annotations(slides, marks, out, mpp=0.5, names=other)


@pytest.mark.parametrize("stranger", ["notes.txt", "Masks/x.png", "cases.csv"])
def test_a_folder_with_other_files_is_refused(folders, stranger):
    slides, marks, out = folders
    (out / "Masks").mkdir(parents=True)
    (out / stranger).write_text("mine")
    with pytest.raises(RefusedError, match="already holds"):
        import_annotations(slides, marks, out, mpp=0.5)
    assert (out / stranger).read_text() == "mine"
    assert not (out / ".lock").exists()


def test_a_run_that_was_killed_while_it_wrote_its_first_record_goes_on(folders):
    slides, marks, out = folders
    (out / "Masks").mkdir(parents=True)
    (out / ".partial-abc.json").write_text("{")
    assert import_annotations(slides, marks, out, mpp=0.5).exit_code == 0


@pytest.mark.parametrize("text", ["{}", "[", '{"options": {}, "slides": [{"name": "a"}]}'])
def test_a_foreign_record_is_refused(folders, text):
    slides, marks, out = folders
    out.mkdir()
    (out / "provenance.json").write_text(text)
    with pytest.raises(RefusedError, match="not the record"):
        import_annotations(slides, marks, out, mpp=0.5)


WRONG_KINDS = [("mpp", float("nan")), ("name", 3), ("counts", {"used": "many"}), ("width", None), ("group", "\ud800")]


@pytest.mark.parametrize(("key", "value"), WRONG_KINDS, ids=[key for key, _ in WRONG_KINDS])
def test_a_record_of_other_kinds_of_values_is_refused(folders, key, value):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5)
    record = json.loads((out / "provenance.json").read_text())
    record["slides"][0][key] = value
    (out / "provenance.json").write_text(json.dumps(record))
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


def test_a_stopped_run_has_told_all_patients(folders, monkeypatch):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5, facts=dict.fromkeys("ab", SlideFacts("P", "train")))
    annotate(marks / "b.geojson", drawn("KER", box(20, 20, 60, 60)))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "write_indexed_mask", stop)
    with pytest.raises(KeyboardInterrupt):
        import_annotations(slides, marks, out, mpp=0.5, facts=dict.fromkeys("ab", SlideFacts("P", "test")))
    assert [row["split"] for row in rows(out / "cases.csv")] == ["test", "test"]


def test_cases_without_a_slide_are_kept_and_named(folders):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5, facts={"a": SlideFacts("P1", "train"), "b": SlideFacts("P2")})
    (slides / "a.png").unlink()
    (marks / "a.geojson").unlink()
    report = import_annotations(slides, marks, out, mpp=0.5, facts={"b": SlideFacts("P1", "train")})
    assert (report.kept, report.exit_code) == (("a",), 0)
    before = (out / "cases.csv").read_text()
    assert [line[:14] for line in before.splitlines()[1:]] == ["a,P1,train,0.5", "b,P1,train,0.5"]
    with pytest.raises(RefusedError, match=r"(?s)patient P1 is in two splits.*a in train and b in test"):
        import_annotations(slides, marks, out, mpp=0.5, facts={"b": SlideFacts("P1", "test")})
    assert (out / "cases.csv").read_text() == before


def table(out):
    return [tuple(row.values())[:4] for row in rows(out / "cases.csv")]


def test_what_a_table_told_holds_until_another_one_tells_otherwise(folders):
    slides, marks, out = folders
    told = {"a": SlideFacts("P1", "train", 0.5), "b": SlideFacts("P1", "train", 0.5)}
    first = import_annotations(slides, marks, out, facts=told)
    assert first.remembered == ()
    again = import_annotations(slides, marks, out)  # the files do not say their µm/px, either
    assert (again.remembered, again.reused) == (("a", "b"), ("a", "b"))
    assert table(out) == [("a", "P1", "train", "0.5"), ("b", "P1", "train", "0.5")]
    moved = {name: SlideFacts(split="test") for name in "ab"}
    assert import_annotations(slides, marks, out, facts=moved).remembered == ("a", "b")
    assert table(out) == [("a", "P1", "test", "0.5"), ("b", "P1", "test", "0.5")]
    own = {name: SlideFacts(name) for name in "ab"}
    assert import_annotations(slides, marks, out, facts=own).remembered == ("a", "b")
    assert table(out) == [("a", "a", "test", "0.5"), ("b", "b", "test", "0.5")]


def test_a_table_of_splits_alone_cannot_tear_a_patient_apart(folders):
    slides, marks, out = folders
    import_annotations(slides, marks, out, mpp=0.5, facts=dict.fromkeys("ab", SlideFacts("P1", "train")))
    apart = {"a": SlideFacts(split="train"), "b": SlideFacts(split="test")}
    with pytest.raises(RefusedError, match=r"(?s)patient P1 is in two splits.*a in train and b in test"):
        import_annotations(slides, marks, out, mpp=0.5, facts=apart)


def test_patients_of_some_slides_only_and_a_patient_in_two_splits_are_refused(folders):
    slides, marks, out = folders
    with pytest.raises(DataError, match="no patient told of b"):
        import_annotations(slides, marks, out, mpp=0.5, facts={"a": SlideFacts("P1")})
    apart = {"a": SlideFacts("P1", "train"), "b": SlideFacts("P1", "test")}
    with pytest.raises(RefusedError, match=r"(?s)two splits.*the table of slides"):
        import_annotations(slides, marks, out, mpp=0.5, facts=apart)
    assert not (out / "cases.csv").exists()


def test_where_patients_were_told_those_of_new_slides_must_be(folders):
    slides, marks, out = folders
    good = (marks / "b.geojson").read_text()
    (marks / "b.geojson").write_text("{")  # fails, so that nothing is kept of it
    import_annotations(slides, marks, out, mpp=0.5, facts=dict.fromkeys("ab", SlideFacts("P1")))
    (marks / "b.geojson").write_text(good)
    with pytest.raises(DataError, match=r"(?s)patients of some slides are known.*no patient told of b"):
        import_annotations(slides, marks, out, mpp=0.5)
    assert table(out) == [("a", "P1", "", "0.5")]


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
