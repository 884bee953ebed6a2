import math

import numpy as np
import pytest

from ntrm.core.errors import UsageError
from ntrm.report.picture_marks import Box, Frame, line_marks, piece_badges, scale_bar, ticks
from ntrm.report.slide_documents import Measure


def measured(key, line, value=1.0):
    return Measure(key, value, "mm", "", line)


def test_scale_bars_are_round_and_true(random):
    for _ in range(200):
        across, mpp = 10 ** random.uniform(-2, 1), 10 ** random.uniform(-1, 2)
        frame = Frame(float(random.uniform(50, 5000)), 100.0, across, across, 10.0)
        bar = scale_bar(frame, mpp)
        assert bar.length == pytest.approx(bar.millimetres * 1000 / mpp * across)
        # Of 1, 2, 5, 10 … the next is at most 2.5 times as long.
        assert frame.width / 10 * (1 - 1e-6) <= bar.length <= frame.width / 4 * (1 + 1e-6)
        number, unit = bar.text.split()
        assert float(number) * {"mm": 1, "µm": 1e-3}[unit] == pytest.approx(bar.millimetres)
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
    absent = Measure("deep_clearance", None, "mm", "fragmented", None)
    pointless = Measure("lateral_clearance", 1.0, "mm", "", None)
    assert line_marks([absent, pointless, measured("orientation", line)], frame) == []


def test_labels_stay_in_the_picture_and_off_each_other(random):
    frame = Frame(1000.0, 700.0, 1.0, 1.0, 16.0)
    for _ in range(20):
        lines = [tuple(map(tuple, random.uniform((100, 100), (600, 900), (2, 2)))) for _ in range(3)]
        keys = ("deep_clearance", "lateral_clearance", "invasion_depth")
        marks = line_marks([measured(key, line) for key, line in zip(keys, lines, strict=True)], frame)
        whole = Box(0, 0, 1000, 700)
        for at, mark in enumerate(marks):
            assert mark.label.overlap(whole) == pytest.approx(mark.label.width * mark.label.height)
            for other in marks[:at]:
                assert mark.label.overlap(other.label) < 0.2 * mark.label.width * mark.label.height


def test_a_label_gives_way_to_what_is_taken():
    frame = Frame(1000.0, 1000.0, 1.0, 1.0, 20.0)
    line = ((500.0, 400.0), (500.0, 600.0))
    (free,) = line_marks([measured("invasion_depth", line)], frame)
    (moved,) = line_marks([measured("invasion_depth", line)], frame, [free.label])
    assert free.label.overlap(moved.label) < free.label.overlap(free.label) / 4


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
    boxes = [(n + 1, tuple(int(v) for v in random.integers(-20, 400, 4))) for n in range(5)]
    assert piece_badges(boxes[:1], frame) == []
    badges = piece_badges(boxes, frame)
    assert [badge.text for badge in badges] == ["1", "2", "3", "4", "5"]
    for badge in badges:
        assert badge.radius <= badge.centre[0] <= 200 - badge.radius
        assert badge.radius <= badge.centre[1] <= 100 - badge.radius


def test_an_impossible_picture_is_refused():
    with pytest.raises(UsageError, match="impossible height of a picture"):
        Frame(10.0, 0.0, 1.0, 1.0, 10.0)
