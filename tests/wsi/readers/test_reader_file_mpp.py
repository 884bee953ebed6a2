"""µm per pixel as files state them, in every unit, believed only where a microscope could have them."""

import pytest

from ntrm.core.mpp import Resolution
from ntrm.wsi.readers.reader import believed, from_aperio, from_dots, from_ome, from_tags


class Tags(dict):
    def valueof(self, name, default=None):
        return self.get(name, default)


def test_units_of_ome_and_the_mpp_of_aperio():
    assert from_ome('<Pixels PhysicalSizeX="0.00025" PhysicalSizeXUnit="mm" PhysicalSizeY="250" '
                    'PhysicalSizeYUnit="nm">') == (0.25, 0.25)  # fmt: skip
    assert from_ome('<Pixels PhysicalSizeX="1" PhysicalSizeXUnit="pixel" PhysicalSizeY="1">') is None
    assert from_ome('<Plane PhysicalSizeX="1" PhysicalSizeY="1">') is None
    assert from_ome('<Pixels PhysicalSizeX="nan" PhysicalSizeY="1">') is None
    assert from_aperio("Aperio Image|AppMag = 20|MPP = 0.4990|Left = 1") == (0.499, 0.499)
    assert from_aperio("Other|MPP = 0.4990") is None


@pytest.mark.parametrize("stated", [None, (0.01, 0.01), (25.0, 25.0), (0.25, 10.0), (float("inf"), 1.0)])
def test_what_no_microscope_has_is_not_believed(stated):
    assert believed(stated) is None


def test_what_a_microscope_has_is_believed():
    assert believed((0.25, 0.5)) == Resolution(0.25, 0.5)


def test_tags_need_a_real_unit():
    per_cm = {"XResolution": (20_000, 1), "YResolution": (40_000, 2)}
    assert from_tags(Tags(per_cm, ResolutionUnit=3)) == (0.5, 0.5)
    assert from_tags(Tags(per_cm, ResolutionUnit=2)) == (1.27, 1.27)
    assert from_tags(Tags(per_cm, ResolutionUnit=1)) is None
    assert from_tags(Tags(per_cm)) is None
    assert from_tags(Tags(per_cm, ResolutionUnit=3, XResolution=(5, 0))) is None
    assert from_tags(Tags(per_cm, ResolutionUnit=3, XResolution=(0, 5))) is None


def test_dots_per_inch():
    assert from_dots((2540, 5080), True) == (10.0, 5.0)
    assert from_dots((2540, 5080), False) is None
    assert from_dots((0, 5080), True) is None
    assert from_dots(None, True) is None
