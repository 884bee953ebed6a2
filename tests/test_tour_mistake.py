"""An error of the bundled model in the tour: found, named, and what one click there would do."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.small import NAMES, ByColour, schema_of
from tests.pipeline.conftest import quick_readers
from tests.pipeline.small import paint, write_slide

from ntrm import tour_mistake
from ntrm.core.labels import SKIN
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.correcting import open_mask, region_graph_in
from ntrm.tour_mistake import KEYS, find_mistake, key_of

__all__ = ["quick_readers"]
KEYS_IN_PAGE = re.compile(r"^const KEYS = \[(.*?)\]", re.MULTILINE)
PAGE = Path(tour_mistake.__file__).parent / "service" / "page" / "js"


@pytest.fixture
def slides(tmp_path, monkeypatch, quick_readers):
    """Slides a and b with their results by a network that names what it sees."""
    monkeypatch.setattr(tour_mistake, "load", lambda _source: ByColour())
    painted = {name: paint(np.random.default_rng(number)) for number, name in enumerate("ab")}
    files = {name: write_slide(tmp_path / "slides" / f"{name}.tif", mask) for name, mask in painted.items()}
    segment_slides([*files.values()], out=tmp_path / "out", model=ByColour(), device="cpu", tissue_mask=False)
    return painted, files, tmp_path / "out"


def test_a_wrong_region_of_the_worst_slide_is_named_and_its_graph_is_kept(slides):
    painted, files, out = slides
    truths = {name: mask.copy() for name, mask in painted.items()}
    truths["a"][100:103, 40:44] = NAMES.index("EPI")
    truths["b"][painted["b"] == NAMES.index("SCC")] = NAMES.index("RET")
    found = find_mistake(out, files, truths)
    assert (found.slide_id, found.called, found.tissue, found.key) == ("b", "SCC", "RET", "2")
    assert painted["b"][found.y, found.x] == NAMES.index("SCC")
    assert truths["b"][found.y, found.x] == NAMES.index("RET")
    assert found.area_mm2 == pytest.approx(20 * 30 * 6.7**2 / 1e6)
    assert found.regions >= 1
    assert found.after > found.before
    assert region_graph_in(open_mask(out / "b")) is not None
    assert not (out / "b" / "corrections.jsonl").exists()
    where, what = found.sentences()
    assert f"b, x {found.x}, y {found.y}: SCC, but it is RET" in where
    assert "press 2" in where
    assert f"{found.before:.3f} → {found.after:.3f}" in what


def test_where_all_is_right_there_is_no_mistake(slides):
    painted, files, out = slides
    assert find_mistake(out, files, painted) is None


def test_keys_are_those_of_the_page():
    found = [KEYS_IN_PAGE.search(path.read_text(encoding="utf-8")) for path in sorted(PAGE.glob("correct*.js"))]
    (page,) = [match[1] for match in found if match]
    assert page.replace('"', "").replace(", ", "") == KEYS
    assert [key_of(SKIN, name) for name in ("EPI", "KER", "BCC", "BKG")] == ["1", "8", "9", "h"]
    assert key_of(schema_of(), "BKG") == "4"
