"""An error of the bundled model in the tour: found, named, and what one click there would do."""

import numpy as np
import pytest
from tests.evaluation.small import NAMES, ByColour
from tests.segment.small import paint, write_slide

from ntrm.cli.tour import find_mistake, write_foreign
from ntrm.core.mpp import Resolution
from ntrm.correct.engine import seen_in
from ntrm.correct.mask import open_mask
from ntrm.data.image_files import read_image
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.segment.batch import segment_slides


@pytest.fixture
def slide(tmp_path, quick_readers):
    """What is painted on a slide, its file, and its results by a network that names what it sees."""
    painted = paint(np.random.default_rng(0))
    file = write_slide(tmp_path / "slides" / "a.tif", painted)
    segment_slides([file], out=tmp_path / "out", model=ByColour(), device="cpu", tissue_mask=False)
    return painted, file, tmp_path / "out"


def test_a_wrong_region_is_named_and_the_texture_of_its_slide_is_kept(slide):
    painted, file, out = slide
    truth = np.where(painted == NAMES.index("SCC"), NAMES.index("RET"), painted).astype(np.uint8)
    found = find_mistake(out, "a", file, truth)
    assert (found.slide_id, found.called, found.tissue) == ("a", "SCC", "RET")
    assert painted[found.y, found.x] == NAMES.index("SCC")
    assert found.area_mm2 == pytest.approx(20 * 30 * 6.7**2 / 1e6)
    assert found.changed_mm2 > 0
    assert found.after > found.before
    assert seen_in(open_mask(out / "a")) is not None
    assert not (out / "a" / "corrections.jsonl").exists()
    where, what = found.sentences()
    assert "labelled SCC, but it is RET" in where
    assert "choose RET" in where
    assert f"{found.before:.3f} → {found.after:.3f}" in what


def test_where_all_is_right_there_is_no_mistake(slide):
    painted, file, out = slide
    assert find_mistake(out, "a", file, painted) is None


def test_a_foreign_section_has_another_stain_and_is_out_of_focus(slide, tmp_path):
    _, file, _ = slide
    changed = read_image(write_foreign(file, Resolution.square(6.7), tmp_path / "foreign" / "a.tif"))
    expected = read_image(file)
    for name in ("stain: H −40 %, E +60 %", "blur: σ 2 px"):
        (one,) = [each for each in DEGRADATIONS if each.name == name]
        expected = one(expected)
    np.testing.assert_array_equal(changed, expected)
