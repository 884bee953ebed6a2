"""µm per pixel as files state them, in every unit, believed only where a microscope could have them."""

from pathlib import Path

import numpy as np
import pytest

from ntrm.slides.readers.reader import ArrayCache, anonymous, mpp_from_aperio, mpp_from_ome, mpp_from_tags


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
    assert anonymous(ValueError(said), Path("/scans") / name) == f"ValueError: {expected}"


class Tags(dict):
    def valueof(self, name, default=None):
        return self.get(name, default)


def test_units_of_ome_and_the_mpp_of_aperio():
    assert mpp_from_ome('<Pixels PhysicalSizeX="0.00025" PhysicalSizeXUnit="mm" PhysicalSizeY="250" '
                    'PhysicalSizeYUnit="nm">', 1, 1) == (0.25, 0.25)  # fmt: skip
    assert mpp_from_ome('<Pixels PhysicalSizeX="1" PhysicalSizeXUnit="pixel" PhysicalSizeY="1">', 1, 1) is None
    assert mpp_from_ome('<Plane PhysicalSizeX="1" PhysicalSizeY="1">', 1, 1) is None
    assert mpp_from_ome('<Pixels PhysicalSizeX="nan" PhysicalSizeY="1">', 1, 1) is None
    assert mpp_from_aperio("Aperio Image|AppMag = 20|MPP = 0.4990|Left = 1") == (0.499, 0.499)
    assert mpp_from_aperio("Other|MPP = 0.4990") is None


def test_tags_need_a_real_unit():
    per_cm = {"XResolution": (20_000, 1), "YResolution": (40_000, 2)}
    assert mpp_from_tags(Tags(per_cm, ResolutionUnit=3)) == (0.5, 0.5)
    assert mpp_from_tags(Tags(per_cm, ResolutionUnit=2)) == (1.27, 1.27)
    assert mpp_from_tags(Tags(per_cm, ResolutionUnit=1)) is None
    assert mpp_from_tags(Tags(per_cm)) is None
    assert mpp_from_tags(Tags(per_cm, ResolutionUnit=3, XResolution=(5, 0))) is None
    assert mpp_from_tags(Tags(per_cm, ResolutionUnit=3, XResolution=(0, 5))) is None


def test_what_could_not_be_made_is_made_by_the_next_who_asks():
    cache = ArrayCache(1000)
    with pytest.raises(ZeroDivisionError):
        cache.get(1, lambda: 1 // 0)
    assert cache.get(1, lambda: np.ones(9))[0] == 1
