"""Where lines, numbers and scale bars stand on a slide's picture, and the pixels that they have."""

from types import SimpleNamespace

import numpy as np
import pytest

from ntrm.core.labels import SKIN
from ntrm.report.overlay import (
    STEPS,
    TINT,
    Frame,
    annotated,
    drawing_of,
    familiarity_map,
    font_size,
    scale_bar,
    window_values,
)
from ntrm.results import documents
from ntrm.results.documents import Measure

GREY = 128


def piece(number, line, value=1.0, box=(0, 0, 10, 10)):
    measurements = {"deep_clearance": Measure(value, "mm", "", line)}
    return SimpleNamespace(number=number, mask_box_px=documents.Box(*box), measurements=measurements)


def test_scale_bars_are_round_and_true(random):
    for _ in range(200):
        across, mpp = 10 ** random.uniform(-2, 1), 10 ** random.uniform(-1, 2)
        frame = Frame(float(random.uniform(50, 5000)), 100.0, across, across, 10.0)
        text, length = scale_bar(frame, mpp)
        # Of 1, 2, 5, 10 … the next is at most 2.5 times as long.
        assert frame.width / 10 * (1 - 1e-6) <= length <= frame.width / 4 * (1 + 1e-6)
        number, unit = text.split()
        assert length == pytest.approx(float(number) * {"mm": 1000, "µm": 1}[unit] / mpp * across)
        assert number.strip("0.") in ("1", "2", "5")


def test_the_legend_has_the_lengths_of_few_lines_and_explains_many():
    frame = Frame(1000.0, 700.0, 1.0, 1.0, 16.0)
    pieces = [piece(number, ((1.0, 2.0), (3.0, 4.0)), value=number) for number in range(1, 20)]
    assert [text for text, _ in drawing_of(pieces[:1], frame).legend] == ["deep 1.00 mm"]
    assert [text for text, _ in drawing_of(pieces[:2], frame).legend] == ["1: deep 1.00 mm", "2: deep 2.00 mm"]
    assert [text for text, _ in drawing_of(pieces, frame).legend] == ["deep"]
    assert drawing_of([], frame).legend == []


def test_numbers_of_pieces_only_where_there_are_several_and_always_in_sight(random):
    frame = Frame(200.0, 100.0, 1.0, 1.0, 10.0)
    pieces = [piece(number, None, box=(*random.integers(-20, 400, 2), 1, 1)) for number in range(1, 6)]
    assert drawing_of(pieces[:1], frame).badges == []
    drawing = drawing_of(pieces, frame)
    assert [text for text, _ in drawing.badges] == ["1", "2", "3", "4", "5"]
    for _, (x, y) in drawing.badges:
        assert drawing.font <= x <= 200 - drawing.font
        assert drawing.font <= y <= 100 - drawing.font


def plain(height=600, width=900):
    return np.full((height, width, 3), GREY, dtype=np.uint8)


def drawn(picture, shape=None, mpp=10.0, pieces=(), fractions=None, seen=None):
    summary = SimpleNamespace(pieces=pieces, tissue_fractions=fractions or {}, corrected=None)
    return annotated(picture, SKIN, shape or picture.shape[:2], mpp, summary, seen or {})


def test_a_line_is_drawn_where_it_was_measured(random):
    start, end = (100, 150), (500, int(random.integers(300, 800)))
    shown = drawn(plain(), (300, 450), pieces=[piece(1, [[r / 2, c / 2] for r, c in (start, end)])])
    steps = np.linspace(0.05, 0.95, 40)
    points = [(round(start[0] + (end[0] - start[0]) * s), round(start[1] + (end[1] - start[1]) * s)) for s in steps]
    blue = np.array([0, 0x53, 0xA6])
    for row, column in points:
        assert np.abs(shown[row - 2 : row + 5, column - 2 : column + 5].astype(int) - blue).sum(axis=2).min() < 30


def test_the_scale_bar_has_the_length_it_says():
    shown = drawn(plain(), mpp=10.0)  # 9 mm wide: a bar of 2 mm
    size = font_size(900, 600)
    row = shown[round(600 - size - 0.15 * size)]
    dark = np.flatnonzero((row == (29, 29, 34)).all(axis=1))
    assert dark.max() - dark.min() + 1 == pytest.approx(200, abs=2)


def test_the_legend_names_tissues_that_are_there_in_their_colours():
    shares = {"RET": 0.75, "BCC": 0.25, "EPI": 0.0, "SCC": None}
    shown = drawn(plain(), fractions=shares)
    below = shown[600:].reshape(-1, 3)
    assert len(below) > 0
    for name, present in (("RET", True), ("BCC", True), ("EPI", False), ("SCC", False)):
        assert (below == SKIN[name].rgb).all(axis=1).any() == present, name
    seen = drawn(plain(), fractions=shares, seen={"RET": (1, 2, 3)})
    assert (seen[600:].reshape(-1, 3) == (1, 2, 3)).all(axis=1).any()


# --- where a slide is unlike what the model knows ---


def test_values_are_geometric_means_over_the_windows_of_a_pixel(random):
    places, values = random.integers(1, [20, 30, 10, 10], (12, 4)).tolist(), random.uniform(0.001, 1, 12).tolist()
    windows, every = [(*place, p) for place, p in zip(places, values, strict=True)], np.full((12, 30, 40), np.nan)
    for layer, (top, left, high, wide, p) in zip(every, windows, strict=True):
        layer[top : top + high, left : left + wide] = p
    with np.errstate(all="ignore"):
        counts = np.isfinite(every).sum(axis=0)
        expected = np.where(counts, np.exp(np.nansum(np.log(every), axis=0) / counts), np.nan)
    np.testing.assert_allclose(window_values(windows, (30, 40), (30, 40)), expected)


def test_windows_have_the_colour_of_their_step_and_the_rest_is_grey(random):
    picture = random.integers(0, 256, (60, 90, 3)).astype(np.uint8)
    windows = [(0, 0, 20, 10, 0.001), (0, 10, 20, 10, 0.01), (0, 20, 20, 10, 0.5)]
    drawn = familiarity_map(picture, windows, (60, 90))
    grey = picture.mean(axis=2)
    for k, (_, colour, _) in enumerate(STEPS):
        expected = (1 - TINT) * grey[:20, 10 * k : 10 * k + 10, None] + TINT * np.array(colour)
        np.testing.assert_allclose(drawn[:20, 10 * k : 10 * k + 10], expected, atol=0.5)
    np.testing.assert_allclose(drawn[20:60, :90], np.repeat(grey[20:, :, None], 3, axis=2), atol=0.5)
    assert drawn.shape[0] > 60  # the legend


@pytest.mark.parametrize("p_value", [0.0, 1e-30])
def test_a_p_value_of_nothing_does_not_outweigh_all_others(p_value):
    windows = [(0, 0, 1, 1, p_value), *[(0, 0, 1, 1, 0.5)] * 20]
    assert window_values(windows, (1, 1), (1, 1))[0, 0] > 0.1
