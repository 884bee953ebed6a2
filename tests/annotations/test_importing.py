import json

import numpy as np
import pytest
import shapely
from PIL import Image
from tests.annotations.small import annotate, box, drawn, import_annotations, rows
from tests.helpers import real_data

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import sha256_of
from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.image_files import read_image, read_mask


def test_a_dataset_comes_out(folders, pixels):
    slides, marks, out = folders
    report = import_annotations(slides, marks, out, mpp=0.5, margin_um=5)
    assert report.exit_code == 0
    assert rows(out / "cases.csv") == [
        {"name": name, "group": name, "split": "", "mpp": "0.5", "slide_sha256": sha256_of(slides / f"{name}.png")}
        for name in "ab"
    ]
    assert [row["name"] for row in rows(out / "classes.csv")] == list(SKIN.names)
    # The annotated box, 10 pixels wider on each side.
    assert np.array_equal(read_image(out / "Images" / "a.png"), pixels[30:100, 30:110])
    mask = read_mask(out / "Masks" / "a.png", SKIN).mask
    expected = np.full((70, 80), IGNORE)
    expected[10:60, 10:70] = SKIN.index("RET")
    expected[20:40, 30:50] = SKIN.index("BCC")
    assert np.array_equal(mask, expected)
    case = report.imported[0]
    assert case.overlaps == {"BCC over RET": 400}
    assert case.pixels["BCC"] == 400
    assert case.pixels["ignore"] == 80 * 70 - 3000
    assert report.imported[1].counts["unclassified"] == 1
    assert (read_mask(out / "Masks" / "b.png", SKIN).mask == IGNORE).sum() == 60 * 60 - 1600 + 100


def test_one_failure_does_not_stop_the_others(folders):
    slides, marks, out = folders
    (marks / "a.geojson").write_text("{")
    annotate(marks / "lost.geojson", drawn("EPI", box(0, 0, 9, 9)))
    (slides / "blank.png").write_bytes((slides / "a.png").read_bytes())
    report = import_annotations(slides, marks, out, mpp=0.5)
    assert [case.name for case in report.imported] == ["b"]
    assert report.failures[0].slide == "a.png"
    assert report.slides_without_annotations == ("blank.png",)
    assert report.annotations_without_slide == ("lost.geojson",)
    assert report.exit_code == 1
    assert json.loads(json.dumps(report.as_dict()))["failures"][0]["hint"]
    assert [row["name"] for row in rows(out / "cases.csv")] == ["b"]


def only_error(folders, features=None, **options):
    """Import slide a alone; the error it fails with."""
    slides, marks, out = folders
    if features is not None:
        annotate(marks / "a.geojson", *features)
    report = import_annotations(slides / "a.png", marks / "a.geojson", out, **options)
    (failure,) = report.failures
    assert failure.error.got is not None
    assert failure.error.hint
    assert report.exit_code == failure.error.exit_code
    assert not list(out.rglob("*.png"))
    return failure.error


def test_missing_resolution_is_refused_never_guessed(folders):
    error = only_error(folders)
    assert isinstance(error, RefusedError)
    assert "--mpp" in error.hint


