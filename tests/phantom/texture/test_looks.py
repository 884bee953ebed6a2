"""Looks: what varies from section to section, woven keratin and melanin."""

from dataclasses import replace

import numpy as np
import pytest
from tests.phantom.masks import layered

from ntrm.core.labels import SKIN
from ntrm.phantom.render import Artefacts, render
from ntrm.phantom.stain import Stain
from ntrm.phantom.texture.looks import LookParameters
from ntrm.phantom.tissues import CODES
from ntrm.phantom.versions import VERSIONS, Version

CLEAN = {"artefacts": Artefacts(), "stain": Stain(), "version": "2"}
STILL = LookParameters(loose=0.0, dark=0.0, pigmented=0.0)


@pytest.fixture
def looks(monkeypatch):
    """Set the looks of version 2."""

    def choose(kind):
        before = VERSIONS["2"]
        monkeypatch.setitem(VERSIONS, "2", Version(before.with_cancer, before.normal, kind))

    return choose


def colour(value, seed):
    mask = np.full((64, 64), value, dtype=np.uint8)
    return render(mask, 6.7, seed, **CLEAN).reshape(-1, 3).mean(axis=0)


def test_fine_tissues_have_their_colours(seed, looks):
    looks(STILL)
    plain = {name: colour(SKIN.index(name), seed) for name in ("RET", "PAP", "GLD", "KER")}
    fine = {pair: colour(code, seed) for pair, code in CODES.items()}
    assert fine["lumen", "RET"].min() > 250
    assert fine["red cells", "RET"][1] < plain["RET"][1] - 40, "blood is red"
    assert fine["muscle", "RET"][1] < plain["RET"][1] - 10, "muscle is pinker than collagen"
    assert fine["scar", "RET"][1] < plain["RET"][1] - 5, "a scar is denser"
    assert fine["oedema", "PAP"][1] > plain["PAP"][1] + 8, "oedema is paler"
    red, green, _ = fine["elastosis", "RET"] - plain["RET"]
    assert red < min(-4, green), "elastosis is bluer"
    assert fine["sebaceous", "GLD"][1] > fine["eccrine", "GLD"][1] + 5, "sebaceous cells are pale"
    assert fine["basket weave", "KER"][1] > plain["KER"][1] + 15, "there are gaps between strands"


def test_melanin_browns_the_basal_layer_and_nothing_else(seed, looks):
    mask = layered((140, 140))
    looks(STILL)
    before = render(mask, 6.7, seed, **CLEAN).astype(int)
    looks(replace(STILL, pigmented=1.0, melanin=(0.4, 0.4), melanophages=(0.0, 0.0)))
    loss = before - render(mask, 6.7, seed, **CLEAN)
    changed = loss.max(axis=2) > 2
    assert changed.any()
    assert loss[changed].mean(axis=0)[2] > loss[changed].mean(axis=0)[0], "blue is lost more than red"
    top, bottom = np.flatnonzero((mask == SKIN.index("EPI")).any(axis=1))[[0, -1]]
    rows = np.flatnonzero(changed.any(axis=1))
    assert top - 1 <= rows[0] <= rows[-1] <= bottom + 2
