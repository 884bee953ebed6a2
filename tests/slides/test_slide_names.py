from pathlib import PurePosixPath

from ntrm.slides.slide_folders import LeftOut


def slides_among(*names):
    left_out = LeftOut()
    return [str(name) for name in left_out.slides_among(map(PurePosixPath, names))], left_out


def test_files_that_could_be_images_and_end_otherwise_are_told():
    slides, left_out = slides_among("a.svs", "b.CZI", "x/c.czi", "d.vsi", "e.bmp", ".e.gif", ".x/f.webp", "g.zip")
    assert slides == ["a.svs"]
    assert left_out.notes(names=True) == [
        "left out by their endings: 5 files (.bmp, .czi, .vsi, .zip); name those that are slides themselves"
    ]


def test_what_lies_beside_every_slide_is_not():
    beside = ("a.csv", "a.txt", "a.JSON", "a.xml", "a.geojson", "a.md", "s/Slidedat.ini", "s/Data0001.dat", "README")
    slides, left_out = slides_among("s.mrxs", *beside, "1.2.840.10008", "Doe, Jane. born 1950", "._s.mrxs")
    assert slides == ["s.mrxs"]
    assert left_out.notes(names=True) == []


def test_without_names_no_part_of_one_is_told():
    _, left_out = slides_among("Jane.Doe", "b.czi")
    assert left_out.notes(names=False) == ["left out by their endings: 2 files; name those that are slides themselves"]
