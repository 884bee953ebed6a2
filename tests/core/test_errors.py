import pickle

import pytest

from ntrm.core.errors import MOST_SEED, DataError, NtrmError, RefusedError, UsageError, check_seed


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
