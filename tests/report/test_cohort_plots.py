from xml.etree import ElementTree

import numpy as np
import pytest

from ntrm.report.cohort import CohortSlide
from ntrm.report.cohort_plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_BARS,
    TOP,
    WIDTH,
    bins,
    borders,
    composition,
    grouped,
    histogram,
)

TISSUES = ("EPI", "RET", "SCC")


def slide(name, fractions):
    shares = dict(zip(TISSUES, fractions, strict=True))
    return CohortSlide(name, True, "", "", 1, 1.0, shares, {}, {}, {}, None)


def slides(random, count):
    return [slide(f"s{k:04d}", random.dirichlet([1, 2, 1])) for k in range(count)]


def rectangles(markup):
    return list(ElementTree.fromstring(markup.text).iter("rect"))


def test_bars_are_stacked_by_share_most_cancer_first(random):
    found = slides(random, 7)
    drawn, said = composition(found, TISSUES, ("SCC",))
    heights = {each.find("title").text.split(":")[0]: 0.0 for each in rectangles(drawn)}
    for each in rectangles(drawn):
        heights[each.find("title").text.split(":")[0]] += float(each.get("height"))
        assert float(each.get("x")) >= LEFT
        assert float(each.get("x")) + float(each.get("width")) <= WIDTH
    assert list(heights) == [one.slide_id for one in sorted(found, key=lambda one: -one.fractions["SCC"])]
    assert list(heights.values()) == pytest.approx([HEIGHT - TOP - BOTTOM] * 7, abs=0.05)
    assert "Each bar is a slide" in said
    first = rectangles(drawn)[0]
    assert first.get("style") == "fill:var(--t2)"
    assert float(first.get("height")) == pytest.approx(
        max(one.fractions["SCC"] for one in found) * (HEIGHT - TOP - BOTTOM), abs=0.01
    )


def test_many_slides_are_put_together_without_losing_one(random):
    found = slides(random, int(random.integers(MOST_BARS + 1, 4 * MOST_BARS)))
    groups = grouped(found, MOST_BARS)
    assert len(groups) == MOST_BARS
    assert [one for group in groups for one in group] == found
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    drawn, said = composition(found, TISSUES, ("SCC",))
    assert len(rectangles(drawn)) <= 3 * MOST_BARS
    assert "mean of about" in said
    assert grouped([], 5) == []


def test_bins_are_those_of_numpy(random):
    for _ in range(50):
        values = random.exponential(10 ** random.uniform(-3, 2), int(random.integers(1, 60))).tolist()
        step, counts = bins(values)
        expected, _ = np.histogram(values, bins=np.arange(len(counts) + 1) * step)
        assert counts == expected.tolist()
        assert sum(counts) == len(values)
        assert len(counts) <= 18
    assert bins([0.0, 0.0])[1] == [2]


def test_columns_are_as_high_as_counts():
    shown = rectangles(histogram([0.1, 0.1, 0.9], "Deep clearance", "mm"))
    high = [float(each.get("height")) for each in shown]
    told = [int(each.find("title").text.rsplit(": ", 1)[1]) for each in shown]
    assert sum(told) == 3
    for height, count in zip(high, told, strict=True):
        assert height == pytest.approx(count / 2 * max(high), abs=0.06)
    assert "no slide has one" in histogram([], "Deep clearance", "mm").text
    assert "20 to" in histogram([0.2, 0.21], "Cancer", "%").text


def test_borders_are_shares_of_each_cancers_boundary():
    shown = rectangles(borders({"SCC": {"RET": 3.0, "EPI": 1.0}, "BCC": {}}, TISSUES))
    assert [each.find("title").text for each in shown] == ["SCC – RET: 3.00 mm, 75.0%", "SCC – EPI: 1.00 mm, 25.0%"]
    assert float(shown[0].get("width")) == pytest.approx(0.75 * (WIDTH - LEFT), abs=0.06)