def test_contradicting_resolution_is_refused(folders, pixels):
    slides, marks, out = folders
    Image.fromarray(pixels).save(slides / "a.tif", resolution_unit=3, x_resolution=20000, y_resolution=20000)
    (slides / "a.png").unlink()
    refused = import_annotations(slides / "a.tif", marks / "a.geojson", out, mpp=0.25)
    assert "0.25" in str(refused.failures[0].error)
    assert "0.5" in str(refused.failures[0].error)
    assert refused.exit_code == 3
    close = import_annotations(slides / "a.tif", marks / "a.geojson", out.with_name("o2"), mpp=0.51)
    assert close.imported[0].mpp == 0.51
    none = import_annotations(slides / "a.tif", marks / "a.geojson", out.with_name("o3"))
    assert none.imported[0].mpp == 0.5


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([drawn("Melanoma", box(1, 1, 9, 9))], ["Melanoma", "EPI (epidermis)", "--map"]),
        ([drawn("EPI", box(500, 500, 900, 900))], ["outside", "x 0 to 200"]),
        ([drawn("EPI", box(1, 1, 9, 9)), drawn("BCC", box(-9, 0, 0, 9))], ["outside", "BCC"]),
        ([drawn("", box(1, 1, 9, 9))], ["no annotated tissue", "1 areas without a class"]),
        ([drawn("Ignore*", box(1, 1, 9, 9))], ["no annotated tissue"]),
        ([drawn("EPI", box(1.1, 1.1, 1.2, 1.2))], ["smaller than a pixel"]),
        ([drawn("EPI", box(2, 2, 8, 8)), drawn("Ignore*", box(1, 1, 9, 9))], ["under others to ignore"]),
    ],
)
def test_annotations_that_do_not_fit_are_refused(folders, features, words):
    error = only_error(folders, features, mpp=0.5)
    assert isinstance(error, DataError)
    for word in words:
        assert word in str(error)


def test_annotations_over_the_edge_are_clipped_and_counted(folders):
    slides, marks, out = folders
    annotate(marks / "a.geojson", drawn("EPI", box(-50, -50, 20, 30)), drawn("BKG", box(180, 100, 300, 300)))
    (case,) = import_annotations(slides / "a.png", marks / "a.geojson", out, mpp=1.0).imported
    assert case.counts["clipped"] == 2
    assert (case.width, case.height) == (200, 120)
    assert case.pixels["EPI"] == 20 * 30
    assert case.pixels["BKG"] == 20 * 20


def test_a_ring_drawn_on_a_real_slide(tmp_path, random):
    openslide = pytest.importorskip("openslide")
    slide = real_data("slides", "cmu-1-small-region.svs")
    centre, angle = np.array([1100.0, 1400.0]), np.linspace(0, 2 * np.pi, 200, endpoint=False)
    outer = centre + 600 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    hole = centre + 250 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    marks = annotate(tmp_path / "ring.geojson", drawn("Epidermis", outer.tolist(), hole.tolist()))
    (case,) = import_annotations(slide, marks, tmp_path / "out", target_mpp=1.0).imported

    mask = read_mask(tmp_path / "out" / "Masks" / f"{case.name}.png", SKIN).mask
    true_um2 = shapely.Polygon(outer, [hole]).area * 0.499**2
    assert (mask == SKIN.index("EPI")).sum() * case.mpp**2 == pytest.approx(true_um2, rel=0.01)
    column, row = ((centre - (case.left, case.top)) / (case.step_x, case.step_y)).astype(int)
    reach = int(240 / case.step_x)
    assert (mask[row - reach : row + reach : 20, column] == IGNORE).all()
    assert mask[row, column + int(400 / case.step_x)] == SKIN.index("EPI")

    image = read_image(tmp_path / "out" / "Images" / f"{case.name}.png").astype(float)
    with openslide.OpenSlide(slide) as handle:
        for y, x in random.integers(0, image.shape[:2], (40, 2)):
            left, top = case.left + x * case.step_x, case.top + y * case.step_y
            expected = _mean(handle, left, top, left + case.step_x, top + case.step_y)
            assert np.abs(image[y, x] - expected).max() <= 0.51, f"pixel {x}, {y}"


def _mean(handle, left, top, right, bottom):
    """Mean colour of a rectangle with fractional borders, pixel by pixel."""
    total = np.zeros(3)
    for v in range(int(top), int(np.ceil(bottom))):
        for u in range(int(left), int(np.ceil(right))):
            share = (min(u + 1, right) - max(u, left)) * (min(v + 1, bottom) - max(v, top))
            total += share * np.array(handle.read_region((u, v), 0, (1, 1)))[0, 0, :3]
    return total / ((right - left) * (bottom - top))
