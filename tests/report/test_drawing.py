from pathlib import Path

import numpy as np
import pytest

from ntrm.core.errors import UsageError
from ntrm.report.drawing import Sheet, check_format, heat_map, new_figure, write_figure


def test_a_file_that_cannot_be_drawn_leaves_the_old_one(tmp_path):
    path = tmp_path / "figure.png"
    write_figure(path, lambda: new_figure(1, 1))
    before = path.read_bytes()

    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_figure(path, fails)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_formats_are_checked_before_drawing(tmp_path):
    called = []
    with pytest.raises(UsageError, match=r"one of \.png, \.svg, \.pdf"):
        write_figure(tmp_path / "figure.jpg", lambda: called.append(1))
    assert not called
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


def test_a_sheet_keeps_pictures_undistorted(random):
    sheet = Sheet(8, 4)
    drawn = sheet.picture(1, 1, 2, random.random((5, 9)), cmap="gray")
    assert drawn.axes.get_aspect() == 1
    assert drawn.axes.get_position(original=True).bounds == pytest.approx((0.125, 0.25, 0.25, 0.5))
