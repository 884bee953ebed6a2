"""Where lines, labels, numbers and scale bars stand on a slide's picture."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.report.measured_pieces import measured, piece

from ntrm.core.errors import UsageError
from ntrm.report.overlay_layout import (
    Box,
    Frame,
    OverlayLayout,
    line_marks,
    piece_badges,
    scale_bar,
    ticks,
    with_fitting_letters,
)
from ntrm.results.documents import Measure


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


def test_labels_keep_off_the_numbers_of_pieces(random):
    frame = Frame(1000.0, 700.0, 1.0, 1.0, 16.0)
    for _ in range(20):
        tops = random.uniform((50, 50), (600, 850), (4, 2)).tolist()
        # The line ends at the number, where its label would like to stand.
        pieces = [piece(n, ((y + 60, x + 60), (y, x)), box=(int(y), int(x), 80, 80)) for n, (y, x) in enumerate(tops)]
        layout = OverlayLayout.of(pieces, frame)
        assert (len(layout.badges), len(layout.marks), layout.frame) == (4, 4, frame)
        for badge in layout.badges:
            (x, y), radius = badge.centre, badge.radius
            around = Box(x - radius, y - radius, 2 * radius, 2 * radius)
            for mark in layout.marks:
                assert shared(mark.label, around) < 0.2 * around.width * around.height
