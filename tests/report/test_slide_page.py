import re

from tests.report.segmented import check_safe

from ntrm.report.page import NOTICE, Markup
from ntrm.report.slide_page import STYLE, page, paragraph, section, swatch, table, track

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def test_whatever_enters_is_escaped_and_the_notice_stands_twice():
    body = [section(HOSTILE, paragraph(HOSTILE), table([(HOSTILE, "n")], [[HOSTILE]]))]
    found = check_safe(page(HOSTILE, body))
    assert found.texts.count(HOSTILE) == 5
    assert found.text.count(NOTICE) == 2


def test_markup_stays_and_a_table_without_names_has_no_head():
    assert "<b>1</b>" in table([("a", ""), ("b", "n")], [["x", Markup("<b>1</b>")]]).text
    assert "<thead>" not in table([("", ""), ("", "")], [["x", "y"]]).text


def test_bars_are_as_long_as_shares():
    assert "width:25.00%" in track(3, 0.25)
    assert "var(--c3)" in track(3, 0.25)
    assert "width:100.00%" in track(0, 7.0)
    assert track(0, None) == track(0, 0.0) == ""
    assert "var(--m5)" in swatch(5)


def test_every_colour_of_the_style_is_given_in_the_light_in_the_dark_and_on_paper():
    places = ("", r"@media \(prefers-color-scheme: dark\) \{ ", r"@media print \{\s+")
    light, dark, paper = (re.search(rf"^{place}:root (\{{.*?\}})", STYLE, re.DOTALL | re.MULTILINE) for place in places)
    given = set(re.findall(r"(--[\w-]+):", light[1]))
    assert given == set(re.findall(r"(--[\w-]+):", dark[1])) == set(re.findall(r"(--[\w-]+):", paper[1]))
    of_an_element = {"--c", "--m", "--w", "--h"}
    assert set(re.findall(r"var\((--[\w-]+)", STYLE)) - of_an_element == given
