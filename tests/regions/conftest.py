"""What several tests of this folder read."""

import pytest
from tests.phantom.small import small

from ntrm.phantom.layout import layout


@pytest.fixture(scope="session")
def sections():
    """Small synthetic sections at 6.7 µm/px: two with a clearance, one of 0, one that cannot be assessed."""
    chosen = (("BCC", 420), ("BCC", 430), ("SCC", 460), ("IEC", 440))
    return [layout(small(seed, cancer), 6.7, cancer) for cancer, seed in chosen]
