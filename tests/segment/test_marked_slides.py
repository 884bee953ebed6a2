"""Slides with pen and dust on their glass: every number is that of the slide before somebody marked it."""

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import COLOURS, MPP, NAMES, ByColour
from tests.segment.small import BKG, document, paint, rows_of, run

from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image

pytestmark = pytest.mark.usefixtures("quick_readers")

STROKE = (slice(0, 31), slice(10, 120))
DUST = (slice(172, 178), slice(60, 66))


def write(path, random):
    """A section on glass, as it is and marked; the network takes pen for epidermis and dust for what is nearest."""
    path.mkdir()
    clean = np.array(COLOURS, dtype=np.uint8)[paint(random)]
    marked = clean.copy()
    marked[STROKE], marked[DUST] = (30, 60, 190), (60, 60, 60)
    files = path / "clean.tif", path / "marked.tif"
    for file, pixels in zip(files, (clean, marked), strict=True):
        write_image(file, pixels, Resolution.square(MPP))
    return files


def marked_run(slide, out, model=None, **options):
    assert run(slide, out, model, **options).exit_code == 0
    return out / slide.stem


def mask_in(folder):
    return tifffile.imread(folder / "mask.ome.tif", series=0).astype(int) - 1


def table(folder, name):
    return [row | {"slide_id": ""} for row in rows_of(folder.parent, name)]


def test_marks_on_glass_are_background_in_all_files(tmp_path, random):
    clean, marked = write(tmp_path / "in", random)
    wanted = marked_run(clean, tmp_path / "clean")
    for name, options in {"plain": {}, "tidy": {"min_area_um2": 400.0}}.items():
        found = marked_run(marked, tmp_path / name, maps=True, **options)
        np.testing.assert_array_equal(mask_in(found), mask_in(wanted))
        for each in ("pieces", "regions", "interfaces"):
            assert table(found, each) == table(wanted, each)
        (row,), (other,) = table(found, "slides"), table(wanted, "slides")
        assert {key for key in row if row[key] != other[key]} <= {"warnings", "quality_pen", "quality_pen_score"}
        assert (row["quality_pen"], other["quality_pen"]) == ("true", "false")
        one, other = (document(folder, "graph.json") for folder in (found, wanted))
        assert one["pieces"] == other["pieces"]
        # What the network itself said.
        assert (tifffile.imread(found / "coarse.ome.tif", series=0)[STROKE] == NAMES.index("EPI") + 1).any()


def test_marks_stay_where_everything_is_to_be_segmented_or_no_class_is_background(tmp_path, random):
    _, marked = write(tmp_path / "in", random)
    labels = mask_in(marked_run(marked, tmp_path / "out", tissue_mask=False))
    assert (labels[STROKE] == NAMES.index("EPI")).all()
    assert (labels[DUST] != BKG).all()
    labels = mask_in(marked_run(marked, tmp_path / "two", ByColour(classes=2)))
    assert (labels[STROKE] == NAMES.index("EPI")).any()
