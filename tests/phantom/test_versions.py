"""Versions of the phantom: the first never changes, the second has more of what real skin has."""

import hashlib
import platform
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.phantom.small import small

from ntrm.core.errors import UsageError
from ntrm.core.labels import CANCERS, SKIN
from ntrm.phantom.anatomy.dermis import DermisParameters
from ntrm.phantom.anatomy.epithelium import EpidermisParameters, SurfaceParameters
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.layout import NO_SURFACE, NO_TUMOUR, layout, paint_section
from ntrm.phantom.render import render
from ntrm.phantom.tissues import FINE, KINDS, codes_of, fine_mask, labels_of
from ntrm.phantom.versions import DEFAULT_VERSION, VERSIONS, Anatomy, VarietyParameters, Version

# Section 10 of each cancer, as it was drawn before there were versions: pixels of each label, mean colour of the
# picture, and the bytes of mask and picture with one set of libraries on one kind of processor.
FIRST_VERSION = {
    "BCC": (
        (4796, 0, 7966, 8026, 0, 3699, 0, 4781, 108594, 13254, 0, 0),
        (239.512, 213.601, 239.787),
        ("fb27af980e114f2e", "d77bd917b4db8aec"),
    ),
    "SCC": (
        (2417, 0, 28542, 19145, 0, 2936, 0, 26614, 147072, 0, 23218, 5080),
        (239.019, 197.005, 236.179),
        ("5a8e9d759b056a55", "02bbc4f0ce18dd87"),
    ),
    "IEC": (
        (6369, 0, 6883, 29346, 744, 9158, 0, 5777, 135792, 0, 0, 4447),
        (243.046, 217.233, 242.138),
        ("93608c95ea522dbe", "52c173999e8790a2"),
    ),
}
THERE = ("aarch64", "2.4.6")

CERTAIN = VarietyParameters(
    EpidermisParameters(cut_ridges=1.0, tangential=1.0, cyst=1.0),
    SurfaceParameters(woven=1.0, ulcer=1.0),
    DermisParameters(elastosis=1.0, oedema=1.0, scar=1.0, nerves_per_mm2=1.0),
)
"""Everything that may happen to a section happens."""


@pytest.fixture
def certain(monkeypatch):
    """A version in which everything happens, and with more adnexa."""
    skin = Anatomy()
    adnexa = replace(skin.adnexa, follicles_per_mm=1.0, sebaceous_fraction=1.0, glands_per_mm=0.8)
    details = replace(CERTAIN.adnexa, muscle_fraction=1.0, duct_fraction=1.0)
    anatomy = Anatomy(adnexa=adnexa, variety=replace(CERTAIN, adnexa=details))
    monkeypatch.setitem(VERSIONS, "certain", Version(anatomy, anatomy, VERSIONS["2"].looks))
    return "certain"


@pytest.mark.parametrize("cancer", FIRST_VERSION)
def test_version_1_is_what_it_always_was(cancer):
    counts, colour, hashes = FIRST_VERSION[cancer]
    section = layout(10, cancer=cancer)
    assert (DEFAULT_VERSION, section.version) == ("1", "1")
    assert np.array_equal(section.fine, section.mask)
    picture = render(section.fine, 6.7, 10, version="1")
    found = np.bincount(section.mask.ravel(), minlength=len(SKIN))
    assert np.abs(found - counts).sum() <= 1e-4 * found.sum()
    np.testing.assert_allclose(picture.reshape(-1, 3).mean(axis=0), colour, atol=0.05)
    if (platform.machine(), np.__version__) == THERE:
        assert tuple(hashlib.sha256(each.tobytes()).hexdigest()[:16] for each in (section.mask, picture)) == hashes


def test_an_unknown_version_is_refused():
    for draw in (lambda: layout(1, version="3"), lambda: render(np.zeros((4, 4), np.uint8), 6.7, 1, version="3")):
        with pytest.raises(UsageError, match="one of 1, 2"):
            draw()


def test_a_seed_is_the_same_specimen_in_both_versions(seed):
    one, two = (draw_plan(seed, "IEC", version) for version in ("1", "2"))
    assert (one.specimen.biopsy, one.specimen.half_um, one.specimen.frame) == (
        two.specimen.biopsy,
        two.specimen.half_um,
        two.specimen.frame,
    )
    assert np.array_equal(one.specimen.thickness, two.specimen.thickness)


@pytest.mark.parametrize("version", VERSIONS)
def test_normal_sections_have_no_cancer_and_say_so(version, seed):
    section = layout(small(seed, "none"), cancer="none", version=version)
    truth = section.truth
    assert (section.cancer, truth.cancers) == ("none", ())
    assert not np.isin(section.mask, [SKIN.index(name) for name in CANCERS]).any()
    assert (truth.clearance_um, truth.clearance_reason) == (None, NO_TUMOUR)
    assert (truth.depth_um, truth.depth_reason) == (None, NO_TUMOUR)
    assert (truth.surface_deg is None) == (truth.surface_reason == NO_SURFACE)


def test_every_fine_tissue_occurs(certain, seed):
    found = Counter()
    for number in range(seed, seed + 6):
        plan = draw_plan(number, "none", certain)
        present = np.unique(paint_section(plan, 10.05).fine)
        found.update(name for name in FINE if np.isin(present, codes_of(name)).any())
        if set(found) == set(FINE):
            break
    assert set(found) == set(FINE)


@pytest.mark.parametrize("name", FINE)
def test_what_was_painted_over_is_forgotten(name):
    labels = np.arange(len(SKIN), dtype=np.uint8)
    fine = fine_mask(np.full(len(SKIN), KINDS[name]), labels)
    under = np.isin(labels, [SKIN.index(label) for label in FINE[name]])
    assert np.isin(fine[under], codes_of(name)).all()
    assert np.array_equal(fine[~under], labels[~under])
    assert np.array_equal(labels_of(fine), labels)
