"""A dataset so small that a run takes a second: stripes of tissue in the layout of the skin dataset."""

from functools import partial

import numpy as np
import pytest
from tests.helpers import write_section

from ntrm.core.labels import SKIN
from ntrm.metrics import significance

SIDES = {"10x": 96, "5x": 192}
PLACES = (("BCC_1", "train"), ("SCC_3", "train"), ("IEC_1", "val"), ("BCC_9", "test"), ("SCC_9", "test"))


def draw_section(rng, side, cancer):
    """Image and mask: background, keratin, epidermis, a tumour in dermis, fat."""
    order = ["BKG", "KER", "EPI", "PAP", cancer, "RET", "HYP"]
    edges = np.linspace(0, side, len(order) + 1).round().astype(int)
    mask = np.empty((side, side + 32), dtype=np.uint8)
    for name, top, bottom in zip(order, edges, edges[1:], strict=False):
        mask[top:bottom] = SKIN.index(name)
    colours = np.random.default_rng(0).integers(60, 240, (12, 3))
    noise = rng.normal(0, 12, (*mask.shape, 3))
    return np.clip(colours[mask] + noise, 0, 255).astype(np.uint8), mask


@pytest.fixture
def few_draws(monkeypatch):
    """A bootstrap draws a twentieth of what it else does: too few to establish anything."""
    monkeypatch.setattr(significance, "Bootstrap", partial(significance.Bootstrap, draws=500))


@pytest.fixture(scope="session")
def stripes(tmp_path_factory):
    """The dataset's folder, with two resolutions."""
    root = tmp_path_factory.mktemp("stripes")
    rng = np.random.default_rng(1)
    for name, _ in PLACES:
        for level, side in SIDES.items():
            write_section(root, level, name, *draw_section(rng, side, name[:3]))
    rows = [f"{name},patient {name},{split},{name[:3]}" for name, split in PLACES]
    (root / "cases.csv").write_text("\n".join(["name,group,split,cancer", *rows]) + "\n")
    return root
