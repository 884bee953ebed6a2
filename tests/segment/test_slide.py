"""The files of a slide are written while the network works on the next: never of two, and with the same bytes."""

import threading

import numpy as np
import pytest
from tests.evaluation.small import ByColour
from tests.segment.small import fail_at, fingerprints, paint, run, write_slide

from ntrm.core.errors import DataError
from ntrm.results.slide_state import alone
from ntrm.segment import slide as one_slide
from ntrm.segment import slide_files
from ntrm.segment.segmenter import Segmenter
from ntrm.segment.slide import SlideTask
from ntrm.segment.tabulating import tabulate
from ntrm.slides.inputs import SlideInput

pytestmark = pytest.mark.usefixtures("quick_readers")

LONG_S = 120


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    random, folder = np.random.default_rng(1), tmp_path_factory.mktemp("slides")
    return [write_slide(folder / f"{name}.tif", paint(random)) for name in "abc"]


@pytest.fixture(scope="module")
def expected(slides, tmp_path_factory):
    """Every file of the slides, segmented strictly one after the other."""
    one_by_one = Segmenter(ByColour(), tmp_path_factory.mktemp("expected"), device="cpu", batch=2)
    one_by_one.check_folder()
    for slide in slides:
        assert one_by_one.segment(SlideTask(SlideInput(slide, slide.name), slide.stem)).status == "done"
    tabulate(one_by_one.out, one_by_one.run, ())
    return fingerprints(one_by_one.out)


class Steps:
    """Notes when a slide is opened and when its files are begun and ended; ``write_outputs`` may be held up."""

    def __init__(self, monkeypatch, before=lambda slide_id: None):
        self.seen = []
        self.threads = set()
        self.opened = threading.Condition()
        inspect_slide, write_outputs = one_slide.inspect_slide, one_slide.write_outputs

        def looking(*given):
            self.note("opened")
            return inspect_slide(*given)

        def writing(found, *given):
            self.threads.add(threading.current_thread().name.split("_")[0])
            self.note(f"files of {found.files.slide_id}")
            before(found.files.slide_id)
            tables = write_outputs(found, *given)
            self.note(f"end of {found.files.slide_id}")
            return tables

        monkeypatch.setattr(one_slide, "inspect_slide", looking)
        monkeypatch.setattr(one_slide, "write_outputs", writing)

    def note(self, what):
        with self.opened:
            self.seen.append(what)
            self.opened.notify_all()

    def wait_for_opened(self, count):
        with self.opened:
            assert self.opened.wait_for(lambda: self.seen.count("opened") >= count, LONG_S)


def test_the_next_slide_is_opened_while_the_files_of_one_are_written(tmp_path, slides, expected, monkeypatch):
    # None of these would end if files were written before the next slide is begun.
    awaited = {"a": 2, "b": 3}
    steps = Steps(monkeypatch, lambda slide_id: steps.wait_for_opened(awaited.get(slide_id, 0)))
    found = run(slides, tmp_path / "out")
    assert [(each.slide_id, each.status) for each in found.slides] == [(name, "done") for name in "abc"]
    assert fingerprints(tmp_path / "out") == expected
    # The third is not begun before the first is done with.
    third = [place for place, what in enumerate(steps.seen) if what == "opened"][2]
    assert steps.seen.index("end of a") < third
    assert steps.seen[-2:] == ["files of c", "end of c"]
    assert steps.threads == {"ntrm-write"}


def test_an_error_of_either_thread_is_the_slides(tmp_path, slides, monkeypatch):
    def fails(*_, **__):
        raise DataError("no room")

    common = ((slide_files, "write_mask_ome_tiff"), (slide_files, "write_geojson"))
    for module, function in (*common, (one_slide, "write_slide_report"), (one_slide, "write_overlays")):
        with monkeypatch.context() as patched:
            patched.setattr(module, function, fails)
            found = run(slides[:1], tmp_path / "out")
        assert found.slides[0].status == "failed", function
        assert "no room" in found.slides[0].reason, function
    assert run(slides[:1], tmp_path / "out").exit_code == 0


def test_files_have_the_same_bytes_whatever_the_threads_and_the_parts_that_they_work_on(
    tmp_path, slides, expected, monkeypatch
):
    monkeypatch.setattr("ntrm.core.threads.cores_given", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    parts = {"export.pyramid.BAND_PIXELS": 2000, "segment.pictures.ROWS": 32, "regions.regions.STRIP_PIXELS": 1000}
    for name, size in {**parts, "segment.measurements.TOGETHER": 0, "segment.slide.BEHIND": 0}.items():
        monkeypatch.setattr(f"ntrm.{name}", size)
    assert run(slides, tmp_path / "out").exit_code == 0
    assert fingerprints(tmp_path / "out") == expected


def test_a_slide_that_is_replaced_before_it_is_finished_begins_anew(tmp_path, slides, expected, monkeypatch):
    path = tmp_path / "a.tif"
    path.write_bytes(slides[1].read_bytes())
    with monkeypatch.context() as patched:
        fail_at(patched, 1, DataError("a damaged tile"))
        assert run(path, tmp_path / "out").slides[0].status == "failed"
    path.write_bytes(slides[0].read_bytes())
    with alone(tmp_path / "out" / "a"):
        assert run(path, tmp_path / "out").slides[0].status == "busy"
    assert run(path, tmp_path / "out").slides[0].status == "done"
    found = fingerprints(tmp_path / "out" / "a")
    assert found == {name.removeprefix("a/"): digest for name, digest in expected.items() if name.startswith("a/")}
