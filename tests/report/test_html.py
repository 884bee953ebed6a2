import shutil
from types import SimpleNamespace

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
    "faults": [("code", HOSTILE, HOSTILE, HOSTILE)],
}


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(path)
    return path


def test_the_page_of_the_tour_escapes_what_it_adds(tmp_path, picture):
    for name in ("examples", "improvement", "confusion"):
        shutil.copy(picture, tmp_path / f"{name}.png")
    tissue, scores = SimpleNamespace(**TISSUE, title=HOSTILE, index=0), {"iou": [0.5], "dice": [float("nan")]}
    schema = SimpleNamespace(tissues=[tissue])
    pooled = SimpleNamespace(macro={"iou": 0.5}, pixel_accuracy=0.75, schema=schema, per_class=scores)
    write_page(
        tmp_path / "tour.html",
        "tour.html",
        **DATASET,
        sheet=picture,
        figure=picture,
        scored=SimpleNamespace(sections=[1, 2], pooled=pooled),
        scores=tmp_path,
        slides=[(HOSTILE, HOSTILE, "1.5")],
        overlay=(HOSTILE, picture),
        mistake=SimpleNamespace(slide_id=HOSTILE, x=3, y=5, tissue=HOSTILE, sentences=lambda: [HOSTILE]),
    )
    text = (tmp_path / "tour.html").read_text(encoding="utf-8")
    page = check_safe(text)
    assert page.texts.count(HOSTILE) >= 8
    assert page.text.count(NOTICE) == 2
    assert rows(text, "Check") == [("code", [HOSTILE] * 3)]
    assert "The model has a relation module." in page.text
    assert f"--click {HOSTILE} 3 5 {HOSTILE} --preview" in page.text
    assert "on 2 sections it has never seen: mean IoU 0.500, pixel accuracy 0.750" in page.text
    assert rows(text, "Segmentation by the bundled model") == [(HOSTILE, [HOSTILE, "0.500", "–"])]
    assert rows(text, "Slides") == [(HOSTILE, [HOSTILE, "1.5"])]
    assert [link for link in page.links if link != data_uri(picture.read_bytes(), "png")] == ["results/index.html"]
