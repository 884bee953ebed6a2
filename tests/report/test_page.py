from html.parser import HTMLParser

import numpy as np
from PIL import Image

from ntrm.report.page import Markup, picture, section, swatch, table, write_page


class Checker(HTMLParser):
    """Collects texts and makes sure that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.sources = [], [], []

    def handle_starttag(self, tag, attrs):
        self.sources += [value for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_page_is_well_formed_self_contained_and_escaped(tmp_path):
    Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    hostile = "<script>alert('x')</script>"
    body = section(hostile, table(["a", "b"], [[hostile, 1], [swatch((1, 2, 3), hostile), 2.5]]))
    write_page(tmp_path / "p.html", hostile, hostile, [body, section("p", picture(tmp_path / "a.png", hostile))])
    text = (tmp_path / "p.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "<script" not in text
    assert checker.texts.count(hostile) >= 5
    assert all(source.startswith("data:image/png;base64,") for source in checker.sources)
    assert "http" not in text
    assert "Research use only" in text


def test_numbers_stand_to_the_right():
    text = table(["name", "share"], [["a", "5%"], ["b", "–"]]).text
    assert text.count('class="number"') == 3
    assert 'class="number"' not in table(["x"], [[Markup("1")]]).text
