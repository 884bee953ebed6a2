"""Specimens: each biopsy in its range of sizes, and what its thickness means."""

import numpy as np
import pytest

from ntrm.core.labels import CANCERS
from ntrm.phantom.anatomy.specimen import SIZE_FACTORS, SpecimenParameters, draw_specimen


@pytest.mark.parametrize("cancer", CANCERS)
def test_sizes_stay_in_the_range_of_the_biopsy(seed, cancer):
    for number in range(seed, seed + 40):
        specimen = draw_specimen(number, cancer, SpecimenParameters())
        scale = SIZE_FACTORS[cancer]
        low, high = specimen.biopsy.length
        assert low <= 2 * specimen.half_um / scale <= high
        low, high = specimen.biopsy.thickness
        assert low <= specimen.depth_um / scale <= high
        # The arc must not close on itself, or one pixel would be two places of the skin.
        assert abs(specimen.frame.radius_um) > specimen.half_um * 2 / np.pi
        assert abs(specimen.frame.radius_um) > 2 * specimen.depth_um


def test_nothing_lies_beyond_the_ends(seed):
    specimen = draw_specimen(seed, "BCC", SpecimenParameters())
    beyond = np.abs(specimen.axis.u) >= specimen.half_um
    assert (specimen.thickness[beyond] < 0).all()
    assert (specimen.thickness[~beyond] >= 0).all()
    assert specimen.cut_at(0.0) == specimen.thickness[len(specimen.thickness) // 2]


def test_always_and_never(seed):
    always = SpecimenParameters(no_surface=1.0, fragmented=1.0, fold=1.0, hollow=1.0)
    never = SpecimenParameters(no_surface=0.0, fragmented=0.0, fold=0.0, hollow=0.0)
    for number in range(seed, seed + 10):
        odd, plain = draw_specimen(number, "SCC", always), draw_specimen(number, "SCC", never)
        assert odd.has_surface == (odd.biopsy.name == "shave") == odd.fragmented
        assert odd.frame.fold is not None
        assert odd.frame.radius_um < 0
        assert plain.has_surface
        assert not plain.fragmented
        assert plain.frame.fold is None
        assert plain.frame.radius_um > 0
