import os
import signal
import threading

import numpy as np
import pytest
from tests.helpers import wait_for
from tests.service.running import children_of
from tests.slides import making

from ntrm.service.tiles.readers import Readers
from ntrm.slides.isolated import ReadingLimits


def children():
    """Process numbers of the readers that we have started and that are not dead; other tests have other children."""
    return children_of(os.getpid(), "ntrm.slides.readers.reading_process")


@pytest.fixture
def readers():
    before = set(children())
    readers = Readers(2, ReadingLimits(seconds=600))
    yield readers
    readers.close_unused()
    wait_for("our readers to end", lambda: set(children()) <= before)


@pytest.fixture
def slides(tmp_path, random):
    images = [making.tissue(random, 80, 90) for _ in range(3)]
    return [(making.write_png(tmp_path / f"{n}.png", image), image) for n, image in enumerate(images)]


def test_few_slides_stay_open_and_all_are_read_rightly(readers, slides):
    before = len(children())
    for path, image in (*slides, slides[0]):
        with readers.using(path) as slide:
            np.testing.assert_array_equal(slide.read(5, 7, 40, 30, 0), image[7:37, 5:45])
    # Two slides with a process each.
    wait_for("the others to end", lambda: len(children()) - before <= 2)


def test_many_threads_share_a_process(readers, slides):
    path, image = slides[0]
    wrong = []

    def read(number):
        with readers.using(path) as slide:
            pixels = slide.read(number, number, 30, 30, 0)
            if not (pixels == image[number : number + 30, number : number + 30]).all():
                wrong.append(number)

    before = len(children())
    threads = [threading.Thread(target=read, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    wait_for("one reader", lambda: len(children()) - before <= 1)


def test_a_killed_process_is_replaced(readers, slides):
    path, image = slides[0]
    others = set(children())
    with readers.using(path) as slide:
        slide.read(0, 0, 1, 1, 0)
        killed = set(children()) - others
        for process in killed:
            os.kill(process, signal.SIGKILL)
        # A process that is told to die lives on for a moment.
        wait_for("their death", lambda: not killed & set(children_of(os.getpid())))
    with readers.using(path) as slide:
        np.testing.assert_array_equal(slide.read(0, 0, 90, 80, 0), image)


def test_a_file_that_changed_is_opened_anew(readers, slides, random):
    path, _ = slides[0]
    with readers.using(path) as slide:
        slide.read(0, 0, 1, 1, 0)
    image = making.tissue(random, 33, 44)
    making.write_png(path, image)
    with readers.using(path) as slide:
        np.testing.assert_array_equal(slide.read(0, 0, 44, 33, 0), image)
