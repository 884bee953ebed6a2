from pathlib import Path

import numpy as np
import pytest

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.report.drawing import (
    check_format,
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


def test_the_legend_names_every_class_and_ignore_only_where_it_occurs():
    mask = np.zeros((2, 2), dtype=np.uint8)
    assert [rgb for rgb, _ in tissue_swatches(SKIN, mask)] == [tissue.rgb for tissue in SKIN.tissues]
    ignored = np.array([[0, IGNORE]], dtype=np.uint8)
    assert tissue_swatches(SKIN, mask, ignored)[-1][1] == "not annotated"
