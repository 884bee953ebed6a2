"""Clicks of a person on the small results of the service's tests, and what is shown afterwards."""

import io

import numpy as np
from PIL import Image
from tests.evaluation.small import MPP, NAMES

EPI, RET, BKG, SCC = (NAMES.index(name) for name in ("EPI", "RET", "BKG", "SCC"))
PIXEL_MM2 = MPP**2 / 1e6


def middle_of(mask, tissue):
    """A pixel inside a tissue, as x and y."""
    rows, columns = np.nonzero(mask == tissue)
    at = len(rows) // 2
    return float(columns[at]) + 0.5, float(rows[at]) + 0.5


def click(point, tissue="EPI", **more):
    """The body of a request that names what lies at a point, and nothing else."""
    return {"action": "name", "version": 0, "points": [point], "tissue": tissue, "spread": False, **more}


def image_of(answer):
    assert answer.status_code == 200, answer.text
    return Image.open(io.BytesIO(answer.content))


def shown(client, url, level=8, **query):
    """The corrected mask as the page shows it."""
    tiles = url.replace("corrections", f"tiles/corrected/{level}/0_0.png")
    return np.asarray(image_of(client.get(tiles, params=query))) - np.uint8(1)
