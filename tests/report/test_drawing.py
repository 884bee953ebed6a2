from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from tests.report.looking import stumbles

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.report.drawing import (
    check_format,
    draw_legend,
    faded,
    heat_map,
    new_figure,
    set_title,
    shrink_image,
    shrink_map,
    shrink_mask,
    tissue_swatches,
    write_figure,
)


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".SVG", b"<?xml"), (".pdf", b"%PDF")])
def test_the_suffix_chooses_the_format_and_the_bytes_repeat(tmp_path, suffix, start):
    def draw():
        figure = new_figure(2, 2)
        set_title(figure.subplots(), "a title")
        return figure

    contents = []
    for name in ("first", "again"):
        write_figure(tmp_path / f"{name}{suffix}", draw)
        contents.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(start)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["figure.jpg", "figure"])
def test_formats_are_checked_before_drawing(tmp_path, name):
    called = []
    with pytest.raises(UsageError, match=r"one of \.png, \.svg, \.pdf"):
        write_figure(tmp_path / name, lambda: called.append(1))
    assert not called
    assert not list(tmp_path.iterdir())
    assert check_format(Path("a.b.PDF")) == "pdf"


def test_numbers_are_written_where_they_mean_something(random):
    share = random.random((4, 4)) * 0.9 + 0.05
    share[0, 1] = 0.001
    grey = np.eye(4, dtype=bool)
    axes = new_figure(3, 3).add_axes((0, 0, 1, 1))
    heat_map(axes, share, ["a", "b", "c", "a long $ name"], grey=grey)
    cells = {(int(t.get_position()[1]), int(t.get_position()[0])): float(t.get_text()) for t in axes.texts}
    assert set(cells) == {(r, c) for r in range(4) for c in range(4) if r != c and (r, c) != (0, 1)}
    assert all(cells[cell] == pytest.approx(share[cell], abs=0.00501) for cell in cells)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c", r"a long \$ name"]


@pytest.mark.parametrize("shape", [(7, 3), (100, 33), (1, 50), (50, 1), (64, 64)])
def test_nothing_is_enlarged_distorted_or_invented(random, shape):
    mask = random.integers(12, size=shape, dtype=np.uint8)
    small = shrink_map(mask, 40)
    scale = min(1, 40 / max(shape))
    assert small.shape == tuple(max(1, round(side * scale)) for side in shape)
    assert set(np.unique(small)) <= set(np.unique(mask))
    picture = shrink_image(np.repeat(mask[..., None], 3, axis=2), 40)
    assert picture.shape == (*small.shape, 3)
    assert SKIN.decode(shrink_mask(mask, SKIN, 40)).strays == 0


def test_pale_pictures_are_grey_and_light_and_still_show_the_tissue(random):
    pale = (240 + random.integers(10, size=(20, 20, 3))).astype(np.uint8)
    picture = faded(pale)
    assert picture.min() == 200
    assert picture.max() == 255
    assert (picture[..., 0] == picture[..., 2]).all()
    assert (faded(np.full((4, 4, 3), 77, np.uint8)) >= 200).all()


def test_the_legend_names_every_class_and_ignore_only_where_it_occurs():
    mask = np.zeros((2, 2), dtype=np.uint8)
    assert [rgb for rgb, _ in tissue_swatches(SKIN, mask)] == [tissue.rgb for tissue in SKIN.tissues]
    ignored = np.array([[0, IGNORE]], dtype=np.uint8)
    assert tissue_swatches(SKIN, mask, ignored)[-1][1] == "not annotated"


@pytest.mark.parametrize("width", [2.5, 7.0, 20.0])
def test_legends_keep_to_the_page_with_their_colours(width):
    figure = new_figure(width, 3)
    draw_legend(figure, tissue_swatches(SKIN))
    assert [to_rgb(patch.get_facecolor()) for patch in figure.legends[0].get_patches()] == [
        pytest.approx(tuple(channel / 255 for channel in tissue.rgb)) for tissue in SKIN.tissues
    ]
    assert not stumbles(figure)


def test_what_is_no_picture_is_refused():
    with pytest.raises(DataError, match="not an RGB picture"):
        shrink_image(np.zeros((3, 3, 3)))
