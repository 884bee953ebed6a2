import os
import signal
import threading

import pytest

from ntrm.training.interruption import SIGNALS, InterruptedTrainingError, Interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_remembered_and_stops_nothing(number):
    with Interruption() as interruption:
        assert not interruption.agreed(1)
        os.kill(os.getpid(), number)
        assert interruption.agreed(1)
    error = interruption.error(saved=17)
    assert error.exit_code == 130
    assert number.name in error.what
    assert "after step 17" in error.what
    assert "--resume" in error.hint


def test_a_second_signal_stops_at_once():
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.name == "SIGINT"
        with pytest.raises(InterruptedTrainingError, match="at once by a second SIGTERM"):
            os.kill(os.getpid(), signal.SIGTERM)


def test_whoever_had_the_signals_gets_them_back():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGTERM)
            assert interruption.name == "SIGTERM"
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_a_thread_no_signals_are_taken():
    handlers = [signal.getsignal(number) for number in SIGNALS]
    found = []

    def work():
        with Interruption() as interruption:
            found.append(interruption.agreed(1))
            found.append([signal.getsignal(number) for number in SIGNALS] == handlers)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, True]


def test_before_the_first_checkpoint_that_is_said():
    assert "nothing was written" in Interruption().error(saved=0).what
