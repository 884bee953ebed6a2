"""Dataset folders as cases: layouts, patients, splits, resolutions."""

import re
import unicodedata
from collections import Counter

import pytest
from tests.data.broken import CLASSES, mask, save, sound_plain, sound_queensland

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.check import check_dataset
from ntrm.data.layouts import SKIN_SECTIONS, cancer_of, open_dataset, patient_of


def test_plain(tmp_path):
    sound_plain(tmp_path)
    (tmp_path / "cases.csv").write_text(
        "name,group,split,mpp,mpp_y,cancer\na,p1,train,0.5,,\nb,p2,,0.25,0.26,BCC\n", encoding="utf-8-sig"
    )
    dataset = open_dataset(tmp_path)
    a, b = dataset.cases
    assert (dataset.layout, dataset.schema.names) == ("plain", ("background", "gland", "stroma"))
    assert (a.name, a.group, a.split, a.resolution) == ("a", "p1", "train", Resolution(0.5, 0.5))
    assert (b.split, b.resolution, b.cancer, b.level) == (None, Resolution(0.25, 0.26), "BCC", "")
    assert a.image == tmp_path / "Images/a.png"
    assert a.mask == tmp_path / "Masks/a.png"


def test_names_may_have_spaces_and_umlauts_however_a_system_spells_them(tmp_path):
    sound_plain(tmp_path)
    spellings = {form: unicodedata.normalize(form, "Präparat 2 (links)") for form in ("NFC", "NFD")}
    (tmp_path / "Images/b.png").rename(tmp_path / f"Images/{spellings['NFD']}.png")
    (tmp_path / "Masks/b.png").rename(tmp_path / f"Masks/{spellings['NFC']}.png")
    (tmp_path / "cases.csv").write_text(f"name,group,split,mpp\na,p,,0.5\n{spellings['NFD']},Müller,,0.5\n")
    assert check_dataset(tmp_path).clean
    table = tmp_path / "split.csv"
    table.write_text(f"name,split\na,train\n{spellings['NFD']},test\n")
    (case,) = open_dataset(tmp_path, splits=table).in_split("test")
    assert (case.name, case.group) == (spellings["NFC"], "Müller")


@pytest.mark.parametrize("data", ["", "data"])
def test_queensland(tmp_path, data):
    sound_queensland(tmp_path, names=("BCC_10", "BCC_2", "BCC_19", "BCC_21", "IEC_1"), data=data)
    dataset = open_dataset(tmp_path)
    assert (dataset.layout, dataset.schema, dataset.levels) == ("queensland", SKIN, ("10x", "5x"))
    coarse = open_dataset(tmp_path, resolution="10x")
    assert [case.name for case in coarse] == ["BCC_2", "BCC_10", "BCC_19", "BCC_21", "IEC_1"]
    assert {case.resolution for case in coarse} == {Resolution(6.7, 6.7)}
    group = {case.name: case.group for case in coarse}
    assert group["BCC_19"] == group["BCC_21"] != group["BCC_10"]
    assert {case.cancer for case in coarse} == {"BCC", "IEC"}


@pytest.mark.parametrize("folder", ["", "Masks", "10x/Masks"])
def test_masks_alone(tmp_path, folder):
    for name in ("BCC_11_0001", "BCC_11_0002", "IEC_3_0001"):
        save(tmp_path / folder / f"{name}.png", SKIN.colourise(mask()))
    dataset = open_dataset(tmp_path)
    assert (dataset.layout, dataset.schema) == ("masks", SKIN)
    assert [case.group for case in dataset] == ["BCC_11-12", "BCC_11-12", "IEC_2-3"]
    assert {case.image for case in dataset} == {None}
    assert {case.resolution for case in dataset} == {Resolution(6.7, 6.7) if "10x" in folder else None}
    save(tmp_path / "indexed" / "a.png", mask())
    with pytest.raises(DataError, match=re.escape("classes.csv")):
        open_dataset(tmp_path / "indexed")
    (tmp_path / "indexed" / "classes.csv").write_text(CLASSES)
    assert len(open_dataset(tmp_path / "indexed").schema) == 3


def test_what_is_no_dataset_gets_the_layouts_shown(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"(?s)layout queensland.*layout plain"):
        open_dataset(tmp_path)
    with pytest.raises(UsageError, match="no such dataset folder"):
        open_dataset(tmp_path / "nowhere")
    sound_plain(tmp_path)
    (tmp_path / "cases.csv").write_text("name,group,split,mpp\na,p,train,0.5\nb,p,test,0.5\n")
    with pytest.raises(RefusedError, match="p: a in train, b in test"):
        open_dataset(tmp_path)


def test_um_per_pixel_that_contradict_the_folder_are_a_fault(tmp_path):
    sound_queensland(tmp_path)  # at 10x and 5x
    table = tmp_path / "cases.csv"
    for text in ("", "6.7", "3.3"):
        table.write_text(f"name,group,split,mpp\nBCC_1,p,train,{text}\nSCC_2,q,test,\n")
        assert {case.resolution for case in open_dataset(tmp_path, resolution="10x")} == {Resolution.square(6.7)}
    table.write_text("name,group,split,mpp\nBCC_1,p,train,0.5\nSCC_2,q,test,\n")
    with pytest.raises(DataError, match=r"BCC_1: 0.5 µm/px, in a folder of 3.35 µm/px or 6.7 µm/px"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        ("BCC_1,p,val\n", RefusedError, "nothing about BCC_2, IEC_1"),
        ("BCC_1,p,val\nBCC_2,p,\nIEC_1,i,val\n", DataError, "unknown split"),
        ("BCC_1,p,val\nBCC_2,p,val\nIEC_1,i,val\nIEC_1,i,test\n", DataError, "mine.csv: sections listed twice"),
        ("BCC_1,p,val\nBCC_2,p,test\nIEC_1,i,val\n", RefusedError, "BCC_1 in val and BCC_2 in test"),
        ("BCC_1,p,val\nBCC_2,p,val\nIEC_1,p,test\n", RefusedError, "patient p is in two splits"),
        # Sections 1 and 2 are one patient, whatever the file calls them.
        ("BCC_1,p,val\nBCC_2,q,test\nIEC_1,i,val\n", RefusedError, "patient BCC_1-2 is in two splits"),
    ],
)
def test_an_unusable_split_file_is_refused(tmp_path, rows, kind, message):
    sound_queensland(tmp_path, names=("BCC_1", "BCC_2", "IEC_1"))
    (tmp_path / "mine.csv").write_text("name,group,split\n" + rows)
    with pytest.raises(kind, match=message):
        open_dataset(tmp_path, splits=tmp_path / "mine.csv")


SECTIONS = [f"{cancer}_{number}" for cancer, count in SKIN_SECTIONS.items() for number in range(1, count + 1)]


def test_the_dataset_has_as_many_sections_and_patients_as_published():
    assert len(SECTIONS) == 290
    patients = Counter(cancer_of(patient.split("-")[0]) for patient in {patient_of(name) for name in SECTIONS})
    # 140 BCC sections in 14 pairs and a triple, 60 SCC in 6 pairs, 90 IEC in 13 pairs, all others alone.
    assert patients == {"BCC": 140 - 14 - 2, "SCC": 60 - 6, "IEC": 90 - 13}
