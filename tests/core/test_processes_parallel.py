import os
import signal
from concurrent.futures import ProcessPoolExecutor

import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.core.processes import parallel_map


def refuse_three(number: int) -> int:
    if number == 3:
        raise DataError("three", got=number, hint="take four")
    return number * number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("jobs", [1, 2])
def test_order_is_kept_and_errors_arrive_whole(jobs):
    assert list(parallel_map(refuse_three, [2, 0, 5, 1], jobs)) == [4, 0, 25, 1]
    with pytest.raises(DataError, match="take four") as caught:
        list(parallel_map(refuse_three, [1, 2, 3, 4], jobs))
    assert caught.value.got == 3


def test_items_are_made_while_results_are_taken():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    assert next(parallel_map(abs, items(), jobs=1)) == 0
    assert made == [0]
    assert list(parallel_map(abs, items(), jobs=2)) == list(range(20))


def test_a_killed_worker_is_explained():
    with pytest.raises(DataError, match="--jobs"):
        list(parallel_map(die, [1, 2], jobs=2))


def test_a_worker_that_dies_before_it_begins_is_explained(monkeypatch):
    def break_pipe(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(ProcessPoolExecutor, "_start_executor_manager_thread", break_pipe)
    with pytest.raises(DataError, match="a worker process was killed"):
        list(parallel_map(abs, [1, 2], jobs=2))


def test_nothing_to_do_and_nobody_to_do_it():
    assert list(parallel_map(abs, [], jobs=4)) == []
    with pytest.raises(UsageError, match="jobs"):
        list(parallel_map(abs, [1], jobs=0))
