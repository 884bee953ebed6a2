import signal
import threading

import pytest

from ntrm.core.processes import terminated_like_interrupted


def test_sigterm_ends_the_work_like_an_interrupt():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_the_signal_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look():
        with terminated_like_interrupted():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
