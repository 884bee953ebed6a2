"""Pages as a reader meets them: what they say, and that they need and run nothing."""

from html.parser import HTMLParser

from lxml import html

VOID = {"meta", "img", "input", "br"}
HOSTILE = "</style><script>alert('x')</script>&\"{{ 7 * 7 }}<svg onload=x>µ–"
"""A name that no page may take for anything but a name."""


class Page(HTMLParser):
    """Reads a page as strictly as it can: tags closed in order; keeps texts, attributes and what is fetched."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.texts, self.links, self.tags, self.attributes, self.ids = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, attrs)

    def _note(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self.ids += [value for key, value in attrs if key == "id"]
        self.links += [value for key, value in attrs if key in ("src", "href", "action", "data", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        """All that a reader sees, blanks as one."""
        return " ".join(" ".join(self.texts).split())


def check_safe(text):
    """A page that needs nothing and runs nothing: fit for a policy of inline style and data pictures only."""
    page = Page(text)
    assert not {"script", "iframe", "object", "embed", "link", "base", "form", "foreignobject"} & set(page.tags)
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert not [value for _, _, value in page.attributes if "javascript:" in value.lower()]
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert len(page.ids) == len(set(page.ids))
    assert text.startswith("<!doctype html>")
    return page


def words(element):
    """All that an element says, blanks as one."""
    return " ".join(" ".join(element.itertext()).split())


def rows(text, heading=None):
    """Head and further cells of the rows of all tables, or of those below a heading."""
    page = html.fromstring(text)
    parts = [part for part in page.iter("section") if heading in (None, words(part.find("h2")))]
    found = [row for part in parts for row in part.iterfind(".//tbody/tr")]
    return [(words(row[0]), [words(cell) for cell in row[1:]]) for row in found]


def cells(text, first):
    """The cells of all rows with this head."""
    return [values for head, values in rows(text) if head == first]
