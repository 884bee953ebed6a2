"""Slides without their specks: every output is that of the slide on which there were none."""

import json

import numpy as np
import pytest
import tifffile
from skimage.measure import label
from tests.evaluation.small import MPP
from tests.segment.small import document, paint, rows_of, run, speckled, write_slide

pytestmark = pytest.mark.usefixtures("quick_readers")

LEAST = 5 * MPP**2 - 1  # Squares of two by two pixels are smaller


@pytest.fixture
def masks(random):
    clean = paint(random)
    return clean, speckled(random, clean)


def tidied(slide, out, **options):
    found = run(slide, out, **options)
    assert found.exit_code == 0, [each.reason for each in found.slides]
    return out / "a"


def table(folder, name):
    return [row | {"mean_confidence": ""} for row in rows_of(folder.parent, name)]


def features(folder):
    """Polygons and what is measured on them, but for how sure the network was."""
    found = document(folder, "regions.geojson")["features"]
    for each in found:
        each["properties"]["measurements"].pop("Mean confidence", None)
    return [(each["geometry"], each["properties"]["name"], each["properties"]["measurements"]) for each in found]


def test_every_output_is_that_of_a_slide_without_specks(tmp_path, masks):
    clean, dirty = (write_slide(tmp_path / name / "a.tif", mask) for name, mask in zip(("1", "2"), masks, strict=True))
    wanted = tidied(clean, tmp_path / "clean", tissue_mask=False, maps=True)
    tidy = tidied(dirty, tmp_path / "tidied", tissue_mask=False, maps=True, min_area_um2=LEAST)
    untidy = tidied(dirty, tmp_path / "untidy", tissue_mask=False, maps=True)
    same, other = (tifffile.imread(folder / "mask.ome.tif", series=0) for folder in (tidy, untidy))
    np.testing.assert_array_equal(same, masks[0] + 1)
    np.testing.assert_array_equal(other, masks[1] + 1)
    for folder, differs in ((tidy, False), (untidy, True)):
        assert (features(folder) != features(wanted)) is differs
        graphs = [[piece["graph"] for piece in document(each, "graph.json")["pieces"]] for each in (folder, wanted)]
        assert (_without_confidence(graphs[0]) != _without_confidence(graphs[1])) is differs
        for key in ("tissue_area_mm2", "areas_mm2", "tissue_fractions"):
            assert (document(folder)[key] != document(wanted)[key]) is differs
        for name in ("regions", "interfaces"):
            rows = [table(each, name) for each in (folder, wanted)]
            assert (rows[0] != rows[1]) is differs
    # What the network said of each pixel, and how sure it was, is not made better than it was.
    maps = [tifffile.imread(folder / "confidence.ome.tif", series=0) for folder in (tidy, untidy)]
    np.testing.assert_array_equal(*maps)


def _without_confidence(graphs):
    return json.loads(json.dumps(graphs), object_hook=lambda each: {k: v for k, v in each.items() if "conf" not in k})


def test_the_summary_says_what_was_given_away(tmp_path, masks):
    clean, dirty = masks
    slide = write_slide(tmp_path / "a.tif", dirty)
    specks = clean != dirty
    folder = tidied(slide, tmp_path / "out", tissue_mask=False, min_area_um2=LEAST)
    assert document(folder)["small_regions"] == {
        "regions": label(specks, connectivity=1).max(),
        "area_mm2": pytest.approx(specks.sum() * MPP**2 / 1e6),
    }
    assert document(folder)["options"]["min_area_um2"] == LEAST
    assert document(tidied(slide, tmp_path / "off"))["small_regions"] is None
