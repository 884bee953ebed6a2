"""Clicks of a person on the small results of the service's tests."""

import numpy as np
from tests.evaluation.small import NAMES

EPI, RET, BKG, SCC = (NAMES.index(name) for name in ("EPI", "RET", "BKG", "SCC"))


def middle_of(mask, tissue):
    """A pixel inside a tissue, as x and y."""
    rows, columns = np.nonzero(mask == tissue)
    at = len(rows) // 2
    return float(columns[at]) + 0.5, float(rows[at]) + 0.5


def click(point, tissue="EPI", **more):
    """The body of a request that names what lies at a point, and nothing else."""
    return {"action": "name", "version": 0, "points": [point], "tissue": tissue, "spread": False, **more}
