from pathlib import Path

import pytest

from ntrm.annotations.pairing import (
    SlideFacts,
    case_name,
    check_names,
    class_index,
    pair_files,
    read_names,
    read_slide_facts,
)
from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue
from ntrm.data.csv_tables import is_good_name


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("S1.svs", "S1"),
        ("S1.svs.geojson", "S1"),
        ("S1.OME.TIF", "S1"),
        ("mole é/1.png", "1"),
        ("mole e\u0301 1.png", "mole é 1"),
        ("a:b\x1bc.png", "a_b_c"),
        ("-x.png", "_-x"),
        ("ends..svs", "ends"),
        ("ü" * 120 + ".svs", "ü" * 95),
    ],
)
def test_names(file, name):
    assert case_name(Path(file)) == name
    assert is_good_name(name)


def test_pairs_by_name(tmp_path):
    slides = touch(tmp_path / "slides", "A.svs", "b.ome.tif", "c.png", "notes.txt", ".d.png")
    drawn = touch(tmp_path / "drawn", "a.geojson", "b.geojson.gz", "x.json")
    found = pair_files(slides, drawn)
    assert [(p.name, p.slide.name, p.annotations.name) for p in found.pairs] == [
        ("A", "A.svs", "a.geojson"),
        ("b", "b.ome.tif", "b.geojson.gz"),
    ]
    assert [p.name for p in found.slides_alone] == ["c.png"]
    assert [p.name for p in found.annotations_alone] == ["x.json"]


def test_nothing_to_pair(tmp_path):
    slides, drawn = touch(tmp_path / "slides", "a.svs"), touch(tmp_path / "drawn", "b.geojson")
    with pytest.raises(DataError, match="no slide has annotations"):
        pair_files(slides, drawn)
    with pytest.raises(DataError, match="no GeoJSON files"):
        pair_files(slides, slides)
    with pytest.raises(UsageError, match="no such file"):
        pair_files(tmp_path / "none", drawn)


@pytest.mark.parametrize(
    ("name", "index"),
    [("BCC", 9), ("bcc", 9), ("Basal Cell Carcinoma", 9), ("nodular", 9), ("Artefact", IGNORE), ("Region*", IGNORE)],
)
def test_classes_by_name_title_or_renaming(name, index):
    renamed = check_names({"Nodular": "BCC", "artefact": ""}, SKIN)
    assert class_index(name, SKIN, renamed) == index


def test_a_name_in_any_case_comes_before_a_title_and_what_could_be_several_is_unknown():
    texts = [("RET", "dermis"), ("Dermis", "whole dermis"), ("PAP", "upper"), ("pap", "Upper")]
    schema = LabelSchema(tuple(Tissue(k, name, title, (k, k, k)) for k, (name, title) in enumerate(texts)))
    assert [class_index(name, schema, {}) for name in ("dermis", "Dermis", "DERMIS", "Whole dermis")] == [1, 1, 1, 1]
    assert [class_index(name, schema, {}) for name in ("PAP", "pap", "Pap", "upper")] == [2, 3, None, None]
    assert class_index("upper", schema, check_names({"Upper": "PAP"}, schema)) == 2


def test_tables(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("\ufefffrom,to,why\n Tumour , BCC,x\nArtefact,,\n", encoding="utf-8")
    assert read_names(table) == {"Tumour": "BCC", "Artefact": ""}
    table.write_text("slide,patient,split,mpp\nA b.svs,P1,train,0.5\nc,,,\n")
    assert read_slide_facts(table) == {"a b": SlideFacts("P1", "train", 0.5), "c": SlideFacts()}
    table.write_text("slide,split\na,train\n")
    assert read_slide_facts(table) == {"a": SlideFacts(split="train")}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name,patient\na,b\n", DataError),
        ("slide,split\na,trian\n", UsageError),
        ("slide,mpp\na,half\n", DataError),
        ("slide,mpp\na,500\n", RefusedError),
        ("", DataError),
        ("slide,patient\na.svs,P\nA.tif,Q\n", DataError),
        ("slide,split,group\n", DataError),
    ],
)
def test_broken_tables_are_refused(tmp_path, text, error):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(error) as caught:
        read_slide_facts(tmp_path / "t.csv")
    assert caught.value.expected
