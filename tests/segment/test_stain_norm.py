"""Slides of another stain, brought to that of the training sections before the network sees them."""

import numpy as np
import pytest
from tests.familiarity import small
from tests.segment.painted import write
from tests.segment.small import BKG, document, paint, rows_of, run

from ntrm.core.errors import RefusedError
from ntrm.data.stains import Stains
from ntrm.results.documents import read_summary
from ntrm.results.familiarity import UNFAMILIAR
from ntrm.results.mask_file import labels_in, opened_mask

pytestmark = pytest.mark.usefixtures("quick_readers", "by_colour")


@pytest.fixture
def mask(random):
    return paint(random)


@pytest.fixture
def foreign(tmp_path, mask, random):
    """The section as a laboratory would have it that stains far more strongly: dermis looks like epidermis."""
    return write(tmp_path / "in" / "a.tif", restained(small.stained(mask, random), 2.5))


def restained(pixels, factor):
    density = -np.log((pixels.astype(float) + 1) / 256)
    return np.clip(np.rint(256 * np.exp(-density * factor) - 1), 0, 255).astype(np.uint8)


def right(folder, mask):
    """Share of the tissue that is named as it was painted."""
    return (labels(folder, mask.shape) == mask)[mask != BKG].mean()


def labels(folder, shape):
    with opened_mask(folder) as stored:
        return labels_in(stored, shape)


def test_a_foreign_stain_is_read_as_a_known_one_and_said_to_be_foreign(tmp_path, foreign, mask, painted_model):
    run(foreign, tmp_path / "plain", painted_model)
    result = run(foreign, tmp_path / "normed", painted_model, stain_norm="strength")
    assert Stains.parse(result.as_dict()["model"]["stains"]).density
    with pytest.raises(RefusedError, match="another run") as caught:
        run(foreign, tmp_path / "normed", painted_model, stain_norm="macenko")
    assert "stain_norm 'strength'" in caught.value.got
    assert right(tmp_path / "plain" / "a", mask) < 0.5
    assert right(tmp_path / "normed" / "a", mask) > 0.9
    # What it is like is judged by its own pixels: as the network sees them now, nothing would be strange.
    for out in ("plain", "normed"):
        assert read_summary(tmp_path / out / "a").familiarity.verdict == UNFAMILIAR
    norm = document(tmp_path / "normed" / "a")["stain_norm"]
    assert (norm["method"], norm["reason"]) == ("strength", "")
    np.testing.assert_allclose(norm["matrix"], 0.4 * np.eye(3), atol=0.1)
    assert "brought to those of the training sections" in (tmp_path / "normed" / "a" / "report.html").read_text()


def test_a_slide_without_colour_is_left_as_it_is_and_says_so(tmp_path, mask, painted_model, random):
    grey = np.repeat(small.stained(mask, random)[..., 1:2], 3, axis=2)
    slide = write(tmp_path / "grey.tif", grey)
    run(slide, tmp_path / "plain", painted_model, tissue_mask=False)
    run(slide, tmp_path / "normed", painted_model, tissue_mask=False, stain_norm="macenko")
    summary = read_summary(tmp_path / "normed" / "grey")
    assert summary.stain_norm.matrix is None
    assert "stains are as they were: there is too little tissue" in summary.warnings
    assert "stains are as they were" in rows_of(tmp_path / "normed")[0]["warnings"]
    masks = [labels(tmp_path / out / "grey", mask.shape) for out in ("plain", "normed")]
    assert (masks[0] == masks[1]).all()


def test_a_model_that_does_not_tell_its_stains_is_refused(tmp_path, foreign):
    bare = tmp_path / "bare"
    small.make_network().save_pretrained(bare)
    with pytest.raises(RefusedError, match="does not say how") as caught:
        run(foreign, tmp_path / "out", bare, stain_norm="macenko")
    assert (caught.value.got, caught.value.exit_code) == ("no reference", 3)
    assert "ntrm calibrate" in caught.value.hint
    assert not (tmp_path / "out").exists()
