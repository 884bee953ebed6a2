import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.report import overlay_drawing
from ntrm.report.overlay_drawing import (
    Box,
    Frame,
    Mark,
    annotated,
    font_size,
    line_marks,
    piece_badges,
    scale_bar,
    ticks,
    with_fitting_letters,
)
from ntrm.results import documents
from ntrm.results.documents import Measure


def measured(key, line, value=1.0):
    return key, Measure(value, "mm", "", line)


def shared(one, other):
    """Area that two boxes have in common."""
    wide = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    high = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    return max(wide, 0.0) * max(high, 0.0)


def test_scale_bars_are_round_and_true(random):
    for _ in range(200):
        across, mpp = 10 ** random.uniform(-2, 1), 10 ** random.uniform(-1, 2)
        frame = Frame(float(random.uniform(50, 5000)), 100.0, across, across, 10.0)
        bar = scale_bar(frame, mpp)
        # Of 1, 2, 5, 10 … the next is at most 2.5 times as long.
        assert frame.width / 10 * (1 - 1e-6) <= bar.length <= frame.width / 4 * (1 + 1e-6)
        number, unit = bar.text.split()
        assert bar.length == pytest.approx(float(number) * {"mm": 1000, "µm": 1}[unit] / mpp * across)
        assert number.strip("0.") in ("1", "2", "5")


def test_lines_lie_where_they_were_measured(random):
    frame = Frame(400.0, 300.0, 2.0, 1.5, 12.0)
    (r0, c0), (r1, c1) = line = tuple((float(random.integers(200)), float(random.integers(200))) for _ in range(2))
    (mark,) = line_marks([measured("deep_clearance", line, 3.44)], frame)
    assert mark.start == pytest.approx(((c0 + 0.5) * 2, (r0 + 0.5) * 1.5))
    assert mark.end == pytest.approx(((c1 + 0.5) * 2, (r1 + 0.5) * 1.5))
    assert mark.text == "deep 3.44 mm"


def test_what_has_no_value_no_line_or_no_length_is_not_drawn():
    frame = Frame(100.0, 100.0, 1.0, 1.0, 10.0)
    line = ((1.0, 2.0), (3.0, 4.0))
    absent = ("deep_clearance", Measure(None, "mm", "fragmented", None))
    pointless = ("lateral_clearance", Measure(1.0, "mm", "", None))
    assert line_marks([absent, pointless, measured("orientation", line)], frame) == []


def test_labels_stay_in_the_picture_and_off_each_other(random):
    frame = Frame(1000.0, 700.0, 1.0, 1.0, 16.0)
    for _ in range(20):
        lines = [tuple(map(tuple, random.uniform((100, 100), (600, 900), (2, 2)))) for _ in range(3)]
        keys = ("deep_clearance", "lateral_clearance", "invasion_depth")
        marks = line_marks([measured(key, line) for key, line in zip(keys, lines, strict=True)], frame)
        whole = Box(0, 0, 1000, 700)
        for at, mark in enumerate(marks):
            assert shared(mark.label, whole) == pytest.approx(mark.label.width * mark.label.height)
            for other in marks[:at]:
                assert shared(mark.label, other.label) < 0.2 * mark.label.width * mark.label.height


def many_lines(random, count, frame):
    starts = random.uniform((0, 0), (frame.height, frame.width), (count, 2))
    ends = starts + random.uniform(-30, 30, (count, 2))
    return [measured("deep_clearance", (tuple(a), tuple(b))) for a, b in zip(starts, ends, strict=True)]


@pytest.mark.parametrize(("count", "smaller"), [(0, 1.0), (8, 1.0), (36, 0.4989), (300, 0.4)])
def test_letters_become_smaller_where_labels_would_cover_the_picture(count, smaller, random):
    # "deep 1.00 mm" takes 12 · 0.62 · 1.25 · 30² = 8,370 px², and an eighth of the picture is 75,000.
    frame = Frame(1000.0, 600.0, 1.0, 1.0, 30.0)
    fitting = with_fitting_letters(frame, many_lines(random, count, frame))
    assert fitting.font == pytest.approx(30 * smaller, abs=1e-3)
    assert replace(fitting, font=30.0) == frame


def test_labels_of_a_hundred_pieces_can_be_read(random):
    frame = Frame(3000.0, 3000.0, 1.0, 1.0, 50.0)
    measures = many_lines(random, 300, frame)

    def hidden(frame):
        """Mean share of a label that another one covers."""
        labels = [mark.label for mark in line_marks(measures, frame)]
        return np.mean([sum(shared(a, b) for b in labels if b is not a) / (a.width * a.height) for a in labels])

    assert hidden(with_fitting_letters(frame, measures)) < 0.02 < hidden(frame)


