import csv

import numpy as np
import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.inference.predictor import Predictor
from ntrm.models.registry import create
from ntrm.paper.costs import measure_stages, network_cost, stages_table


def test_parameters_and_operations_are_counted_without_computing():
    network = create("ntrm-control", SKIN, width=0.125)
    parameters, operations = network_cost("ntrm-control", SKIN, 64, {"width": 0.125})
    assert parameters == sum(p.numel() for p in network.parameters())
    counted = 0

    def count(module, _, out):
        nonlocal counted
        inner = module.in_channels // module.groups * np.prod(module.kernel_size)
        counted += int(2 * inner * out.numel())

    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)
    with torch.inference_mode():
        network.eval()(torch.zeros(1, 3, 64, 64))
    assert operations == counted


@pytest.mark.parametrize("masks", ["hard", "soft", "plain"])
def test_stages_are_timed_on_real_windows_and_formulas_use_their_sizes(random, masks, tmp_path):
    torch.manual_seed(0)
    network = create("ntrm-paper", SKIN, width=0.125, dim=8, layers=2, masks=masks).eval()
    windows = [random.integers(0, 256, (64, 96, 3), dtype=np.uint8) for _ in range(2)]
    found = measure_stages(network, windows, Predictor(network, "cpu"))
    assert {key: found.sizes[key] for key in "KNdLC"} == {"K": 12, "N": 8 * 12, "d": 8, "L": 2, "C": 16}
    edges = np.mean([p.graph.adjacency.sum() for p in Predictor(network, "cpu").predict(windows, graph=True)])
    assert found.sizes["E"] == pytest.approx(edges)
    operations = {stage.name: stage.operations for stage in found.stages}
    assert operations["Node"] == 12 * 96 * 8
    assert operations["Adj, Bnd"] == 144 * 96
    assert operations["ψ"] == 9 * 16 * 8 * 96
    assert operations["layers"] == pytest.approx(2 * edges * 64)
    assert all(stage.microseconds > 0 for stage in found.stages)
    table = stages_table(found)
    assert [row[0] for row in table.rows[:7]] == ["Reg", "ψ", "Node", "Adj, Bnd", "Edge", "layers", "Proj"]
    longest = max(found.stages, key=lambda stage: stage.microseconds).name
    assert f"{longest} takes longest" in table.note
    with table.write_csv(tmp_path).open(newline="", encoding="utf-8") as stream:
        rows = {row["stage"]: row for row in csv.DictReader(stream)}
    numbers = ("operations by it", "µs per window", "share, %")
    assert all(float(row[column]) >= 0 for row in rows.values() for column in numbers if row[column])
    assert rows["ψ"]["operations by it"] == str(9 * 16 * 8 * 96)
    assert table.texts[1][2] == f"{9 * 16 * 8 * 96:,}"


@pytest.mark.parametrize(("arch", "options"), [("ntrm-control", {}), ("ntrm-paper", {"graph": "none"})])
def test_networks_without_a_graph_have_no_stages(arch, options):
    network = create(arch, SKIN, width=0.125, **options)
    with pytest.raises(UsageError, match="no relation module"):
        measure_stages(network, [np.zeros((64, 64, 3), np.uint8)], Predictor(network, "cpu"))
