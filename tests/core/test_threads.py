"""Threads: how many there may be, results in order, errors in their turn, no more under way than a few."""

from threading import Lock

import pytest

from ntrm.core.threads import cores_given, most_threads, thread_map


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_the_order_of_the_items(threads: int):
    assert list(thread_map(lambda k: k * k, range(50), threads)) == [k * k for k in range(50)]


def test_an_error_is_raised_in_its_turn_and_drops_what_has_not_begun():
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    results = thread_map(work, range(1000), threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        list(results)
    assert len(begun) < 20


def test_no_more_items_are_taken_than_a_few_beyond_the_results():
    taken, lock = [], Lock()

    def items():
        for number in range(100):
            with lock:
                taken.append(number)
            yield number

    results = thread_map(lambda k: k, items(), threads=3)
    next(results)
    assert len(taken) <= 5
    results.close()


def test_a_process_takes_no_more_threads_than_the_environment_allows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ntrm.core.threads.cores_given", lambda: 8)
    for text, expected in {"3": 3, "64": 8, "2,1": 2, "": 8, "many": 8, "0": 8}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert most_threads() == expected
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert most_threads() == 8
    assert cores_given() >= 1
