from pathlib import Path

import pytest

from ntrm.wsi.readers.reader import in_short


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("a.tif", "Can't validate JPEG 0", "Can't validate JPEG 0"),
        ("a.tif", "a.tif: Can't validate a page", "…: Can't validate a page"),
        ("in.tif", "invalid line in in.tif", "invalid line … …"),
        ("JD.tif", "in JD_map2.jpg, JD2.jpg and JD", "in …_map2.jpg, …2.jpg and …"),
        ("Jane Doe.svs", "no Jane Doe.svs, Jane Doe-journal", "no …, …-journal"),
        ("Ä.tif", "Ä.tif is no Änderung", "… is no Änderung"),
        ("a.tif", "/scans/a.tif: bad", "…: bad"),
        ("a.tif", "cannot open /else/where.tif", "cannot open "),
    ],
)
def test_errors_lose_the_files_name_and_no_part_of_a_word(name, said, expected):
    assert in_short(ValueError(said), Path("/scans") / name) == f"ValueError: {expected}"
