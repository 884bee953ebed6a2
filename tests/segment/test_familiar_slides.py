"""Slides judged by the reference in their model's folder."""

import shutil

import numpy as np
import pytest
from tests.evaluation.small import NAMES
from tests.familiarity import small
from tests.segment.painted import row_of, write
from tests.segment.small import BKG, paint, rows_of, run

from ntrm.core.errors import DataError, RefusedError
from ntrm.results.documents import read_slide
from ntrm.results.familiarity import FAMILIAR, NO_REFERENCE, UNFAMILIAR
from ntrm.results.paths import FAMILIARITY_MAP

pytestmark = pytest.mark.usefixtures("quick_readers", "by_colour")


@pytest.fixture
def mask(random):
    """Of two pieces."""
    return paint(random, pieces=2)


@pytest.fixture
def slide(tmp_path, mask, random):
    return write(tmp_path / "in" / "a.tif", small.stained(mask, random))


@pytest.mark.failed_once(324259392)  # one of the hundred that a familiar slide is flagged in
def test_an_inverted_copy_is_unfamiliar_and_the_section_is_not(tmp_path, slide, mask, painted_model, random):
    # Only the tissue: a slide of black glass would not even be taken for one.
    pixels = small.stained(mask, random)
    inverted = write(tmp_path / "inverted" / "a.tif", np.where((mask == BKG)[..., None], pixels, 255 - pixels))
    run(slide, tmp_path / "plain", painted_model)
    run(inverted, tmp_path / "strange", painted_model)
    plain, strange = row_of(tmp_path / "plain"), row_of(tmp_path / "strange")
    # Even of slides of its own kind the model flags one in a hundred.
    p = float(plain["familiarity_p"])
    assert (plain["familiarity"], plain["cancer_SCC"]) == (
        (FAMILIAR, "true") if p >= 0.01 else (UNFAMILIAR, "not assessed")
    )
    assert (strange["familiarity"], strange["cancer_SCC"]) == (UNFAMILIAR, "not assessed")
    assert float(strange["familiarity_p"]) < 1e-10
    assert p > 1e-5
    assert "unlike what the model knows" in strange["warnings"]
    assert "colours: " in strange["warnings"]
    assert [piece["familiarity"] for piece in rows_of(tmp_path / "strange", "pieces")] == [UNFAMILIAR] * 2
    assert (tmp_path / "plain" / "a" / FAMILIARITY_MAP).is_file()


def test_the_cancers_of_a_tile_too_small_to_be_a_piece_are_not_assessed(tmp_path, mask, painted_model, random):
    (top, left), side = np.argwhere(mask == NAMES.index("SCC"))[0] - 10, 45  # 0.09 mm²
    tile = np.ascontiguousarray(mask[top : top + side, left : left + side])
    run(write(tmp_path / "in" / "a.tif", 255 - small.stained(tile, random)), tmp_path / "out", painted_model)
    row, found = row_of(tmp_path / "out"), read_slide(tmp_path / "out" / "a").cancers["SCC"]
    assert (row["pieces"], row["cancer_SCC"], row["familiarity"]) == ("0", "not assessed", UNFAMILIAR)
    assert float(row["tissue_area_mm2"]) > 0.05
    assert float(row["familiarity_p"]) < 1e-3
    assert (found.present, found.confidence) == (None, None)
    assert found.reason == "not assessed: no piece of tissue of 0.1 mm² or more"
    assert found.area_mm2 == pytest.approx(float(row["area_SCC_mm2"]))


def test_a_model_without_a_reference_measures_the_same_and_says_that_it_has_none(tmp_path, slide, painted_model):
    bare = tmp_path / "bare"
    shutil.copytree(painted_model, bare)
    for path in bare.glob("reference.*"):
        path.unlink()
    run(slide, tmp_path / "with", painted_model)
    run(slide, tmp_path / "without", bare)
    judged, plain = row_of(tmp_path / "with"), row_of(tmp_path / "without")
    assert (plain["familiarity"], plain["familiarity_p"]) == (NO_REFERENCE, "")
    differing = {key for key in plain if plain[key] != judged[key]}
    assert all("familiarity" in key for key in differing)
    for name in ("mask.ome.tif", "overlay.png"):
        (one,), (other,) = (list((tmp_path / out).rglob(name)) for out in ("with", "without"))
        assert one.read_bytes() == other.read_bytes()


def test_another_reference_is_another_run_and_a_damaged_one_is_refused(tmp_path, slide, painted_model):
    run(slide, tmp_path / "out", painted_model)
    other = tmp_path / "other"
    shutil.copytree(painted_model, other)
    (other / "reference.json").unlink()
    with pytest.raises(RefusedError):
        run(slide, tmp_path / "out", other)
    shutil.copytree(painted_model, tmp_path / "broken")
    path = tmp_path / "broken" / "reference.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="ntrm calibrate"):
        run(slide, tmp_path / "none", tmp_path / "broken")
    assert not (tmp_path / "none").exists()
