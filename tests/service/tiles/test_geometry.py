import numpy as np
import pytest
from tests.service.small import refused

from ntrm.service.tiles.geometry import TILE, DeepZoom


def test_levels_halve_and_tiles_cover_each_level_once(random):
    for _ in range(20):
        width, height = (int(n) for n in random.integers(1, 3000, 2))
        zoom = DeepZoom(width, height)
        sizes = [(width, height)]
        while max(sizes[-1]) > 1:
            sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
        assert [zoom.size(level) for level in range(zoom.top, -1, -1)] == sizes
        level = int(random.integers(0, zoom.top + 1))
        seen = np.zeros(zoom.size(level)[::-1], dtype=int)
        columns, rows = zoom.grid(level)
        for column in range(columns):
            for row in range(rows):
                box = zoom.tile(level, column, row)
                assert max(box.width, box.height) <= TILE
                seen[box.top : box.top + box.height, box.left : box.left + box.width] += 1
        assert (seen == 1).all()


@pytest.mark.parametrize("place", [(11, 0, 0), (-1, 0, 0), (10, 4, 0), (10, 0, 2), (10, -1, 0)])
def test_there_is_nothing_beyond(place):
    with refused(404):
        DeepZoom(1000, 300).tile(*place)
