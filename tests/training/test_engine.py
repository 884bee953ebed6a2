import logging
import warnings

import pytest

from ntrm.training.engine import pl, quiet


def test_lightning_says_nothing_of_itself_inside(caplog):
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    with quiet():
        logging.getLogger("lightning.pytorch.utilities.rank_zero").info("GPU available: no")
        logging.getLogger("lightning.pytorch").warning("something is wrong")
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated", FutureWarning, stacklevel=1)
        warnings.warn("The `srun` command is available on your system but is not used.", UserWarning, stacklevel=1)
    assert logger.level == before
    assert "GPU available" not in caplog.text


def test_other_warnings_come_through():
    with quiet(), pytest.warns(UserWarning, match="loss"):
        warnings.warn("the loss is odd", UserWarning, stacklevel=1)


def test_levels_come_back_after_an_error():
    before = logging.getLogger("lightning.fabric").level
    with pytest.raises(ZeroDivisionError), quiet():
        raise ZeroDivisionError
    assert logging.getLogger("lightning.fabric").level == before


def test_the_version_is_none_of_the_harmful_ones():
    assert tuple(int(part) for part in pl.__version__.split(".")[:3]) >= (2, 6, 6)
