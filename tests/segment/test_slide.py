"""The files of a slide are written while the network works on the next: never of two, and with the same bytes."""

import numpy as np
import pytest
from tests.evaluation.small import ByColour
from tests.helpers import wait_for
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


def test_the_next_slide_is_opened_while_the_files_of_one_are_written(tmp_path, slides, expected, monkeypatch):
    seen = []

    def noting(what, real):
        def noted(*given, **more):
            seen.append(what)
            if what == "files":  # after the last slide no other is opened
                wait_for("the next slide", lambda: seen.count("open") > min(seen.count("files"), 2))
            found = real(*given, **more)
            seen.append(f"end of {what}")
            return found

        return noted

    monkeypatch.setattr(one_slide, "inspect_slide", noting("open", one_slide.inspect_slide))
    monkeypatch.setattr(one_slide, "write_outputs", noting("files", one_slide.write_outputs))
    assert [each.status for each in run(slides, tmp_path / "out").slides] == ["done"] * 3
    assert fingerprints(tmp_path / "out") == expected
    third = [place for place, what in enumerate(seen) if what == "open"][2]
    assert seen.index("end of files") < third, "no third slide is held in memory"


def test_an_error_of_either_thread_is_the_slides(tmp_path, slides, monkeypatch):
    def fails(*_, **__):
        raise DataError("no room")

    for module, function in ((slide_files, "write_geojson"), (one_slide, "write_overlays")):
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
