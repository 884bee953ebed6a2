import pickle

import numpy as np
import pytest

from ntrm.core.errors import (
    MOST_SEED,
    DataError,
    NtrmError,
    RefusedError,
    UsageError,
    check_number,
    check_seed,
    plain_number,
)


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


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64, 1.5, True, "0"])
def test_a_seed_that_some_generator_would_not_take_is_refused(seed):
    check_seed(0)
    check_seed(MOST_SEED)
    with pytest.raises(UsageError, match="impossible seed"):
        check_seed(seed)


@pytest.mark.parametrize("number", [3, np.int64(3), np.uint8(3), 0.5, np.float32(0.5), np.float64(0.5)])
def test_numbers_of_numpy_are_numbers(number):
    check_number("width", number, 0, 4)
    if number == 3:
        check_number("width", number, 0, 4, whole=True)
    else:
        with pytest.raises(UsageError, match="a whole number from 0 to 4"):
            check_number("width", number, 0, 4, whole=True)
    assert type(plain_number(number)) is (int if number == 3 else float)
    assert plain_number(number) == number


@pytest.mark.parametrize("value", [True, np.True_, "3", None, np.nan, np.float32("nan"), 1j, [3], np.int64(5)])
def test_what_is_no_number_in_range_is_refused(value):
    with pytest.raises(UsageError, match="impossible width"):
        check_number("width", value, 0, 4)
    if not isinstance(value, float | np.number):
        assert plain_number(value) is value
