"""A folder of results to report on: real ones of small painted slides, made once for each test process."""

import atexit
import functools
import json
import shutil
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from tests.evaluation.small import ByColour
from tests.pipeline.small import paint, write_slide

from ntrm.pipeline.batch import segment

VOID = {"meta", "img", "input", "br"}


@functools.cache
def made():
    """One slide of one piece, one of two, and one that failed."""
    random = np.random.default_rng(0)
    folder = Path(tempfile.mkdtemp(prefix="ntrm-report-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    slides = [write_slide(folder / f"{name}.tif", paint(random, pieces=n)) for name, n in (("one", 1), ("two", 2))]
    broken = folder / "broken.svs"
    broken.write_bytes(b"nothing")
    segment([*slides, broken], out=folder / "out", model=ByColour(), device="cpu", batch=2)
    return folder / "out"


def document(path):
    return json.loads(path.read_text(encoding="utf-8"))


def change(path, edit):
    """Apply ``edit`` to a JSON file; returns the document."""
    found = document(path)
    edit(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    return found


def network_relations(names):
    """Relations of a network between classes of these names, the k-th pair stronger than the one before."""
    size = len(names)
    attention = [[0.0 if i == j else (1 + i * size + j) / 1000 for j in range(size)] for i in range(size)]
    weight = [[round(value / 2, 6) for value in row] for row in attention]
    return {"names": list(names), "attention": attention, "edge_weight": weight, "windows": 7, "note": "what was used"}


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
