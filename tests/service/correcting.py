"""Clicks of a person on the small results of the service's tests."""

import numpy as np
import pytest
from tests.evaluation.small import NAMES
from tests.service.small import only_slide, serving, settings_of

EPI, RET, BKG, SCC = (NAMES.index(name) for name in ("EPI", "RET", "BKG", "SCC"))


@pytest.fixture
def client(tmp_path, results, model):
    """A service with one segmented slide."""
    with serving(settings_of(tmp_path / "out", model, roots=(results[0].parent,))) as client:
        yield client


@pytest.fixture
def url(client):
    """Where that slide's corrections are."""
    return f"/v1/slides/{only_slide(client)['id']}/corrections"


def middle_of(mask, tissue):
    """A pixel inside a tissue, as x and y."""
    rows, columns = np.nonzero(mask == tissue)
    at = len(rows) // 2
    return float(columns[at]) + 0.5, float(rows[at]) + 0.5


def click(point, tissue="EPI", **more):
    """The body of a request that names what lies at a point, and nothing else."""
    return {"version": 0, "points": [point], "tissue": tissue, "spread": False, **more}
