"""The mask of a segmented slide, its log of corrections, and its texture: read, kept, refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.evaluation.small import NAMES, ByColour, schema_of
from tests.segment.small import paint, write_slide

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.core.mpp import Resolution
from ntrm.correct.ask import Ask
from ntrm.correct.engine import ENGINE, NotReadyError, seen_in
from ntrm.correct.log import ConflictError
from ntrm.correct.mask import open_mask
from ntrm.correct.slide import SlideCorrections
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


def test_a_mask_has_the_labels_names_colours_and_size_of_its_results(mask, segmented):
    np.testing.assert_array_equal(mask.labels(), segmented[1])
    assert mask.schema == schema_of()
    assert mask.shape == segmented[1].shape
    assert mask.resolution.x == pytest.approx(6.7)
    assert mask.record.mask == sha256_of(mask.folder / "mask.ome.tif")
    assert (mask.record.slide_id, mask.record.classes) == ("a", NAMES)


def test_texture_is_read_once_and_what_is_damaged_or_foreign_is_as_if_absent(mask, slide):
    assert seen_in(mask) is None
    ENGINE.prepare(mask, slide)
    seen, path = seen_in(mask), mask.folder / ".ntrm" / "texture.npz"
    assert seen.texture.shape == mask.shape
    np.testing.assert_array_equal(seen.labels, mask.labels())
    assert ((seen.sure > 0) & (seen.sure <= 1)).all()
    whole, when = path.read_bytes(), path.stat().st_mtime_ns
    ENGINE.prepare(mask, slide)
    assert path.stat().st_mtime_ns == when
    for content in (b"", b"nothing", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert seen_in(mask) is None
    seen.texture.save(path, "another mask")
    assert seen_in(mask) is None
    path.write_bytes(whole)
    assert seen_in(mask) is not None


def test_of_another_file_or_scale_no_texture_is_read(mask, slide, tmp_path):
    other = write_slide(tmp_path / "other.tif", paint(np.random.default_rng(9)))
    with pytest.raises(RefusedError, match="made from another file"):
        ENGINE.prepare(mask, SlideInput(other, "other.tif"))
    with pytest.raises(RefusedError, match="made from another file"):
        ENGINE.prepare(mask, SlideInput(tmp_path / "gone.tif", "gone.tif"))
    with pytest.raises(RefusedError, match="slide and mask do not match"):
        ENGINE.prepare(mask, replace(slide, mpp=Resolution.square(3.0)))


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


def test_before_texture_is_read_names_are_not_carried_on(mask, slide):
    corrections = SlideCorrections(mask.folder)
    there = {"points": [corrections.point((5, 5))], "tissue": "SCC"}
    with pytest.raises(NotReadyError, match="has not been read"):
        corrections.propose(ask(corrections, "name", **there))
    region = corrections.propose(ask(corrections, "name", **there, whole_regions=True, spread=False))
    assert (region.named.text, region.regions) == (corrections.part((5, 5), whole_region=True).pixels.text, 1)
    assert all(each.why == "" for each in corrections.suggestions())
    ENGINE.prepare(mask, slide)
    assert corrections.is_ready
    alone = corrections.take(ask(corrections, "name", **there, spread=False), origin="page")
    assert (alone.regions, alone.followed, alone.spread, alone.reach) == (1, {}, None, None)
    rows, columns = np.ogrid[: mask.shape[0], : mask.shape[1]]
    named = corrections.state().by_hand.rows(0, *mask.shape)
    np.testing.assert_array_equal(named, (rows - 5) ** 2 + (columns - 5) ** 2 <= 9)
    for wrong, what in (({"points": []}, "nothing is chosen"), ({"tissue": "EPL"}, "unknown class")):
        with pytest.raises(UsageError, match=what):
            corrections.propose(ask(corrections, "name", **(there | wrong)))
    part = corrections.part(corrections.point((5, 5)), whole_region=False)
    assert (part.network, part.by_hand) == (corrections.mask.labels()[5, 5], True)
    assert corrections.suggestions()


def test_a_lasso_names_the_tissue_inside(mask):
    corrections = SlideCorrections(mask.folder)
    asked = ask(corrections, "name", lasso=square(corrections), points=[], tissue="SCC", spread=False)
    named = corrections.propose(asked).named.rows(0, *mask.shape)
    inside = np.zeros(mask.shape, dtype=bool)
    inside[:10, :10] = True
    glass = inside & (mask.labels() == mask.schema.background_index)
    np.testing.assert_array_equal(named, inside if (glass == inside).all() else inside & ~glass)
