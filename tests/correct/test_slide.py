"""The mask of a segmented slide, its log of corrections, and its region graph: made, kept, refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.evaluation.small import COLOURS, NAMES, ByColour, schema_of
from tests.reference.region_graph import region_graph
from tests.segment.small import paint, write_slide

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT
from ntrm.correct.ask import Ask
from ntrm.correct.engine import NotReadyError
from ntrm.correct.engine.parts_engine import PARTS, region_graph_in
from ntrm.correct.log import ConflictError
from ntrm.correct.mask import open_mask
from ntrm.correct.slide import SlideCorrections
from ntrm.models.predictor import Predictor
from ntrm.segment.batch import segment_slides
from ntrm.slides.inputs import SlideInput

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    """A slide, what is painted on it, and its results."""
    folder = tmp_path_factory.mktemp("segmented")
    painted = paint(np.random.default_rng(4))
    slide = write_slide(folder / "slides" / "a.tif", painted)
    segment_slides([slide], out=folder / "out", model=ByColour(), device="cpu", batch=2, tissue_mask=False)
    return slide, painted, folder / "out"


@pytest.fixture
def slide(segmented):
    return SlideInput(segmented[0], "a.tif")


@pytest.fixture
def mask(segmented, tmp_path):
    """In a copy of the results."""
    shutil.copytree(segmented[2], tmp_path / "out")
    return open_mask(tmp_path / "out" / "a")


def predictor(network=None):
    return Predictor(network or ByColour(), "cpu", batch=2)


def test_a_mask_has_the_labels_names_colours_and_size_of_its_results(mask, segmented):
    np.testing.assert_array_equal(mask.labels(), segmented[1])
    assert mask.schema == schema_of()
    assert mask.shape == segmented[1].shape
    assert mask.resolution.x == pytest.approx(6.7)
    assert mask.record.mask == sha256_of(mask.folder / "mask.ome.tif")
    assert (mask.record.slide_id, mask.record.classes) == ("a", NAMES)


def test_a_region_graph_is_that_of_the_picture(mask, slide, segmented):
    assert region_graph_in(mask) is None
    PARTS.prepare(mask, slide, predictor())
    graph = region_graph_in(mask)
    image = np.array(COLOURS, dtype=np.uint8)[segmented[1]]
    expected = region_graph(predictor(), image, segmented[1], mask.resolution)
    np.testing.assert_array_equal(graph.mask(), segmented[1])
    np.testing.assert_array_equal(graph.runs.dense(), expected.runs.dense())
    np.testing.assert_allclose(graph.probabilities, expected.probabilities, atol=1e-6)
    np.testing.assert_allclose(graph.features["colour"], expected.features["colour"], atol=1e-6)


def test_a_damaged_or_foreign_region_graph_is_as_if_absent(mask, slide):
    path = mask.folder / ".ntrm" / "region-graph.npz"
    PARTS.prepare(mask, slide, predictor())
    graph = region_graph_in(mask)
    whole = path.read_bytes()
    for content in (b"", b"nothing", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert region_graph_in(mask) is None
    graph.save(path, "another mask or model")
    assert region_graph_in(mask) is None
    path.write_bytes(whole)
    assert region_graph_in(mask) is not None


def test_another_file_scale_or_model_makes_no_region_graph(mask, slide, tmp_path):
    other = write_slide(tmp_path / "other.tif", paint(np.random.default_rng(9)))
    with pytest.raises(RefusedError, match="made from another file"):
        PARTS.prepare(mask, SlideInput(other, "other.tif"), predictor())
    with pytest.raises(RefusedError, match="made from another file"):
        PARTS.prepare(mask, SlideInput(tmp_path / "gone.tif", "gone.tif"), predictor())
    with pytest.raises(RefusedError, match="slide and mask do not match"):
        PARTS.prepare(mask, replace(slide, mpp=Resolution.square(3.0)), predictor())
    with pytest.raises(RefusedError, match="made with another model"):
        mask.check_model("0" * 64)
    mask.check_model(mask.summary.model["sha256"])


def ask(slide, action, **fields):
    return TypeAdapter(Ask).validate_python({"action": action, "version": slide.log.version, **fields})


def square(slide):
    """The corners of 10 × 10 pixels in the corner of the mask."""
    return [tuple(side * at for side, at in zip(slide.scale, (x, y), strict=True)) for x, y in CORNERS]


CORNERS = ((0, 0), (10, 0), (10, 10), (0, 10))


def test_a_step_is_taken_undone_and_done_again(mask):
    slide = SlideCorrections(mask.folder)
    drawn = ask(slide, "draw", kind="area", points=square(slide), tissue="SCC", by="ab")
    step = slide.take(drawn, origin="page")
    assert (step.number, step.action, step.tissue, step.origin, step.by) == (1, "draw", "SCC", "page", "ab")
    assert slide.state().by_hand.pixels == 100
    assert slide.take(ask(slide, "undo"), origin="page").of == 1
    assert (slide.state().by_hand.pixels, slide.state(1).by_hand.pixels) == (0, 100)
    assert slide.take(ask(slide, "redo"), origin="page").of == 1
    assert SlideCorrections(mask.folder).log == slide.log
    with pytest.raises(ConflictError, match="meanwhile"):
        slide.take(drawn, origin="page")


def test_a_step_that_is_sent_twice_is_taken_once(mask):
    slide, other = SlideCorrections(mask.folder), SlideCorrections(mask.folder)
    drawn = ask(slide, "draw", kind="area", points=square(slide), tissue="SCC", key="a1")
    first = slide.take(drawn, origin="page")
    assert slide.take(ask(slide, "undo", key="a2"), origin="page").number == 2
    assert slide.take(drawn, origin="page") == other.take(drawn, origin="page") == first
    assert slide.log.version == 2


def test_before_parts_are_known_only_whole_regions_are_named(mask, slide):
    corrections = SlideCorrections(mask.folder)
    there = {"points": [corrections.point((5, 5))], "tissue": "SCC"}
    with pytest.raises(NotReadyError, match="not known yet"):
        corrections.propose(ask(corrections, "name", **there, whole_regions=True))
    named = corrections.propose(ask(corrections, "name", **there, whole_regions=True, spread=False)).named
    assert corrections.engine.order(mask).order == "area"
    corrections.engine.prepare(mask, slide, predictor(), SILENT)
    assert corrections.is_ready
    assert corrections.engine.order(mask).order == "likely errors"
    same = corrections.propose(ask(corrections, "name", **there, whole_regions=True, spread=False))
    assert (same.named.text, same.regions) == (named.text, 1)
    alone = corrections.take(ask(corrections, "name", **there, spread=False), origin="page")
    assert (alone.regions, alone.followed, alone.spread, alone.reach) == (1, {}, None, None)
    for wrong, what in (({"points": []}, "nothing is chosen"), ({"tissue": "EPL"}, "unknown class")):
        with pytest.raises(UsageError, match=what):
            corrections.propose(ask(corrections, "name", **(there | wrong)))
    part = corrections.part((0.0, 0.0), whole_region=False)
    assert (part.network, part.by_hand) == (corrections.mask.labels()[0, 0], True)
