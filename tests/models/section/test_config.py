import pytest

from ntrm.core.errors import UsageError
from ntrm.models.registry import create
from ntrm.models.section.config import SectionConfig


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scope": "slide"}, "section, window"),
        ({"nodes": "pixels"}, "tissue, vector, tokens"),
        ({"graph": "adjacency"}, "contact, complete, none"),
        ({"readout": "copy"}, "ask, paste"),
        ({"source": "e4"}, "e5, d2, both"),
        ({"masks": "hard"}, "soft, straight-through, detached"),
        ({"prior": 1}, "true or false"),
        ({"position": "on"}, "true or false"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 4}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"temperature": 0}, "temperature"),
        ({"dim": 100_000}, "dim"),
        ({"layers": 0}, "layers"),
        ({"dim": 30, "heads": 4}, "heads share"),
        ({"floor": 0.1}, "floor"),
        ({"looks": "no"}, "true or false"),
        ({"dropout": 1.0}, "dropout"),
        ({"alone": -0.1}, "alone"),
        ({"alone": True}, "alone"),
        ({"scope": "window", "alone": 0.5}, "every window is alone"),
        ({"looks": False, "dropout": 0.5}, "nothing to forget"),
        ({"looks": False, "source": "d2"}, "nothing is pooled"),
        ({"nodes": "vector", "graph": "none", "looks": False}, "nothing but their looks"),
        ({"nodes": "tokens"}, "touch nothing"),
        ({"nodes": "vector", "graph": "complete"}, "no graph"),
        ({"nodes": "vector", "graph": "none", "readout": "paste"}, "no masks"),
        ({"nodes": "tokens", "graph": "complete", "prior": True}, "of tissues"),
        ({"graph": "none", "position": True}, "act in the graph"),
        ({"rounds": 2, "masks": "detached"}, "no round could learn"),
        ({"rounds": 2, "nodes": "tokens", "graph": "none"}, "only masks are revised"),
    ],
)
def test_what_means_nothing_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        SectionConfig(**options)
    with pytest.raises(UsageError, match=words):
        create("ntrm-section", 3, width=0.125, **options)


def test_a_floor_leaves_some_tissue_whatever_the_classes():
    # The largest of 254 shares that sum to one is above it.
    assert SectionConfig(floor=0.003).floor < 1 / 254