def test_a_label_gives_way_to_what_is_taken():
    frame = Frame(1000.0, 1000.0, 1.0, 1.0, 20.0)
    line = ((500.0, 400.0), (500.0, 600.0))
    (free,) = line_marks([measured("invasion_depth", line)], frame)
    (moved,) = line_marks([measured("invasion_depth", line)], frame, [free.label])
    assert shared(free.label, moved.label) < free.label.width * free.label.height / 4


def price(box, frame, taken, ends):
    """What is bad about a label's place, its distance from the line aside."""
    area, margin = box.width * box.height, 0.2 * frame.font
    outside = 1 - shared(box, Box(0, 0, frame.width, frame.height)) / area
    covered = sum(shared(box, other) for other in taken) / area
    points = [start + (end - start) * step / 24 for start, end in ends for step in range(25)]
    near = (
        box.left - margin <= x <= box.left + box.width + margin and -margin <= y - box.top <= box.height + margin
        for x, y in points
    )
    return 50 * outside + 20 * covered + sum(near)


def test_no_place_beside_the_end_of_a_line_is_better_than_the_labels_own(random):
    frame = Frame(600.0, 400.0, 1.0, 1.0, 14.0)
    lines = [tuple(map(tuple, random.uniform((0, 0), (400, 600), (2, 2)))) for _ in range(25)]
    taken = [Box(*random.uniform((0, 0), (600, 400)).tolist(), 30.0, 30.0) for _ in range(8)]
    marks = line_marks([measured("invasion_depth", line) for line in lines], frame, taken)
    ends = [(np.array(mark.start), np.array(mark.end)) for mark in marks]
    for at, mark in enumerate(marks):
        others = [*taken, *(other.label for other in marks[:at])]
        own, reach = price(mark.label, frame, others, ends), 0.7 * frame.font
        for eighth in range(8):
            right, below = math.cos(eighth * math.pi / 4), math.sin(eighth * math.pi / 4)
            x = mark.end[0] + right * (reach + mark.label.width / 2) - mark.label.width / 2
            y = mark.end[1] + below * (reach + mark.label.height / 2) - mark.label.height / 2
            there = Box(x, y, mark.label.width, mark.label.height)
            # The distance counts little: up to 0.3, and 0.05 at this end of the line.
            assert price(there, frame, others, ends) + 0.12 > own


def test_ticks_stand_across_the_ends(random):
    frame = Frame(900.0, 900.0, 1.0, 1.0, 20.0)
    line = ((100.0, 100.0), tuple(map(float, random.uniform(300, 800, 2))))
    (mark,) = line_marks([measured("deep_clearance", line)], frame)
    direction = np.subtract(mark.end, mark.start)
    for (a, b), end in zip(ticks(mark, 14.0), (mark.start, mark.end), strict=True):
        assert np.dot(np.subtract(b, a), direction) == pytest.approx(0, abs=1e-6)
        assert math.dist(a, b) == pytest.approx(14.0)
        assert np.add(a, b) / 2 == pytest.approx(np.array(end))
    (short,) = line_marks([measured("deep_clearance", ((5.0, 5.0), (5.0, 6.0)))], frame)
    assert ticks(short, 14.0) == ()


def test_numbers_of_pieces_only_where_there_are_several_and_always_in_sight(random):
    frame = Frame(200.0, 100.0, 1.0, 1.0, 10.0)
    pieces = [piece(number, None, box=(*random.integers(-20, 400, 2), 1, 1)) for number in range(1, 6)]
    assert piece_badges(pieces[:1], frame) == []
    badges = piece_badges(pieces, frame)
    assert [badge.text for badge in badges] == ["1", "2", "3", "4", "5"]
    for badge in badges:
        assert badge.radius <= badge.centre[0] <= 200 - badge.radius
        assert badge.radius <= badge.centre[1] <= 100 - badge.radius


def test_an_impossible_picture_is_refused():
    with pytest.raises(UsageError, match="impossible height of a picture"):
        Frame(10.0, 0.0, 1.0, 1.0, 10.0)


GREY = 128


def piece(number, line, value=1.0, box=(0, 0, 10, 10)):
    measurements = dict([measured("deep_clearance", line, value)])
    return SimpleNamespace(number=number, mask_box_px=documents.Box(*box), measurements=measurements)


def plain(height=600, width=900):
    return np.full((height, width, 3), GREY, dtype=np.uint8)


def drawn(picture, shape=None, mpp=10.0, pieces=(), fractions=None):
    shape = shape or picture.shape[:2]
    return annotated(picture, SKIN, shape, mpp, pieces=pieces, fractions=fractions or {})


