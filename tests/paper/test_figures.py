from dataclasses import replace

import numpy as np
import pytest
from tests.report.looking import stumbles, words

from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.split import open_splits
from ntrm.models.registry import create
from ntrm.paper.architecture import architecture_figure, connections, stage_sizes
from ntrm.paper.figures import choose_windows


def test_one_window_for_each_cancer_of_the_test_part_with_the_most_tissues(stripes):
    shown = choose_windows(open_splits(stripes, resolution="10x"), 64)
    # The test part has no IEC.
    assert [each.name for each in shown] == ["BCC (BCC_9)", "SCC (SCC_9)"]
    for each, cancer in zip(shown, ("BCC", "SCC"), strict=True):
        assert each.image.shape == (64, 64, 3)
        assert (each.truth == SKIN.index(cancer)).any()
        # Seven level stripes over 96 rows: 64 rows show five or six of them.
        assert len(np.unique(each.truth[each.truth != IGNORE])) >= 5
        assert all((row == row[0]).all() for row in each.truth)
    shown = choose_windows(open_splits(stripes, resolution="10x"), 256)  # larger than the sections
    assert len(shown) == 2
    assert all((each.truth[96:] == IGNORE).all() and (each.image[96:] == 255).all() for each in shown)


def test_classes_without_cancers_show_sections_with_the_most_classes(stripes):
    parts = open_splits(stripes, resolution="10x")
    names = dict(zip(("BCC", "SCC", "IEC"), ("one", "two", "three"), strict=True))
    tissues = tuple(replace(t, name=names.get(t.name, t.name)) for t in SKIN.tissues)
    renamed = replace(parts.dataset, schema=replace(SKIN, tissues=tissues))
    shown = choose_windows(replace(parts, dataset=renamed), 64)
    assert sorted(each.name for each in shown) == ["BCC_9", "SCC_9"]


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
