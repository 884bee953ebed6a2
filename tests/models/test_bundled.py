"""The model that comes with the package: it loads, says what it is, and knows the phantom it was made for."""

from tests.phantom.small import small

import ntrm
from ntrm.core.labels import SKIN
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap
from ntrm.models.folders import locate
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.windows import stitch
from ntrm.phantom.layout import layout
from ntrm.phantom.render import render


def test_it_is_small_and_says_what_it_is_not_for():
    folder = locate("bundled")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10e6
    card = (folder / "README.md").read_text()
    assert "Not for real slides" in card
    assert "mean IoU" in card


def test_it_knows_a_phantom_section_it_has_never_seen(seed):
    network = ntrm.load("bundled")
    assert network.config.schema == SKIN
    assert network.config.mpp == 6.7
    section = layout(small(seed, "BCC"), 6.7, "BCC")
    image = render(section.mask, 6.7, seed)
    found = stitch(Predictor(network, "cpu"), image)
    blank = stitch(Predictor(create(network.config.arch, width=0.125).describe(mpp=6.7), "cpu"), image)
    scores = [overlap(confusion(section.mask, each.mask, 12), SKIN).pixel_accuracy for each in (found, blank)]
    assert scores[0] > 0.7  # 16 small random sections had .930 to .989
    assert scores[0] > scores[1]
