"""What several tests of this folder read."""

import pytest
from tests.phantom.small import small

from ntrm.phantom.layout import layout


@pytest.fixture(scope="session")
def sections():
    """Small synthetic sections at 6.7 µm/px."""
    chosen = (("BCC", 400), ("SCC", 410), ("IEC", 420), ("SCC", 430))
    return [layout(small(seed, cancer), 6.7, cancer) for cancer, seed in chosen]
