import pytest
from tests.report.looking import stumbles, words

from ntrm.models.registry import create
from ntrm.paper.architecture import architecture_figure, connections, stage_sizes


def sure(arch="ntrm-paper", **options):
    return create(arch, 3, width=0.125, **options)


def test_sizes_follow_the_specification_at_full_width():
    expected = {"image": (3, 256, 256), "coarse": (12, 256, 256), "final": (12, 256, 256), "φ": (12, 32, 32)}
    expected |= {"E1": (64, 128, 128), "E2": (64, 64, 64), "E3": (128, 32, 32), "E4": (256, 16, 16), "E5": (512, 8, 8)}
    expected |= {"D1": (256, 16, 16), "D2": (128, 32, 32), "D2'": (128, 32, 32)}
    expected |= {"D3": (96, 64, 64), "D4": (64, 128, 128), "D5": (32, 256, 256)}
    network = create("ntrm-paper", 12)
    assert stage_sizes(network) == expected
    shown = words(architecture_figure(network))
    assert {f"{name}\n{' × '.join(map(str, size))}" for name, size in expected.items()} <= set(shown)
    assert "D2'" not in stage_sizes(sure("ntrm-control"))


def test_arrows_are_the_wiring():
    skips = {"E4 D1", "E3 D2", "E2 D3", "E1 D4"}
    spine = {"image E1", "E1 E2", "E2 E3", "E3 E4", "E4 E5", "E5 D1", "D1 D2", "D3 D4", "D4 D5", "D5 final", "φ coarse"}
    relation = {"D2 TRM", "φ TRM", "TRM D2'", "D2 D2'", "D2' D3"}
    for network, more in (
        (sure(), relation | {"E5 φ"}),
        (sure(coarse="d2"), relation | {"D2 φ"}),
        (sure("ntrm-control"), {"D2 D3", "E5 φ"}),
    ):
        assert {f"{source} {target}" for source, target, _ in connections(network)} == skips | spine | more


@pytest.mark.parametrize("options", [{}, {"coarse": "d2", "graph": "none"}, {"encoder": "resnet50", "layer": "sum"}])
def test_the_architecture_can_be_read(options):
    assert not stumbles(architecture_figure(sure(**options)))
