"""One task after the other; when the block ends badly, what has not begun is not done."""

import threading

import pytest

from ntrm.pipeline.outputs import background_worker


def test_tasks_run_in_order_in_one_other_thread():
    seen = []
    with background_worker() as background:
        tasks = [background.submit(lambda k=k: seen.append((k, threading.get_ident()))) for k in range(5)]
        for task in tasks:
            task.result()
    assert [number for number, _ in seen] == [*range(5)]
    assert {thread for _, thread in seen} != {threading.get_ident()}
    assert len({thread for _, thread in seen}) == 1


def test_after_an_error_the_task_under_way_ends_and_no_other_begins():
    begun, told, seen = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        # Ends only when it is decided what becomes of the second.
        told.wait(60)
        seen.append("first")

    def fails():
        with background_worker() as background:
            background.submit(first)
            background.submit(seen.append, "second").add_done_callback(lambda _: told.set())
            assert begun.wait(60)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == ["first"]
