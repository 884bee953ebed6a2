"""What workers do in tests, in a module that takes them no time to import."""

import os
import signal

from ntrm.core.errors import DataError
from ntrm.core.processes import terminated_like_interrupted


def tell_handler(results):
    """Whether SIGTERM is left to the system."""
    with terminated_like_interrupted():
        results.put(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)


def refuse_three(number):
    if number == 3:
        raise DataError("three", got=number, hint="take four")
    return number * number


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)
    return number
