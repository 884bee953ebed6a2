import numpy as np
import pytest
from PIL import Image
from tests.report.pages import HOSTILE, check_safe, rows

from ntrm.report.html import NOTICE, data_uri, write_page

TISSUE = {"rgb": (1, 2, 3), "name": HOSTILE, "explanation": HOSTILE}
DATASET = {
    "title": HOSTILE,
    "stats": {"sections": 3, "patients": 2, "tissues_per_tile": {"mean": 1.25}},
    "shown": HOSTILE,
    "tissues": [{"tissue": TISSUE, "share": "5%", "neighbours": ""}],
    "numbers": [("splits", HOSTILE)],
    "faults": [("code", HOSTILE, HOSTILE, HOSTILE)],
}


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(path)
    return path


def test_a_page_is_well_formed_self_contained_and_escaped(tmp_path, picture):
    write_page(tmp_path / "p.html", "dataset_report.html", **DATASET, sheet=picture, figure=picture)
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    page = check_safe(text)
    assert page.texts.count(HOSTILE) >= 8
    assert page.links == [data_uri(picture.read_bytes(), "png")] * 2
    assert page.text.count(NOTICE) == 2
    assert rows(text, "Tissues") == [(HOSTILE, [HOSTILE, "5%", "–"])]
    assert rows(text, "Check") == [("code", [HOSTILE] * 3)]