def test_a_line_is_drawn_where_it_was_measured(random):
    picture = plain()
    start, end = (100, 150), (500, int(random.integers(300, 800)))
    shown = drawn(picture, (300, 450), pieces=[piece(1, [[r / 2, c / 2] for r, c in (start, end)])])
    steps = np.linspace(0.05, 0.95, 40)
    points = [(round(start[0] + (end[0] - start[0]) * s), round(start[1] + (end[1] - start[1]) * s)) for s in steps]
    blue = np.array([0, 0x53, 0xA6])
    on_line = [
        np.abs(shown[row - 2 : row + 5, column - 2 : column + 5].astype(int) - blue).sum(axis=2).min()
        for row, column in points
    ]
    # The label may cover a stretch of it.
    assert np.mean(np.array(on_line) < 30) > 0.8


def drawn_whole(canvas, mark, size):
    """A mark drawn larger in one picture of all of its box: slow, and the bytes that its drawing in bands must have."""
    ends = ticks(mark, 0.7 * size)
    strokes = [(mark.start, mark.end), *ends] if ends else []
    points = np.array([point for stroke in strokes for point in stroke] or [mark.end])
    left, top = np.maximum((points.min(axis=0) - 2 * size).astype(int), 0).tolist()
    right, bottom = np.minimum((points.max(axis=0) + 2 * size).astype(int), canvas.size).tolist()
    if right <= left or bottom <= top:
        return
    for colour, thick in (("#ffffff", 0.30 * size), (mark.colour, 0.13 * size)):
        cover = Image.new("L", ((right - left) * 4, (bottom - top) * 4), 0)
        draw, width = ImageDraw.Draw(cover), max(1, round(thick * 4))
        for (x0, y0), (x1, y1) in strokes:
            draw.line([(x0 - left) * 4, (y0 - top) * 4, (x1 - left) * 4, (y1 - top) * 4], fill=255, width=width)
        if not strokes:
            centre = (mark.end[0] - left) * 4, (mark.end[1] - top) * 4
            draw.circle(centre, 0.35 * size * 4 + width / 2, outline=255, width=width)
        canvas.paste(colour, (left, top, right, bottom), cover.reduce(4))


@pytest.mark.parametrize("kind", ["any", "level", "upright", "short", "beyond"])
def test_lines_drawn_in_bands_have_the_pixels_of_lines_drawn_whole(random, kind):
    picture = random.integers(0, 256, (400, 300, 3), dtype=np.uint8)
    for _ in range(25):
        start, end = random.uniform((0, 0), (300, 400), (2, 2))
        if kind in ("level", "upright"):
            end[int(kind == "level")] = start[int(kind == "level")] + random.choice([0.0, 0.3, 3.0])
        elif kind != "any":
            end = start + (random.normal(0, 4, 2) if kind == "short" else random.normal(0, 400, 2))
        size = float(random.choice([2.0, 7.0, 12.5, 25.0]))
        mark = Mark("", "#0053a6", tuple(start.tolist()), tuple(end.tolist()), Box(0, 0, 1, 1))
        found, expected = Image.fromarray(picture), Image.fromarray(picture)
        overlay_drawing._draw_mark(found, mark, size)
        drawn_whole(expected, mark, size)
        assert np.array_equal(found, expected)


def test_a_line_without_length_is_a_ring_and_one_beyond_the_picture_harmless():
    ring = drawn(plain(), pieces=[piece(1, [[300, 400], [300, 401]], 0.0)])
    assert (ring[300, 401] == GREY).all()
    assert (ring[280:320, 380:421] != GREY).any()
    away = drawn(plain(), pieces=[piece(1, [[-9000, -9000], [-8000, -8000]])])
    np.testing.assert_array_equal(away[100:400, 300:], plain()[100:400, 300:])


def test_the_rest_of_the_picture_stays_as_it_is():
    picture = plain()
    shown = drawn(picture)
    assert shown.shape == picture.shape
    np.testing.assert_array_equal(shown[:450], picture[:450])


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
    seen = annotated(plain(), SKIN, (600, 900), 10.0, fractions=shares, seen={"RET": (1, 2, 3)})
    assert (seen[600:].reshape(-1, 3) == (1, 2, 3)).all(axis=1).any()


def test_pieces_are_numbered_where_there_are_several():
    line = [[300, 400], [310, 420]]
    boxes = [(50, 100, 10, 10), (50, 700, 10, 10)]
    one = drawn(plain(), pieces=[piece(1, line, box=boxes[0])])
    two = drawn(plain(), pieces=[piece(n + 1, line, box=box) for n, box in enumerate(boxes)])
    assert (one[45:56, 95:106] == GREY).all()
    for column in (100, 700):
        assert (two[45:56, column - 5 : column + 6] != GREY).any()


def test_the_same_picture_every_time_and_also_of_a_sliver(random):
    pieces = [piece(1, random.uniform(0, 500, (2, 2)).tolist())]
    one, two = (drawn(plain(), pieces=pieces, fractions={"RET": 1.0}) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert drawn(plain(1200, 1), pieces=pieces, fractions={"RET": 1.0}).shape[1] == 1
