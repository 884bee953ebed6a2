from pathlib import Path

import pytest

from ntrm.core.errors import UsageError
from ntrm.report.drawing import check_format, new_figure, set_title, write_figure


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".SVG", b"<?xml"), (".pdf", b"%PDF")])
def test_the_suffix_chooses_the_format_and_the_bytes_repeat(tmp_path, suffix, start):
    def draw():
        figure = new_figure(2, 2)
        set_title(figure.subplots(), "costs in $, and $")  # no formula
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
