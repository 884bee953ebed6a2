import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ntrm.core.links import earliest_linked


@pytest.mark.parametrize("links", [0, 5, 40, 200])
def test_linked_things_are_the_components_of_scipy(random, links):
    for _ in range(20):
        one, other = random.integers(0, 60, (2, links))
        graph = coo_array((np.ones(links), (one, other)), (60, 60))
        _, component = connected_components(graph, directed=False)
        earliest = [int(np.flatnonzero(component == number)[0]) for number in component]
        assert earliest_linked(one, other, 60).tolist() == earliest


def test_a_long_chain_in_any_order_leads_to_its_first(random):
    order = random.permutation(499)
    assert not earliest_linked(order, order + 1, 500).any()
