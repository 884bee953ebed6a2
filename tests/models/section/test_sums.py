import numpy as np
import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.models.section.sums import SectionSums


@pytest.fixture
def sums(random):
    shapes = (7, 3, 4), (7, 3), (7, 2, 3, 3)
    return SectionSums(*(torch.from_numpy(random.normal(size=shape)) for shape in shapes))


def test_rows_are_added_up_by_their_group(sums):
    groups = torch.tensor([2, 0, 2, 3, 0, 2, 3])
    pooled = sums.pooled(groups, 5)
    for part, whole in zip(sums, pooled, strict=True):
        expected = np.zeros((5, *part.shape[1:]))
        np.add.at(expected, groups.numpy(), part.numpy())
        np.testing.assert_allclose(whole.numpy(), expected, atol=1e-12)
    within = sums.within(groups)
    for one, two in zip(within, pooled.rows(groups), strict=True):
        torch.testing.assert_close(one, two)


def test_adding_windows_is_adding_their_sums(sums):
    groups = torch.tensor([0, 1, 0, 1, 1, 0, 0])
    whole = sums.pooled(groups, 2)
    parts = [
        SectionSums(*(part[i : i + 1] for part in sums)).pooled(groups[i : i + 1], 2) for i in (3, 1, 0, 6, 2, 5, 4)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    for one, two in zip(total, whole, strict=True):
        torch.testing.assert_close(one, two)


def test_one_row_serves_all_windows_and_others_must_fit(sums):
    single = SectionSums(*(part[:1] for part in sums))
    assert single.expanded(4).features.shape == (4, 3, 4)
    assert sums.expanded(7) is sums
    with pytest.raises(UsageError, match="7 rows for 4 windows"):
        sums.expanded(4)


def test_numbers_of_another_kind(sums):
    assert all(part.dtype == torch.float32 for part in sums.cast(torch.float32))
    with pytest.raises(TypeError):
        sums + 3
