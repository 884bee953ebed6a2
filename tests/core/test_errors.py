import pickle

import pytest

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError


def test_exit_codes_are_those_of_the_interface():
    assert (NtrmError.exit_code, DataError.exit_code) == (1, 1)
    assert (UsageError.exit_code, RefusedError.exit_code) == (2, 3)


@pytest.mark.parametrize("kind", [NtrmError, DataError, UsageError, RefusedError])
def test_errors_cross_process_borders_whole(kind):
    error = kind("what", got=3, expected=[1, 2], hint="do this")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.hint == "do this"
