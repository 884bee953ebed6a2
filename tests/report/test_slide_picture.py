from dataclasses import replace

import numpy as np
import pytest
import tifffile
from lxml import html
from PIL import Image
from tests.evaluation.small import COLOURS, NAMES
from tests.report.segmented import document

from ntrm.core.errors import DataError
from ntrm.core.pixels import OPACITY
from ntrm.report.html import render
from ntrm.report.slide_picture import SIDE, read_pictures, stage
from ntrm.results.documents import read_slide


def test_labels_colours_and_names_come_from_the_files(results):
    folder = results / "two"
    pictures = read_pictures(folder, read_slide(folder))
    np.testing.assert_array_equal(pictures.labels, tifffile.imread(folder / "mask.ome.tif", key=0))
    assert pictures.schema.names == NAMES
    assert pictures.schema.background == "BKG"
    assert [tissue.rgb for tissue in pictures.schema.tissues] == list(COLOURS)
    assert pictures.plain == (folder / "slide.jpg").read_bytes()


def test_colours_as_seen_are_the_mixture_over_the_mean_of_the_slide(results):
    folder = results / "one"
    pictures = read_pictures(folder, read_slide(folder))
    height, width = pictures.labels.shape
    with Image.open(folder / "slide.jpg") as stored:
        slide = np.asarray(stored.resize((width, height), Image.Resampling.NEAREST)).astype(float)
    for index, rgb in enumerate(COLOURS):
        mean = slide[pictures.labels == index + 1].mean(axis=0)
        expected = (1 - OPACITY) * mean + OPACITY * np.array(rgb)
        np.testing.assert_allclose(pictures.as_seen(COLOURS)[index], expected, atol=0.51)


def test_a_large_mask_is_sampled_from_a_coarser_level(results, random):
    folder = results / "one"
    labels = np.kron(random.integers(1, 5, (9, 26)), np.ones((256, 256), dtype=int)).astype(np.uint8)
    with tifffile.TiffWriter(folder / "mask.ome.tif") as writer:
        colours = np.zeros((3, 256), dtype=np.uint16)
        colours[:, 1:5] = np.array(COLOURS).T * 257
        common = {
            "photometric": "palette",
            "colormap": colours,
            "tile": (256, 256),
            "metadata": None,
            "compression": "zlib",
        }
        writer.write(labels, subifds=2, **common)
        writer.write(labels[::2, ::2], subfiletype=1, **common)
        writer.write(labels[::4, ::4], subfiletype=1, **common)
    slide = read_slide(folder)
    slide = replace(slide, grid=replace(slide.grid, height=labels.shape[0], width=labels.shape[1]))
    shown = read_pictures(folder, slide).labels
    assert max(shown.shape) == SIDE
    rows, columns = (
        ((np.arange(n) + 0.5) * full / n).astype(int) for n, full in zip(shown.shape, labels.shape, strict=True)
    )
    assert (shown == labels[np.ix_(rows, columns)]).mean() > 0.99


def test_the_stage_shows_lines_with_their_lengths(results):
    folder = results / "two"
    slide = read_slide(folder)
    shown = stage(slide, read_pictures(folder, slide))
    page = html.fromstring(render("stage.html", stage=shown))
    summary = document(folder / "summary.json")
    names = {"deep_clearance": "deep", "lateral_clearance": "lateral", "invasion_depth": "depth"}
    expected = [
        f"{piece['number']}: {names[key]} {each['value']:.2f} mm"
        for piece in summary["pieces"]
        for key, each in piece["measurements"].items()
        if key in names and each["value"] is not None and each["line_px"]
    ]
    assert [text for text, _ in shown["drawing"].legend] == expected
    assert len(page.xpath("//svg/g")) == 2 * len(expected)
    assert [element.text for element in page.iter("text")][:2] == ["1", "2"]
    assert len(expected) > 0
    assert page.xpath("//img/@class") == ["plain", "tint own", "tint safe"]
    assert all(source.startswith("data:image/") for source in page.xpath("//img/@src"))


@pytest.mark.parametrize("name", ["mask.ome.tif", "slide.jpg"])
def test_damaged_pictures_are_told_with_what_to_do(results, random, name):
    folder = results / "one"
    slide = read_slide(folder)
    path = folder / name
    whole = path.read_bytes()
    for content in (b"", b"nothing", whole[: int(random.integers(1, len(whole) // 2))]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"cannot read {name}") as found:
            read_pictures(folder, slide)
        assert "run the same ntrm segment again" in found.value.hint
    path.unlink()
    with pytest.raises(DataError, match=f"has no {name}"):
        read_pictures(folder, slide)
