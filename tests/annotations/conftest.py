import numpy as np
import pytest
from PIL import Image
from tests.annotations.small import annotate, box, drawn


@pytest.fixture
def pixels(random):
    return random.integers(0, 256, (120, 200, 3), dtype=np.uint8)


@pytest.fixture
def folders(tmp_path, pixels):
    """Slides a and b with annotations of a tissue and a nest in it; b's has a hole."""
    slides, marks = tmp_path / "slides", tmp_path / "marks"
    slides.mkdir()
    for name in "ab":
        Image.fromarray(pixels).save(slides / f"{name}.png")
    annotate(marks / "a.geojson", drawn("BCC", box(60, 50, 80, 70)), drawn("Reticular dermis", box(40, 40, 100, 90)))
    annotate(marks / "b.geojson", drawn("EPI", box(20, 20, 60, 60), box(30, 30, 40, 40)), drawn("", box(0, 0, 9, 9)))
    return slides, marks, tmp_path / "out"
