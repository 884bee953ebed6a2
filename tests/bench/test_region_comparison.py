"""What is compared is compared rightly: areas of outlines, of this package and of others."""

import numpy as np

from bench import region_comparison as bench
from ntrm.core.labels import IGNORE, SKIN


def test_our_outlines_have_the_areas_of_the_pixels(random):
    mask = np.kron(random.integers(0, len(SKIN), (9, 7)), np.ones((3, 2))).astype(np.uint8)
    mask[3:6, 2:4] = IGNORE
    rings = bench.ours(mask)
    assert bench.exact_areas(rings, mask)
    assert not bench.exact_areas([(tissue, ring * 0.9) for tissue, ring in rings], mask)
    assert {tissue for tissue, _ in rings} == {*bench.classes_of(mask)}


def test_a_library_that_is_missing_is_left_out(monkeypatch):
    mask = np.full((4, 4), SKIN.index("RET"), dtype=np.uint8)
    monkeypatch.setattr(bench, "WAYS", {"ours": (bench.ours, ""), "none": (bench.ours, "no-such-package")})
    ((name, cells),) = bench.compare({"a": mask}, rounds=1)
    assert name == "ours"
    assert len(cells) == 3
    assert cells[-1] == "yes"
